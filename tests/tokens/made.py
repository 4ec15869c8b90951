"""A small corpus as the corpus room leaves it, and recipes to go with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from eyas.recipe import Recipe
from eyas.store import (
    Manifest,
    Store,
    commit_manifest,
    identity,
    put_object,
    read_manifest,
    read_object,
)
from eyas.tokens import make_data_plan, train_tokenizer, write_tokens
from eyas.tokens.token_objects import token_objects

__all__ = [
    "BLOCK_BYTES",
    "Watched",
    "commit_corpus",
    "copy_store",
    "document",
    "documents",
    "object_tokens",
    "recipe",
    "whole",
]

BLOCK_BYTES = 1024
_ENGLISH = [
    a + b
    for a in "ri mou gar win let mar har for brid kit".split()
    for b in "ver ntain den dow ter ket bour est ge chen lan son".split()
]
_ARABIC = [
    a + b
    for a in "ال وال بال كت مد نه جب سو مي ور".split()
    for b in "ير بل يقة افذة الة وق ناء تاء بخ سر ابة ُّون".split()
]


def recipe(store: Store, **overrides: Any) -> Recipe:
    """512 items, samples of 32 tokens, 12 samples a step."""
    keys = {
        "tokenizer.vocab_size": 512,
        "tokenizer.reserved": 16,
        "data.sequence": 32,
        "train.global_batch": 384,
        "train.tokens": 384 * 40,
    }
    text = f'name = "t"\nstore = "{store.url}"'
    return Recipe.parse(
        text, "test", keys | {k.replace("__", "."): v for k, v in overrides.items()}
    )


def document(number: int, source: int = 0, split: str = "train", words: int = 0) -> dict[str, Any]:
    """One document, English or Arabic, its length by its number."""
    rng = random.Random(number * 1009 + source)
    language, pool = ("ar", _ARABIC) if number % 3 == 0 else ("en", _ENGLISH)
    count = words or rng.randrange(0, 60)
    text = " ".join(rng.choice(pool) for _ in range(count))
    return {
        "id": xxhash.xxh3_128_hexdigest(f"{source}#{number}".encode()),
        "url": f"https://{language}.test/{source}/{number}",
        "text": text,
        "language": language,
        "language_score": 0.9,
        "source": f"sources/{source}.warc.gz",
        "offset": number,
        "date": "2024-01-01",
        "cluster": xxhash.xxh3_128_hexdigest(f"{source}#{number}".encode()),
        "split": split,
        "words": count,
        "bytes": len(text.encode()),
    }


def documents(count: int, source: int = 0, words: int = 0) -> list[dict[str, Any]]:
    """Every tenth is held out."""
    splits = ["validation" if n % 10 == 9 else "train" for n in range(count)]
    return [document(n, source, split, words) for n, split in enumerate(splits)]


def commit_corpus(store: Store, objects: Sequence[Sequence[dict[str, Any]]]) -> Manifest:
    """One documents object for each list."""
    name = identity("test corpus", objects)
    types = {
        "text": pa.large_string(),
        "language_score": pa.float32(),
        "offset": pa.int64(),
        "words": pa.int32(),
        "bytes": pa.int32(),
    }
    schema = pa.schema([(k, types.get(k, pa.string())) for k in document(0)])
    references = []
    for number, rows in enumerate(objects):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink)
        key = f"corpus/documents/{name[:12]}-{number:05d}.parquet"
        references.append(put_object(store, key, sink.getvalue().to_pybytes(), rows=len(rows)))
    languages: dict[str, dict[str, int]] = {}
    for row in (row for rows in objects for row in rows):
        entry = languages.setdefault(row["language"], {"documents": 0, "bytes": 0})
        entry["documents"] += 1
        entry["bytes"] += row["bytes"]
    manifest = Manifest("corpus", name, objects=tuple(references), facts={"languages": languages})
    return commit_manifest(store, manifest)


def whole(store: Store, objects: Sequence[Sequence[dict[str, Any]]], **overrides: Any) -> Recipe:
    """Corpus, tokenizer, tokens and data plan."""
    made = recipe(store, **overrides)
    commit_corpus(store, objects)
    train_tokenizer(made, store)
    write_tokens(made, store, workers=1)
    make_data_plan(made, store)
    return made


def copy_store(source: Store, target: Store) -> None:
    """Every object."""
    for info in source.list():
        target.put(info.key, source.get(info.key))


def object_tokens(
    store: Store, source: str, split: str
) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
    """Tokens of each object of a source, read whole, and for each token the number of its document
    in the source."""
    manifest = read_manifest(store, "tokens")
    assert manifest is not None
    tokens, numbers, base = [], [], 0
    for shard in token_objects(manifest, source, split):
        data = np.frombuffer(read_object(store, shard.tokens), "<u2")
        tokens.append(data)
        numbers.append(base + np.cumsum(data == 0) - (data == 0))
        base += shard.documents.rows
    return tokens, numbers


class Watched:
    """A store whose ranged reads are noted, and may be tampered with by `meddle(key, start, buffer,
    fresh)`, which runs after each."""

    def __init__(
        self, inner: Store, meddle: Callable[[str, int, Any, bool], None] | None = None
    ) -> None:
        self._inner = inner
        self.meddle = meddle
        self.reads: list[tuple[str, int, bool]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read_into(self, key: str, start: int, buffer: Any, fresh: bool = False) -> None:
        self.reads.append((key, start, fresh))
        self._inner.read_into(key, start, buffer, fresh)
        if self.meddle is not None:
            self.meddle(key, start, buffer, fresh)
