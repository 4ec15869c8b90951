"""Token batches straight from an S3 server: ours against the loaders that others have.

    .venv/bin/python -m bench.loader [--mtokens 128] [--rounds 3] [--seconds 20]

Starts a real S3 server (SeaweedFS) on loopback, writes the same tokens (uint16, samples of 2,048)
in the form that each contender wants, and runs them in turn, each in a process of its own,
`rounds` times; batches are int64 tensors [64, 2048]. Ours are verified (CRC32C of every block),
shuffled, and carry document numbers, the loss mask and the digest of what was consumed; of the
others only mosaicml-streaming and webdataset shuffle, and none verifies. Prints a table of medians,
the ratios that docs/tokens.md quotes, and one JSON line. The rivals' environments: see
`bench/requirements.txt`; one that is missing is named and left out.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SEQUENCE = 2048
BATCH = 64
OBJECT_TOKENS = 16 * 2**20
SMALL_TOKENS = 2**19
TAR_ROWS = 4096
RIVALS = {
    "memmap": "local memmap, random rows",
    "obstore": "raw rate, obstore, 8 ranges at a time",
    "s3fs": "s3fs, sequential",
    "mosaic": "mosaicml-streaming, shuffled",
    "webdataset": "webdataset, shuffle buffer",
    "s3torchconnector": "s3torchconnector, objects of 1 MiB",
}
OURS = "eyas, shuffled and verified"


def tokens_of(count: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Random ids, an end of text (id 0) every 600 tokens or so."""
    rng = np.random.default_rng(1)
    ids = rng.integers(256, 512, count, dtype=np.uint16)
    ids[rng.random(count) < 1 / 600] = 0
    ids[-1] = 0
    return ids


def write_ours(ids: np.ndarray[Any, np.dtype[np.uint16]], folder: Path, url: str) -> None:
    """The tokens as a Megatron dataset, taken in by `[data] sources` as a user would."""
    from bench.megatron import write_megatron
    from bench.tokens import corpus

    from eyas.recipe import Recipe
    from eyas.store import open_store
    from eyas.tokens import make_data_plan, train_tokenizer, write_tokens

    write_megatron(folder / "ids", ids)
    store = open_store(url)
    corpus(store, 10**6)
    steps = len(ids) // (BATCH * SEQUENCE)
    text = f"""
name = "bench"
store = "{url}"
[tokenizer]
vocab_size = 600
[data]
sequence = {SEQUENCE}
sources = [{{ name = "ids", from = "megatron:{folder / "ids"}" }}]
[train]
global_batch = {BATCH * SEQUENCE}
tokens = {steps * BATCH * SEQUENCE}
"""
    recipe = Recipe.parse(text, "bench")
    train_tokenizer(recipe, store)
    write_tokens(recipe, store)
    make_data_plan(recipe, store)


def write_rivals(ids: Any, folder: Path, url: str) -> dict[str, Any]:
    """The same tokens in the forms of the others; what they need to know."""
    from eyas.store import open_store

    store = open_store(url)
    whole = len(ids) // OBJECT_TOKENS * OBJECT_TOKENS
    directions: dict[str, Any] = {
        "file": str(folder / "tokens.bin"),
        "sequence": SEQUENCE,
        "batch": BATCH,
        "bucket": "eyas",
        "object_bytes": OBJECT_TOKENS * 2,
        "objects": [],
        "small_objects": [],
        "tars": [],
        "mds_folder": str(folder / "mds"),
        "mds": "s3://eyas/rivals/mds",
    }
    ids[:whole].tofile(directions["file"])
    for at in range(0, whole, OBJECT_TOKENS):
        store.put(f"flat/{at}.bin", ids[at : at + OBJECT_TOKENS].tobytes())
        directions["objects"].append(f"rivals/flat/{at}.bin")
    for at in range(0, whole, SMALL_TOKENS):
        store.put(f"small/{at}.bin", ids[at : at + SMALL_TOKENS].tobytes())
        directions["small_objects"].append(f"rivals/small/{at}.bin")
    rows = ids[:whole].reshape(-1, SEQUENCE)
    for at in range(0, len(rows), TAR_ROWS):
        store.put(f"tar/{at}.tar", tar_of(rows[at : at + TAR_ROWS]))
        directions["tars"].append(f"pipe:curl -s '{presigned(f'rivals/tar/{at}.tar')}'")
    if python_of("mosaic"):
        run("write_mosaic", directions | {"seconds": 600}, folder)
        for path in sorted(Path(directions["mds_folder"]).iterdir()):
            store.put(f"mds/{path.name}", path.read_bytes())
    return directions


def tar_of(rows: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number, row in enumerate(rows):
            info = tarfile.TarInfo(f"{number:06d}.tok")
            info.size = row.nbytes
            tar.addfile(info, io.BytesIO(row.tobytes()))
    return buffer.getvalue()


def presigned(key: str) -> str:
    import botocore.session

    client = botocore.session.Session().create_client(
        "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1"
    )
    address = {"Bucket": "eyas", "Key": key}
    return str(client.generate_presigned_url("get_object", Params=address, ExpiresIn=36_000))


def python_of(name: str) -> Path | None:
    """The interpreter that has a rival, or None."""
    root = Path(__file__).parent.parent
    path = root / (".bench-s3fs" if name == "s3fs" else ".bench") / "bin" / "python"
    return path if path.exists() else None


def run(name: str, directions: dict[str, Any], folder: Path) -> dict[str, float] | None:
    """One rival once, in its own process; None, said, if it failed."""
    path = folder / "directions.json"
    path.write_text(json.dumps(directions))
    script = Path(__file__).with_name("loader_rivals.py")
    child = subprocess.run(
        [str(python_of(name)), str(script), name, str(path)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if child.returncode:
        print(f"{name} failed: {child.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return dict(json.loads(child.stdout.strip().splitlines()[-1]))


def run_ours(url: str, seconds: float) -> dict[str, float]:
    """This program again, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-m", "bench.loader", "--ours", url, "--seconds", str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return dict(json.loads(child.stdout.strip().splitlines()[-1]))


def ours(url: str, seconds: float) -> dict[str, float]:
    """Open the store and read its epoch in order."""
    import torch
    from bench.loader_rivals import run as measured

    from eyas.store import open_store
    from eyas.tokens import open_tokens

    torch.set_num_threads(1)

    def batches() -> Any:
        tokens = open_tokens(open_store(url))
        with tokens.stream(0) as stream:
            for batch in stream:
                yield batch.ids[:, 1:]

    return measured(batches(), seconds)


def table(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians, printed with their ratio to ours."""
    rows = {}
    for name, runs in found.items():
        rates = [r["tokens"] / r["seconds"] / 1e6 for r in runs]
        rows[name] = {
            "mtokens_per_s": statistics.median(rates),
            "least": min(rates),
            "most": max(rates),
            "cpu_us_per_ktoken": statistics.median(r["cpu"] / r["tokens"] * 1e9 for r in runs),
            "cpu_s_per_gb": statistics.median(r["cpu"] / (2 * r["tokens"]) * 1e9 for r in runs),
            "first_batch_s": statistics.median(r["first"] for r in runs),
            "rss_mb": max(r["rss"] for r in runs) / 1e6,
        }
    mine = rows[OURS]["mtokens_per_s"]
    print(
        f"{'loader':<40} {'M tokens/s':>10} {'least-most':>13} {'CPU us/ktok':>12} "
        f"{'CPU-s/GB':>9} {'first s':>8} {'MB':>6} {'ours is':>8}"
    )
    for name, row in rows.items():
        spread = f"{row['least']:.1f}-{row['most']:.1f}"
        print(
            f"{name:<40} {row['mtokens_per_s']:>10.1f} {spread:>13} "
            f"{row['cpu_us_per_ktoken']:>12.1f} {row['cpu_s_per_gb']:>9.2f} "
            f"{row['first_batch_s']:>8.2f} {row['rss_mb']:>6.0f} "
            f"{mine / row['mtokens_per_s']:>7.2f}x"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mtokens", type=int, default=128, help="millions of tokens (2**20)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="most a contender reads")
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ours:
        print(json.dumps(ours(args.ours, args.seconds)))
        return
    from tests.seaweed import start

    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as temporary, start() as server:
        os.environ.update(server.environ)
        folder = Path(temporary)
        ids = tokens_of(args.mtokens * 2**20)
        began = time.perf_counter()
        write_ours(ids, folder, "s3://eyas/ours")
        directions = write_rivals(ids, folder, "s3://eyas/rivals") | {"seconds": args.seconds}
        print(f"written in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(args.rounds):
            found.setdefault(OURS, []).append(run_ours("s3://eyas/ours", args.seconds))
            for name, title in RIVALS.items():
                if python_of(name) is None:
                    print(f"{title}: not installed, see bench/requirements.txt", file=sys.stderr)
                elif (result := run(name, directions, folder)) is not None:
                    found.setdefault(title, []).append(result)
        rows = table(found)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
