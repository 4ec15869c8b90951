"""Stage `corpus.bands`: the candidates of one input shard to their MinHash band hashes.

On its own, so that another shingle or number of bands reads no page and filters nothing again.
Words of a script without spaces are several tokens each (`tokens_per_word`), and so are shingles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eyas.corpus.documents import read_tables
from eyas.corpus.steps.words import split_words
from eyas.store import Store
from eyas.work import Shard, ShardResult, Stage, shard_key

from .exchange import BAND, Rows, concatenate, put_bands, split_id
from .minhash import band_hashes, matching_words

__all__ = ["run_shard"]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Input: a candidates object. Settings: bands, rows, shingle, and tokens_per_word by language
    ("" for all others). Object: the bands."""
    (candidates,) = shard.inputs
    parts: list[Rows] = []
    for table in read_tables(store, candidates, ["id", "language", "text"]):
        parts += [_band_rows(row, stage.settings) for row in table.to_pylist()]
    key = f"corpus/bands/{shard_key(stage, shard)[:16]}.bin"
    return ShardResult((put_bands(store, key, concatenate(parts, BAND)),))


def _band_rows(row: Mapping[str, Any], settings: Mapping[str, Any]) -> Rows:
    per_word = settings["tokens_per_word"]
    shingle = settings["shingle"] * per_word.get(row["language"], per_word[""])
    words = matching_words(split_words(row["text"]))
    hashes = band_hashes(words, settings["bands"], settings["rows"], shingle)
    rows = np.zeros(len(hashes), dtype=BAND)
    rows["hash"] = hashes
    rows["high"], rows["low"] = split_id(row["id"])
    return rows
