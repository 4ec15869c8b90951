"""Ranged reads from a real S3 server: CPU of ours and of the usual clients.

    python bench/reads.py [--rounds 3] [--threads 8]

An object of 256 MiB lies in a SeaweedFS on loopback. Each client in turn, in a process of its own,
fills blocks of memory that has been touched before with ranges of it, in a shuffled order, and
compares the CRC32C of each with what was written. The figure is the CPU time of that process, user
and system, a GiB: the server's is its own, and load on the machine matters little to it. The MiB/s
are of a machine that runs the server too. The rivals stand in environments of their own, see
bench/requirements.txt; those that are not there are said to be missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crc32c import crc32c

ROOT = Path(__file__).parent.parent
BUCKET, KEY = "eyas", "bench/reads"
SIZE = 256 << 20
BLOCKS = {"1 MiB": 1 << 20, "32 MiB": 32 << 20}
GIB = 1 << 30

Read = Callable[[int, memoryview], object]


def ours() -> Read:
    from eyas.store import open_store

    store = open_store(f"s3://{BUCKET}")
    return lambda start, view: store.read_into(KEY, start, view)


def boto3() -> Read:
    import boto3
    from botocore.config import Config

    config = Config(
        max_pool_connections=64,
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    client = boto3.client("s3", config=config)

    def read(start: int, view: memoryview) -> None:
        wanted = f"bytes={start}-{start + len(view) - 1}"
        body = client.get_object(Bucket=BUCKET, Key=KEY, Range=wanted)["Body"]
        done = 0
        while got := body.readinto(view[done:]):
            done += got

    return read


def obstore() -> Read:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    def read(start: int, view: memoryview) -> None:
        view[:] = memoryview(obstore.get_range(store, KEY, start=start, length=len(view)))

    return read


def s3fs() -> Read:
    import s3fs

    files = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def read(start: int, view: memoryview) -> None:
        view[:] = files.cat_file(f"{BUCKET}/{KEY}", start=start, end=start + len(view))

    return read


def s3torchconnector() -> Read:
    from s3torchconnector import S3ReaderConstructor
    from s3torchconnector._s3client import S3Client, S3ClientConfig

    client = S3Client(
        os.environ["AWS_REGION"],
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    ranged = S3ReaderConstructor.range_based(buffer_size=0)
    mine = threading.local()

    def read(start: int, view: memoryview) -> None:
        if not hasattr(mine, "reader"):
            mine.reader = client.get_object(BUCKET, KEY, reader_constructor=ranged)
        mine.reader.seek(start)
        done = 0
        while done < len(view):
            done += mine.reader.readinto(view[done:])

    return read


CLIENTS: dict[str, tuple[Callable[[], Read], str]] = {
    "eyas": (ours, ".venv"),
    "obstore": (obstore, ".bench"),
    "boto3": (boto3, ".bench"),
    "s3torchconnector": (s3torchconnector, ".bench"),
    "s3fs": (s3fs, ".bench-s3fs"),
}


def measure(name: str, block: int, threads: int, sums: list[int]) -> dict[str, float]:
    """One client in this process: CPU seconds a GiB, MiB a second."""
    read = CLIENTS[name][0]()
    starts = list(range(0, SIZE, block)) * (2 if block < SIZE // 16 else 4)
    random.Random(block).shuffle(starts)
    buffers = [bytearray(os.urandom(1) * block) for _ in range(threads)]
    free = list(buffers)

    def one(start: int) -> None:
        buffer = free.pop()
        read(start, memoryview(buffer))
        if crc32c(buffer) != sums[start // block]:
            raise SystemExit(f"{name} gave wrong bytes at {start}")
        free.append(buffer)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, starts[:threads]))  # imports, connections, first credentials
        wall, used = time.perf_counter(), time.process_time()
        list(pool.map(one, starts))
        wall, used = time.perf_counter() - wall, time.process_time() - used
    total = len(starts) * block
    return {"cpu": used * GIB / total, "rate": total / (1 << 20) / wall}


def child(name: str, block: int, threads: int, sums: str) -> dict[str, float] | None:
    """`measure` in a process of its own; None if the client is not installed."""
    python = ROOT / CLIENTS[name][1] / "bin" / "python"
    if not python.exists():
        return None
    command = [str(python), __file__, "--child", name, str(block), str(threads), sums]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def written() -> Iterator[bytes]:
    for number in range(SIZE >> 20):
        yield random.Random(number).randbytes(1 << 20)


def checksums(block: int) -> list[int]:
    sums, held = [], b""
    for piece in written():
        held += piece
        if len(held) == block:
            sums.append(crc32c(held))
            held = b""
    return sums


def run(rounds: int, threads: int) -> None:
    from eyas.store import open_store

    open_store(f"s3://{BUCKET}").put_chunks(KEY, written())
    for label, block in BLOCKS.items():
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(checksums(block), file)
            file.flush()
            found: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
            for _ in range(rounds):
                for name in CLIENTS:
                    if result := child(name, block, threads, file.name):
                        found[name].append(result)
        print(f"\n{label}, {threads} threads, median of {rounds} (least to most)")
        base = statistics.median(r["cpu"] for r in found["eyas"])
        for name, results in found.items():
            if not results:
                print(f"  {name:18} missing: see bench/requirements.txt")
                continue
            cpu = sorted(r["cpu"] for r in results)
            middle, rate = statistics.median(cpu), statistics.median(r["rate"] for r in results)
            spread = f"({cpu[0]:.2f} to {cpu[-1]:.2f})"
            print(
                f"  {name:18} {middle:5.2f} CPU-s/GiB {spread:16} {middle / base:4.1f} x ours, "
                f"{rate:5.0f} MiB/s"
            )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, block, threads, sums = sys.argv[2:]
        found = json.loads(Path(sums).read_text())
        print(json.dumps(measure(name, int(block), int(threads), found)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests import seaweed

    with seaweed.start() as server:
        os.environ.update(server.environ)
        run(options.rounds, options.threads)


if __name__ == "__main__":
    main()
