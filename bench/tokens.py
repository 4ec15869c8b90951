"""What the tokens room costs: training the tokenizer, encoding, batches from a folder store.

    python bench/tokens.py [--megabytes 20] [--vocab 8192]

Text is the documentation and source files of the installed Python packages. One thread; CPU seconds
of this process, so load on the machine matters little. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from eyas.recipe import Recipe
from eyas.store import Manifest, Store, commit_manifest, open_store, put_object
from eyas.tokens import make_data_plan, open_tokens, train_tokenizer, write_tokens

OBJECTS = 8


def texts(wanted: int) -> Iterator[str]:
    """Files of site-packages in the order of their paths, about `wanted` bytes."""
    held = 0
    root = Path(next(p for p in sys.path if p.endswith("site-packages")))
    for path in sorted(p for e in ("py", "txt", "md", "rst") for p in root.rglob(f"*.{e}")):
        text = path.read_text(encoding="utf-8", errors="ignore")[:100_000]
        if len(text) > 500:
            held += len(text.encode())
            yield text
        if held >= wanted:
            return


def corpus(store: Store, wanted: int) -> int:
    """A corpus of `OBJECTS` objects; returns its bytes."""
    rows = [
        {
            "id": xxhash.xxh3_128_hexdigest(text.encode()),
            "url": f"file:{number}",
            "text": text,
            "language": "en",
            "split": "validation" if number % 50 == 0 else "train",
            "words": len(text.split()),
            "bytes": len(text.encode()),
        }
        for number, text in enumerate(texts(wanted))
    ]
    objects = []
    for number in range(OBJECTS):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows[number::OBJECTS]), sink)
        key = f"corpus/documents/bench-{number:05d}.parquet"
        objects.append(put_object(store, key, sink.getvalue().to_pybytes()))
    commit_manifest(store, Manifest("corpus", "bench", objects=tuple(objects)))
    return sum(row["bytes"] for row in rows)


def encode(recipe: Recipe, store: Store) -> float:
    """CPU seconds of encoding the corpus, its worker included (its start too)."""
    before = os.times()
    write_tokens(recipe, store, workers=1)
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def batches(store: Store, seconds: float = 5.0) -> dict[str, float]:
    """Tokens a second of whole batches, in order, cold."""
    tokens = open_tokens(store)
    began, cpu, done = time.perf_counter(), time.process_time(), 0
    tokens.batch(0)
    first = time.perf_counter() - began
    while time.perf_counter() - began < seconds:
        done += 1
        tokens.batch(done % tokens.steps)
    per_step = tokens.plan.segments[0].batch * tokens.sequence
    return {
        "first_batch_s": round(first, 3),
        "batch_tokens_per_s": round(done * per_step / (time.perf_counter() - began)),
        "batch_tokens_per_cpu_s": round(done * per_step / (time.process_time() - cpu)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--vocab", type=int, default=8192)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        size = corpus(store, args.megabytes * 10**6)
        keys = {
            "tokenizer.vocab_size": args.vocab,
            "tokenizer.sample_bytes": size,
            "train.global_batch": 64 * 2048,
            "train.tokens": 64 * 2048 * 8,
            "data.epochs": 10_000,
        }
        recipe = Recipe.parse(f'name = "bench"\nstore = "{folder}"', "bench", keys)
        cpu = time.process_time()
        manifest = train_tokenizer(recipe, store)
        train_cpu = time.process_time() - cpu
        encode_cpu = encode(recipe, store)
        make_data_plan(recipe, store)
        found = batches(store)
    print(
        json.dumps(
            {
                "text_mb": round(size / 1e6, 1),
                "bytes_per_token": manifest.facts["bytes_per_token"],
                "train_cpu_s": round(train_cpu, 1),
                "encode_mb_per_cpu_s": round(size / 1e6 / encode_cpu, 2),
                **found,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
