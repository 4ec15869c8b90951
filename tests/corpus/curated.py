"""Corpora of tests: their recipe, and what a run left in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eyas.recipe import Recipe
from eyas.store import Manifest, Store, read_manifest

__all__ = ["ledger", "output", "recipe", "rows"]


def recipe(store: Store, *sources: Path | str, **corpus: Any) -> Recipe:
    """Of a corpus of these sources; `corpus` are keys of that section."""
    keys = {"sources": [str(s) for s in sources], **corpus}
    return Recipe.build({"name": "test", "store": store.url, "corpus": keys})


def rows(store: Store, manifest: Manifest, folder: str) -> list[dict[str, Any]]:
    """Every row of "documents", "rejects" or "values"."""
    found: list[dict[str, Any]] = []
    for ref in manifest.under(f"corpus/{folder}/"):
        found += pq.read_table(pa.BufferReader(store.get(ref.key))).to_pylist()
    return found


def ledger(store: Store, stage: str) -> set[str]:
    """The keys under which a stage of the corpus ("extract") noted that a shard is done."""
    return {o.key for o in store.list(f"work/corpus.{stage}/")}


def output(store: Store) -> dict[str, bytes]:
    """What a reader of the corpus sees, but for the two objects that tell of time."""
    manifest = read_manifest(store, "corpus")
    assert manifest is not None
    kept = [o.key for o in manifest.objects if not o.key.startswith("corpus/cost-")]
    return {key: store.get(key) for key in kept if not key.endswith(".html")}
