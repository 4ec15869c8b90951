"""The largest clusters are shown with their document, but nothing that was removed."""

from __future__ import annotations

from typing import Any

import pytest

from eyas.corpus.documents import CANDIDATES, TableWriter
from eyas.corpus.report.heads import with_heads
from eyas.store import ObjectRef, Store


def candidates(store: Store, number: int) -> ObjectRef:
    with TableWriter(CANDIDATES) as out:
        for n in range(5000):
            url, text = f"https://x.test/{number}/{n}", f"text {n} " * 50
            out.append(f"{number}-{n}", url, text, "en", 0.9, "s", n, "", 100, len(text))
        (ref,) = out.finish(store, f"corpus/candidates/{number}.parquet")
    return ref


def test_heads_of_the_largest_clusters(folder_store: Store) -> None:
    refs = [candidates(folder_store, number) for number in range(2)]
    clusters: dict[str, Any] = {
        "clusters": 3,
        "sizes": [],
        "largest": [
            {"cluster": "1-4999", "documents": 9, "shard": 1},
            {"cluster": "0-7", "documents": 5, "shard": 0},
            {"cluster": "0-8", "documents": 4, "shard": 0},
        ],
    }
    shown = with_heads(folder_store, clusters, refs, hidden=lambda url: url.endswith("/8"))
    first, second, third = shown["largest"]
    assert first == {
        "cluster": "1-4999",
        "documents": 9,
        "url": "https://x.test/1/4999",
        "text": ("text 4999 " * 50)[:200],
    }
    assert second["url"] == "https://x.test/0/7"
    assert third == {"cluster": "0-8", "documents": 4}
    assert shown["clusters"] == 3


def test_a_cluster_in_the_wrong_object_is_a_fault_of_ours(folder_store: Store) -> None:
    row = {"cluster": "1-3", "documents": 2, "shard": 0}
    with pytest.raises(AssertionError, match="does not hold 1-3"):
        with_heads(folder_store, {"largest": [row]}, [candidates(folder_store, 0)], lambda _: False)
