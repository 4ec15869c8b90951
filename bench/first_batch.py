"""How long the first batch takes, and what it holds in memory, when there are a billion samples.

    python bench/first_batch.py [--objects 4000] [--mib 1024] [--folder DIR]

Makes a folder store of sparse token objects (no text: zeros that occupy no disk, with checksums
that are right), its manifest and a data plan; then, in a new process, opens it and takes the first
batch, one in the middle and one at the end, from `Tokens.batch` and from `Tokens.stream`. Real
store, real reads, real checksums; what is missing is a cold disk. Prints one JSON object; `seconds`
and `cpu_s` are those of opening and the first batch, without the imports.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from eyas.recipe import Recipe
from eyas.store import Manifest, ObjectRef, Store, commit_manifest, crc32c, open_store
from eyas.tokens import make_data_plan, open_tokens
from eyas.tokens.token_objects import BLOCK_BYTES, BLOCK_RECORD, object_stem

SEQUENCE, BATCH = 2048, 64
LACKS = 2**12  # bytes that the last block of each object lacks
DOCUMENT = 1000


def make(folder: str, objects: int, mib: int) -> None:
    """The store. Every object is the same; each has two sidecars, all hard links to two files."""
    store = open_store(folder)
    size = mib * 2**20 - LACKS
    tokens, documents = size // 2, size // 2 // DOCUMENT
    zeros = bytes(BLOCK_BYTES)
    records = np.zeros(mib, BLOCK_RECORD)
    records["crc32c"] = crc32c(zeros)
    records["crc32c"][-1] = crc32c(zeros[:-LACKS])
    identity = "f" * 64
    found: list[ObjectRef] = []
    root = Path(folder)
    for number in range(objects):
        stem = object_stem(identity, "corpus", "train", number)
        _hold(store, root, stem + ".blocks", records.tobytes(), found, mib)
        _hold(store, root, stem + ".docs.parquet", b"not read", found, documents)
        with (root / (stem + ".tok")).open("wb") as file:
            file.truncate(size)
        found.insert(-2, ObjectRef(stem + ".tok", size, "00000000", tokens))
    held = {"tokens": objects * tokens, "documents": objects * documents}
    none = {"tokens": 0, "documents": 0}
    facts: dict[str, Any] = {
        "tokens": {"train": objects * tokens, "validation": 0},
        "documents": {"train": objects * documents, "validation": 0},
        "sources": {"corpus": {"train": held, "validation": none}},
        "dtype": "uint16",
        "block_bytes": BLOCK_BYTES,
        "highest_id": 1,
        "end_of_text": 1,
        "vocab_size": 2,
        "tokenizer": "0" * 64,
    }
    commit_manifest(store, Manifest("tokens", identity, objects=tuple(found), facts=facts))
    keys = {
        "data.sequence": SEQUENCE,
        "train.global_batch": SEQUENCE * BATCH,
        "train.tokens": objects * tokens // (SEQUENCE * BATCH) * SEQUENCE * BATCH,
    }
    make_data_plan(Recipe.parse(f'name = "bench"\nstore = "{folder}"', "bench", keys), store)


def _hold(
    store: Store, root: Path, key: str, data: bytes, found: list[ObjectRef], rows: int
) -> None:
    """A small object, a link to the first of its kind."""
    first = next((o.key for o in found[:3] if o.key.endswith(key[key.index(".") :])), None)
    if first is None:
        store.put(key, data)
    else:
        os.link(root / first, root / key)
    found.append(ObjectRef(key, len(data), f"{crc32c(data):08x}", rows))


def measure(folder: str, how: str) -> None:
    """In a process of its own: open, and take batches."""
    import torch

    torch.set_num_threads(1)
    store, before = open_store(folder), _peak()
    began, cpu = time.perf_counter(), time.process_time()
    tokens = open_tokens(store)
    opened = time.perf_counter() - began
    middle, last = tokens.steps // 2, tokens.steps - 1
    take = tokens.batch if how == "batch" else lambda step: next(tokens.stream(step))
    assert len(take(0).samples) == BATCH
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    then = time.perf_counter()
    take(middle), take(last)
    print(
        json.dumps(
            {
                "samples": tokens.plan.segments[0].sources[0].samples,
                "open_s": round(opened, 2),
                "seconds": round(seconds, 2),
                "cpu_s": round(spent, 2),
                "two_more_s": round(time.perf_counter() - then, 2),
                "added_mib": round((_peak() - before) / 2**20, 1),
                "peak_mib": round(_peak() / 2**20, 1),
            }
        )
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=4000)
    parser.add_argument("--mib", type=int, default=1024, help="size of each")
    parser.add_argument("--folder", help="made if it is not there, and kept")
    parser.add_argument("--measure", choices=("batch", "stream"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.folder, args.measure)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or f"{temporary}/store"
        if not Path(folder).exists():
            make(folder, args.objects, args.mib)
        found = {}
        for how in ("batch", "stream"):
            command = [sys.executable, __file__, "--folder", folder, "--measure", how]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[how] = json.loads(done.stdout)
        print(json.dumps({"objects": args.objects, "mib": args.mib, **found}, indent=1))


if __name__ == "__main__":
    main()
