"""One rival of `bench/loader.py`, alone in a process: token batches from an S3 server or a file.

    .bench/bin/python bench/loader_rivals.py NAME DIRECTIONS.json

Runs without Eyas, in the environment of the rivals (`bench/requirements.txt`). Every one gives the
same thing: int64 tensors [batch, sequence] of real tokens, until it has read everything once or its
seconds are over. Prints one JSON object: tokens, seconds, cpu seconds of this process and its
children, all three after the first batch, and the seconds to that.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def memmap(d: dict[str, Any]) -> Iterator[Any]:
    """The limit of a local disk: rows of a file in memory, in random order."""
    import torch

    rows = np.memmap(d["file"], np.uint16, "r").reshape(-1, d["sequence"])
    order = np.random.default_rng(0).permutation(len(rows))
    for at in range(0, len(order), d["batch"]):
        yield torch.from_numpy(rows[order[at : at + d["batch"]]].astype(np.int64))


def obstore(d: dict[str, Any]) -> Iterator[Any]:
    """The limit of the server: whole objects in ranges of 8 MiB, eight at a time, in order, nothing
    checked."""
    from concurrent.futures import ThreadPoolExecutor

    import torch
    from obstore.store import S3Store

    store = S3Store(
        d["bucket"],
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        client_options={"allow_http": True},
    )
    size, piece = d["object_bytes"], 8 << 20
    ranges = [(key, at) for key in d["objects"] for at in range(0, size, piece)]

    def read(where: tuple[str, int]) -> Any:
        key, at = where
        return store.get_range(key, start=at, length=min(piece, size - at))

    with ThreadPoolExecutor(8) as pool:
        for data in pool.map(read, ranges):
            rows = np.frombuffer(data, np.uint16).reshape(-1, d["sequence"])
            for at in range(0, len(rows), d["batch"]):
                yield torch.from_numpy(rows[at : at + d["batch"]].astype(np.int64))


def s3fs(d: dict[str, Any]) -> Iterator[Any]:
    """Sequential reads through fsspec's read-ahead, as datatrove and nanotron have them."""
    import s3fs as library

    fs = library.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    size = d["batch"] * d["sequence"] * 2
    for key in d["objects"]:
        with fs.open(f"{d['bucket']}/{key}", "rb") as file:
            while data := file.read(size):
                yield np.frombuffer(data, np.uint16).reshape(-1, d["sequence"]).astype(np.int64)


def mosaic(d: dict[str, Any]) -> Iterator[Any]:
    """StreamingDataset, shuffled, from a cold local cache, in this process."""
    import torch

    streaming = _streaming()
    with tempfile.TemporaryDirectory() as local:
        dataset = streaming.StreamingDataset(
            remote=d["mds"], local=local, shuffle=True, batch_size=d["batch"], num_canonical_nodes=1
        )
        held = []
        for sample in dataset:
            held.append(sample["tokens"])
            if len(held) == d["batch"]:
                yield torch.from_numpy(np.stack(held).astype(np.int64))
                held = []


def write_mosaic(d: dict[str, Any]) -> Iterator[Any]:
    """Not a rival: the MDS shards for the one above, into a folder."""
    streaming = _streaming()
    rows = np.memmap(d["file"], np.uint16, "r").reshape(-1, d["sequence"])
    columns = {"tokens": f"ndarray:uint16:{d['sequence']}"}
    with streaming.MDSWriter(out=d["mds_folder"], columns=columns) as out:
        for row in rows:
            out.write({"tokens": np.array(row)})
    yield from ()


def webdataset(d: dict[str, Any]) -> Iterator[Any]:
    """Tar shards over presigned URLs, a shuffle buffer of 2,000 samples."""
    import torch
    import webdataset as library

    dataset = library.WebDataset(d["tars"], shardshuffle=len(d["tars"]), seed=1).shuffle(2000)
    held = []
    for sample in dataset:
        held.append(np.frombuffer(sample["tok"], np.uint16))
        if len(held) == d["batch"]:
            yield torch.from_numpy(np.stack(held).astype(np.int64))
            held = []


def s3torchconnector(d: dict[str, Any]) -> Iterator[Any]:
    """Its map dataset over objects of 1 MiB in random order; a batch is cut from each."""
    import torch
    from s3torchconnector import S3ClientConfig, S3MapDataset

    dataset = S3MapDataset.from_objects(
        [f"s3://{d['bucket']}/{key}" for key in d["small_objects"]],
        region="us-east-1",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    order = list(range(len(dataset)))
    random.Random(0).shuffle(order)
    for number in order:
        rows = np.frombuffer(dataset[number].read(), np.uint16).reshape(-1, d["sequence"])
        for at in range(0, len(rows), d["batch"]):
            yield torch.from_numpy(rows[at : at + d["batch"]].astype(np.int64))


def _streaming() -> Any:
    """mosaicml-streaming; its package wants torchvision for datasets of pictures only, which has no
    build beside the CPU build of torch, so its place is taken by an empty module."""
    import transformers.feature_extraction_utils  # noqa: F401  # looks for torchvision itself

    for name, contents in (
        ("torchvision", {}),
        ("torchvision.datasets", {"VisionDataset": object}),
        ("torchvision.transforms", {}),
        ("torchvision.transforms.functional", {"to_tensor": None}),
    ):
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules.setdefault(name, module)
    import streaming

    os.environ["S3_ENDPOINT_URL"] = os.environ.get("AWS_ENDPOINT_URL", "")
    return streaming


RIVALS: dict[str, Callable[[dict[str, Any]], Iterator[Any]]] = {
    f.__name__: f
    for f in (memmap, obstore, s3fs, mosaic, write_mosaic, webdataset, s3torchconnector)
}

MODULES: dict[str, Callable[[], Any]] = {
    "obstore": lambda: importlib.import_module("obstore.store"),
    "s3fs": lambda: importlib.import_module("s3fs"),
    "mosaic": lambda: _streaming(),
    "webdataset": lambda: importlib.import_module("webdataset"),
    "s3torchconnector": lambda: importlib.import_module("s3torchconnector"),
}  # imported before the clock starts


def run(batches: Iterator[Any], seconds: float) -> dict[str, float]:
    """Read until the end or the time is up; see the head of this file."""
    before, began = _cpu(), time.perf_counter()
    first, tokens = 0.0, 0
    for batch in batches:
        now = time.perf_counter() - began
        if not first:
            first, before = now, _cpu()
            continue
        tokens += int(np.prod(batch.shape))
        if now > seconds:
            break
    return {
        "tokens": tokens,
        "seconds": time.perf_counter() - began - first,
        "cpu": _cpu() - before,
        "first": first,
        "rss": _peak(),
    }


def _peak() -> int:
    """Peak resident bytes of this process. Not `ru_maxrss`, which begins at the parent's."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def _cpu() -> float:
    return sum(os.times()[:4])


if __name__ == "__main__":
    with open(sys.argv[2]) as file:  # noqa: PTH123
        directions = json.load(file)
    if sys.argv[1] != "s3fs":  # its environment has no torch
        import torch

        torch.set_num_threads(1)
    MODULES.get(sys.argv[1], lambda: None)()
    print(json.dumps(run(RIVALS[sys.argv[1]](directions), directions["seconds"])))
