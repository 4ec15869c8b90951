"""Stage `corpus.remove`: which documents of one object are to be taken out; shares nothing.

Inputs: a candidates or rejects object, and the removals. Of candidates it writes the ids that are
named, for `corpus.write` to leave out; rejects are written again with the texts of the named ones
left empty. Without a hit nothing is written, and nothing after this stage runs again. Objects are
named by their content, so that what an earlier removal found is not written again for every later
one. Only the columns `id` and `url` are read to find that out.
"""

from __future__ import annotations

import numpy as np
import xxhash

from eyas.corpus.documents import REJECTS, TableWriter, read_columns, read_tables
from eyas.corpus.removals import Removals, load_removals
from eyas.store import ObjectRef, Store
from eyas.work import Shard, ShardResult, Stage

from .exchange import REMOVED, put_rows, split_id

__all__ = ["run_shard"]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Objects: the removed ids, or the rejects again, if anything of the object is named."""
    source, listed = shard.inputs
    removals = load_removals(store, listed)
    hits = _hits(store, source, removals)
    if not hits:
        return ShardResult(())
    if source.key.startswith("corpus/rejects/"):
        objects = _without_text(store, source, hits)
    else:
        objects = (_put_ids(store, hits),)
    return ShardResult(objects, {"removed": len(hits)})


def _hits(store: Store, source: ObjectRef, removals: Removals) -> dict[str, int]:
    """Id to the number of the record that removes it."""
    found = {}
    for table in read_columns(store, source, ["id", "url"]):
        numbers = map(removals.number, table["url"].to_pylist())
        pairs = zip(table["id"].to_pylist(), numbers, strict=True)
        found.update({name: number for name, number in pairs if number})
    return found


def _put_ids(store: Store, hits: dict[str, int]) -> ObjectRef:
    rows = np.zeros(len(hits), dtype=REMOVED)
    for row, (name, number) in zip(rows, sorted(hits.items()), strict=True):
        row["high"], row["low"] = split_id(name)
        row["number"] = number
    name = xxhash.xxh3_128_hexdigest(rows.tobytes())
    return put_rows(store, f"corpus/removed/{name}.bin", rows)


def _without_text(store: Store, source: ObjectRef, hits: dict[str, int]) -> tuple[ObjectRef, ...]:
    with TableWriter(REJECTS) as rejects:
        for table in read_tables(store, source, REJECTS.names):
            for row in table.to_pylist():
                text = "" if row["id"] in hits else row["text"]
                rejects.append(*(row | {"text": text}).values())
        return rejects.finish(store, "corpus/rejects/")
