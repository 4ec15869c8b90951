"""Stage `corpus.write`: one input shard's candidates to the documents that stay, with cluster and
split, and the rejects of de-duplication and removals. Of every cluster exactly its lowest id stays.
A removed document leaves its URL and no text, and its duplicates do not come back in its place. The
split is decided by the cluster, so validation shares no duplicate with training. Shares nothing."""

from __future__ import annotations

from typing import Any

import xxhash

from eyas.corpus.documents import CANDIDATES, DOCUMENTS, REJECTS, TableWriter, read_tables
from eyas.corpus.report.funnel import Tally
from eyas.store import ObjectRef, Store
from eyas.work import Shard, ShardResult, Stage, shard_key

from .exchange import CLUSTER, REMOVED, id_text, read_rows

__all__ = ["run_shard", "split_of"]


def split_of(cluster: str, seed: int, validation_share: float) -> str:
    """ "validation" for this share of clusters, by hash of seed and cluster id; else "train"."""
    draw = xxhash.xxh3_64_intdigest(f"{seed}:{cluster}".encode()) / 2**64
    return "validation" if draw < validation_share else "train"


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Inputs: a candidate file, and its cluster and removed files if it has any. Objects: documents
    and rejects, as far as there are any; counters: documents by split."""
    candidates, *rest = shard.inputs
    clusters, removed = _clusters(store, rest), _removed(store, rest)
    seed, share = stage.settings["seed"], stage.settings["validation_share"]
    name = shard_key(stage, shard)[:16]
    tally = Tally()
    splits = {"train": 0, "validation": 0}
    with TableWriter(DOCUMENTS) as documents, TableWriter(REJECTS) as rejects:
        for table in read_tables(store, candidates, CANDIDATES.names):
            for row in table.to_pylist():
                cluster = clusters.get(row["id"], row["id"])
                if row["id"] in removed:
                    _remove(rejects, tally, row, removed[row["id"]])
                    continue
                if cluster != row["id"]:
                    _reject(rejects, tally, row, cluster)
                    continue
                split = split_of(cluster, seed, share)
                splits[split] += 1
                tally.keep(row["language"], row["bytes"])
                tally.sample("kept", _sample(row))
                documents.append(*(row[c] for c in CANDIDATES.names), cluster, split)
        objects = (
            *documents.finish(store, f"corpus/documents/{name}-00000.parquet"),
            *rejects.finish(store, f"corpus/rejects/{name}-00000.parquet"),
        )
    return ShardResult(objects, {f"documents_{k}": n for k, n in splits.items()}, tally.facts())


def _clusters(store: Store, refs: list[ObjectRef]) -> dict[str, str]:
    return {
        id_text(high, low): id_text(cluster_high, cluster_low)
        for ref in refs
        if ref.key.startswith("corpus/clusters/")
        for high, low, cluster_high, cluster_low in read_rows(store, ref, CLUSTER).tolist()
    }


def _removed(store: Store, refs: list[ObjectRef]) -> dict[str, int]:
    """Id to the number of the record that removes it."""
    return {
        id_text(high, low): number
        for ref in refs
        if ref.key.startswith("corpus/removed/")
        for high, low, number in read_rows(store, ref, REMOVED).tolist()
    }


def _reject(rejects: TableWriter, tally: Tally, row: dict[str, Any], cluster: str) -> None:
    tally.reject("duplicates", "duplicate", row["language"])
    tally.sample("duplicates/duplicate", _sample(row) | {"detail": cluster})
    rejects.append(
        *(row["id"], row["url"], row["language"], "duplicates", "duplicate", None),
        *(row["source"], row["offset"], row["date"], cluster, row["text"]),
    )


def _remove(rejects: TableWriter, tally: Tally, row: dict[str, Any], number: int) -> None:
    tally.reject("removed", "removed", row["language"])
    rejects.append(
        *(row["id"], row["url"], row["language"], "removed", "removed", number),
        *(row["source"], row["offset"], row["date"], "", ""),
    )


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    return {k: row[k] for k in ("id", "url", "language", "text")}
