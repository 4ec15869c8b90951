"""The documents that stay of the largest clusters, to look at: which page is on a thousand sites?

In: the facts of the cluster stage and the candidates; out: the same facts, the largest clusters
with URL and beginning of the document that stays. Each cluster names the object that holds it, so
at most one object a cluster is read, and its texts only as far as the document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from eyas.corpus.documents import read_columns
from eyas.store import ObjectRef, Store

__all__ = ["with_heads"]

_EXCERPT = 200


def with_heads(
    store: Store,
    clusters: Mapping[str, Any],
    candidates: Sequence[ObjectRef],
    hidden: Callable[[str], bool],
) -> dict[str, Any]:
    """`clusters` with `url` and `text` in each of `largest`; none for a URL that is `hidden`, being
    removed. Raises Corrupt."""
    largest = []
    for row in clusters["largest"]:
        url, text = _head(store, candidates[row["shard"]], row["cluster"])
        shown = {} if hidden(url) else {"url": url, "text": text[:_EXCERPT]}
        largest.append({"cluster": row["cluster"], "documents": row["documents"]} | shown)
    return dict(clusters) | {"largest": largest}


def _head(store: Store, ref: ObjectRef, name: str) -> tuple[str, str]:
    for table in read_columns(store, ref, ["id", "url", "text"]):
        found = table.filter(pc.equal(table["id"], name))
        if found.num_rows:
            return str(found["url"][0]), str(found["text"][0])
    raise AssertionError(f"{ref.key} does not hold {name}, the lowest of its cluster")
