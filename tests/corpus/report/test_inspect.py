"""Documents are found by every name that they go by, and a name that is not there is an error."""

from __future__ import annotations

from typing import Any

import pytest
from tests.corpus.report import made, stored

from eyas.corpus.documents import DOCUMENTS, REJECTS
from eyas.corpus.report.inspect import Query, inspect_documents
from eyas.recipe import UsageError
from eyas.store import Corrupt, Manifest, Store, open_store


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    store = open_store(str(tmp_path_factory.mktemp("corpus") / "store"))
    return store, stored.commit(store, made.recipe(), [range(200), range(200, 400)])


def found(corpus: tuple[Store, Manifest], limit: int = 1000, **query: Any) -> list[dict[str, Any]]:
    return inspect_documents(*corpus, Query(**query), limit)


def test_everything_is_kept_or_dropped_once(corpus: tuple[Store, Manifest]) -> None:
    rows = found(corpus)
    assert len({row["id"] for row in rows}) == len(rows) == 400
    kept = [row for row in rows if row["kept"]]
    assert len(kept) == corpus[1].counters["documents"]
    assert kept[0].keys() == {*DOCUMENTS.names, "kept"}
    assert rows[-1].keys() == {*REJECTS.names, "kept"}
    assert found(corpus, dropped=False) == kept
    assert found(corpus, kept=False) == rows[len(kept) :]


def test_the_limit_holds_for_each_kind(corpus: tuple[Store, Manifest]) -> None:
    rows = found(corpus, limit=3)
    assert [row["kept"] for row in rows] == [True] * 3 + [False] * 3
    assert found(corpus, limit=0) == []


def test_by_stage_reason_language_source_and_url(corpus: tuple[Store, Manifest]) -> None:
    funnel = {row["stage"]: row["reasons"] for row in corpus[1].facts["funnel"]}
    for stage, reasons in funnel.items():
        assert len(found(corpus, stage=stage)) == sum(reasons.values())
        for reason, n in reasons.items():
            rows = found(corpus, stage=stage, reason=reason)
            assert len(rows) == n
            assert not any(row["kept"] for row in rows)
    arabic = found(corpus, language="ar")
    assert {row["language"] for row in arabic} == {"ar"}
    assert len(arabic) == 80
    assert len(found(corpus, source="PART-1.warc")) == 200
    assert {row["url"] for row in found(corpus, url="DE.test/17")} == {
        f"https://de.test/{n}" for n in (17, 172, 177)
    }


def test_rows_are_whole_also_when_the_first_matches_are_far_behind(
    corpus: tuple[Store, Manifest],
) -> None:
    (row,) = found(corpus, url="sw.test/399")
    assert row["text"].startswith("page 399")
    assert row["source"] == "crawl/part-1.warc.gz"
    assert row["offset"] == 399


def test_nothing_like_that_is_an_empty_answer(corpus: tuple[Store, Manifest]) -> None:
    assert found(corpus, url="nowhere") == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"stage": "c5"}, 'there is no stage "c5"; this corpus has read, url'),
        ({"reason": "too_few"}, 'nothing was dropped for "too_few"'),
        ({"stage": "read", "reason": "top_2_gram"}, 'for "top_2_gram" in read; reasons are none'),
        ({"language": "fi"}, 'no page was labelled "fi"; this corpus has ar, de'),
        ({"stage": "gopher", "dropped": False}, "leave --kept out"),
    ],
)
def test_a_name_that_is_not_there(
    corpus: tuple[Store, Manifest], query: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        found(corpus, **query)
    assert said in str(error.value)


def test_damage_is_said(folder_store: Store) -> None:
    manifest = stored.commit(folder_store, made.recipe(), [range(100)])
    (ref,) = manifest.under("corpus/documents/")
    data = bytearray(folder_store.get(ref.key))
    data[len(data) // 3] ^= 1
    folder_store.put(ref.key, bytes(data))
    with pytest.raises(Corrupt):
        inspect_documents(folder_store, manifest, Query(), 5)
