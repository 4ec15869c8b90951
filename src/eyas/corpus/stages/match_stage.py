"""Stages `corpus.match` and `corpus.cluster`: band hashes to pairs, pairs to clusters.

Match is an exchange stage: each shard reads one range of hashes from every band file and gives, for
documents that share a hash, the pairs (lowest id, other). Cluster joins all pairs (union-find as
label propagation with pointer jumping, vectorised): a cluster's id is its lowest document's,
whatever the order of pairs, so no engine or number of shards can change it. One task does that for
now; its result is one object an input shard, named by its content, so that an input whose
duplicates did not change is not written again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from eyas.store import Store
from eyas.work import Shard, ShardResult, Stage, shard_key

from .exchange import (
    BAND,
    BUCKETS,
    CLUSTER,
    PAIR,
    Rows,
    concatenate,
    first_of_each,
    id_text,
    put_rows,
    read_bands,
    read_rows,
    sort_order,
)

__all__ = ["join", "match_shards", "run_cluster", "run_match"]

_ROWS_A_SHARD = 4_000_000  # 24 bytes a row, a few copies while sorting: about 400 MB
_LARGEST = 20
_PAIR_IDS = ("high", "low", "other_high", "other_low")
_MEMBER = np.dtype([("high", "<u8"), ("low", "<u8"), ("shard", "<u4")])
_Indices = npt.NDArray[np.int64]


def match_shards(rows: int) -> int:
    """How many match shards for this many band rows: a power of two up to the number of buckets."""
    shards = 1
    while shards < BUCKETS and rows > shards * _ROWS_A_SHARD:
        shards *= 2
    return shards


def run_match(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Inputs: the band file of every input shard, `params["numbers"]` their numbers;
    `params["part"]` of `params["parts"]` is the range of hashes. Object: the pairs, if any."""
    part, parts = shard.params["part"], shard.params["parts"]
    first, last = part * BUCKETS // parts, (part + 1) * BUCKETS // parts
    bands: list[Rows] = []
    numbers: list[npt.NDArray[np.uint32]] = []
    for ref, number in zip(shard.inputs, shard.params["numbers"], strict=True):
        rows = read_bands(store, ref, first, last)
        bands.append(rows)
        numbers.append(np.full(len(rows), number, dtype=np.uint32))
    pairs = _pairs(concatenate(bands, BAND), np.concatenate([np.zeros(0, np.uint32), *numbers]))
    if not len(pairs):
        return ShardResult((), {"pairs": 0})
    key = f"corpus/pairs/{shard_key(stage, shard)[:16]}.bin"
    return ShardResult((put_rows(store, key, pairs),), {"pairs": len(pairs)})


def _pairs(bands: Rows, numbers: npt.NDArray[np.uint32]) -> Rows:
    """Each document that shares a hash with one of a lower id, with the lowest; no pair twice."""
    order = sort_order(bands, "hash", "high", "low")
    bands, numbers = bands[order], numbers[order]
    new = first_of_each(bands, "hash")
    lowest = np.maximum.accumulate(np.where(new, np.arange(len(bands)), 0))
    others = np.flatnonzero(~new)
    pairs = np.zeros(len(others), dtype=PAIR)
    for prefix, rows in (("", lowest[others]), ("other_", others)):
        pairs[prefix + "high"] = bands["high"][rows]
        pairs[prefix + "low"] = bands["low"][rows]
        pairs[prefix + "shard"] = numbers[rows]
    pairs = pairs[sort_order(pairs, *_PAIR_IDS)]
    return pairs[first_of_each(pairs, *_PAIR_IDS)]


def run_cluster(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Inputs: all pairs; objects: the cluster files; facts: `shards`, the input shard of each
    object, and sizes of the clusters."""
    pairs = concatenate([read_rows(store, ref, PAIR) for ref in shard.inputs], PAIR)
    rows, numbers = join(pairs)
    objects, owners = [], []
    for number in np.unique(numbers).tolist():
        mine = rows[numbers == number]
        key = f"corpus/clusters/{xxhash.xxh3_128_hexdigest(mine.tobytes())}.bin"
        objects.append(put_rows(store, key, mine))
        owners.append(number)
    facts: dict[str, Any] = {"shards": owners} | _sizes(rows, numbers)
    return ShardResult(tuple(objects), {"clustered": len(rows)}, facts)


def join(pairs: Rows) -> tuple[Rows, npt.NDArray[np.uint32]]:
    """Every document in a pair with its cluster, by id, and its input shard's number."""
    members = np.zeros(2 * len(pairs), dtype=_MEMBER)
    for name in _MEMBER.names or ():
        members[name] = np.concatenate((pairs[name], pairs["other_" + name]))
    order = sort_order(members, "high", "low")
    members = members[order]
    new = first_of_each(members, "high", "low")
    index = np.empty(len(members), dtype=np.int64)
    index[order] = np.cumsum(new) - 1
    documents = members[new]
    labels = _labels(len(documents), index[: len(pairs)], index[len(pairs) :])
    rows = np.zeros(len(documents), dtype=CLUSTER)
    rows["high"], rows["low"] = documents["high"], documents["low"]
    rows["cluster_high"], rows["cluster_low"] = documents["high"][labels], documents["low"][labels]
    return rows, documents["shard"]


def _labels(count: int, left: _Indices, right: _Indices) -> _Indices:
    """The lowest index of each index's component."""
    labels = np.arange(count)
    while True:
        low = np.minimum(labels[left], labels[right])
        before = labels.copy()
        np.minimum.at(labels, labels[left], low)
        np.minimum.at(labels, labels[right], low)
        while not np.array_equal(labels, labels[labels]):
            labels = labels[labels]
        if np.array_equal(before, labels):
            return labels


def _sizes(rows: Rows, numbers: npt.NDArray[np.uint32]) -> dict[str, Any]:
    """How many clusters have how many members, and the largest ones with the input shard of the
    document that stays."""
    order = sort_order(rows, "cluster_high", "cluster_low", "high", "low")
    rows, numbers = rows[order], numbers[order]
    starts = np.flatnonzero(first_of_each(rows, "cluster_high", "cluster_low"))
    counts = np.diff(np.append(starts, len(rows)))
    most = np.argsort(-counts, kind="stable")[:_LARGEST]
    largest = [(rows[starts[i]], int(counts[i]), int(numbers[starts[i]])) for i in most]
    sizes = Counter(counts.tolist())
    return {
        "clusters": len(starts),
        "sizes": [[size, n] for size, n in sorted(sizes.items())],
        "largest": [
            {
                "cluster": id_text(int(row["cluster_high"]), int(row["cluster_low"])),
                "documents": n,
                "shard": shard,
            }
            for row, n, shard in largest
        ],
    }
