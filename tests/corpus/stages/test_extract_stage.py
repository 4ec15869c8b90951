"""Every page is a text or a reject, with where it came from, and a verdict stays."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.crawl import html_of, record, response, write_warc
from tests.corpus.steps.hostile import many
from tests.texts import page, write_jsonl

from eyas.corpus.documents import REJECTS, TEXTS, document_id, read_tables
from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.stages import extract_stage
from eyas.corpus.stages.extract_stage import run_shard
from eyas.corpus.steps.extract import Extracted
from eyas.store import Store
from eyas.work import Engine, Refusal, Shard, ShardResult, Stage, Workers, run_stage

URLS = {
    "domains": None,
    "curated": ["wikipedia.org"],
    "strict": ["badword"],
    "hard": [],
    "soft": [],
    "max_soft_words": 1,
}


def stage(**settings: Any) -> Stage:
    usual = {
        "extractor": "resiliparse",
        "max_page_bytes": 1 << 20,
        "max_page_nodes": 50_000,
        "page_seconds": 60,
        "text_field": "text",
        "url": URLS,
    }
    return Stage(
        "corpus.extract", 2, "eyas.corpus.stages.extract_stage:run_shard", usual | settings
    )


def shard_of(*paths: Path) -> Shard:
    kinds = {".gz": "warc", ".jsonl": "jsonl"}
    files = [InputFile(str(p), kinds[p.suffix], "path", p.stat().st_size) for p in paths]
    return Shard("a shard", (), {"files": [asdict(f) for f in files]})


def crawl(path: Path, pages: Sequence[tuple[str, bytes]]) -> Path:
    """A .warc.gz of these pages, of one answer 404 and of one damaged record."""
    write_warc(path, pages)
    missing = record("http://x/404", b"HTTP/1.1 404 Not Found\r\n\r\n<html>")
    short = record("http://x/short", response(html_of(page(9))), lie=500)
    path.write_bytes(path.read_bytes() + gzip.compress(missing) + gzip.compress(short))
    return path


def rows(store: Store, result: ShardResult, folder: str) -> list[dict[str, Any]]:
    schema = {"texts": TEXTS, "rejects": REJECTS}[folder]
    found: list[dict[str, Any]] = []
    for ref in result.objects:
        if ref.key.startswith(f"corpus/{folder}/"):
            for table in read_tables(store, ref):
                assert table.schema.equals(schema)
                found += table.to_pylist()
    return found


PAGES = [
    ("http://x/en", html_of(page(1))),
    ("http://x/ar", html_of(page(2, "ar"))),
    ("http://en.wikipedia.org/wiki/X", html_of(page(3))),
    ("http://x/bad-word", html_of(page(4))),
    ("http://x/empty", b"<html><body></body></html>"),
    ("http://x/nodes", b"<br>" * 60_000),
]


def test_every_page_is_a_text_or_a_reject_with_its_provenance(
    folder_store: Store, tmp_path: Path
) -> None:
    path = crawl(tmp_path / "a.warc.gz", PAGES)
    result = run_shard(folder_store, stage(), shard_of(path))
    texts, rejects = rows(folder_store, result, "texts"), rows(folder_store, result, "rejects")
    assert [(t["url"], t["language"]) for t in texts] == [
        ("http://x/en", "en"),
        ("http://x/ar", "ar"),
    ]
    for text in texts:
        assert text["id"] == document_id(str(path), text["offset"])
        assert (text["source"], text["date"]) == (str(path), "2024-05-01T12:00:00Z")
        assert text["language_score"] > 0.65
    assert page(1).split("\n\n")[0] in texts[0]["text"]
    assert [(r["url"], r["stage"], r["reason"], r["value"]) for r in rejects] == [
        ("http://en.wikipedia.org/wiki/X", "url", "curated_source", None),
        ("http://x/bad-word", "url", "strict_word", None),
        ("http://x/empty", "extract", "no_text", 26.0),
        ("http://x/nodes", "extract", "too_many_nodes", 60_000.0),
        ("http://x/404", "read", "http_status", 404.0),
        ("http://x/short", "read", "truncated", None),
    ]
    assert [r["detail"] for r in rejects[:2]] == ["wikipedia.org", "badword"]
    assert result.counters["pages"] == result.facts["pages"] == len(texts) + len(rejects)
    assert sum(n for *_, n in result.facts["rejects"]) == len(rejects)


def test_a_page_of_a_blocked_address_is_never_decoded(
    folder_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def spy(found: Any, *_: Any) -> Extracted:
        seen.append(found.url)
        return Extracted("a text")

    monkeypatch.setattr(extract_stage, "extract_page", spy)
    run_shard(folder_store, stage(), shard_of(write_warc(tmp_path / "a.warc.gz", PAGES)))
    assert seen == [url for url, _ in PAGES if url not in (PAGES[2][0], PAGES[3][0])]


def test_without_a_url_filter_no_address_is_refused(folder_store: Store, tmp_path: Path) -> None:
    shard = shard_of(write_warc(tmp_path / "a.warc.gz", PAGES[:4]))
    assert len(rows(folder_store, run_shard(folder_store, stage(url=None), shard), "texts")) == 4


def test_several_files_of_a_shard_and_plain_text(folder_store: Store, tmp_path: Path) -> None:
    shard = shard_of(
        write_jsonl(tmp_path / "a.jsonl", 3), write_warc(tmp_path / "b.warc.gz", PAGES[:1])
    )
    texts = rows(folder_store, run_shard(folder_store, stage(), shard), "texts")
    assert [t["text"] for t in texts[:3]] == [page(n) for n in range(3)]
    assert {Path(t["source"]).name for t in texts} == {"a.jsonl", "b.warc.gz"}


@pytest.mark.parametrize("extractor", ["resiliparse", "trafilatura"])
def test_the_same_bytes_come_out_again(folder_store: Store, tmp_path: Path, extractor: str) -> None:
    shard = shard_of(crawl(tmp_path / "a.warc.gz", PAGES))
    first = run_shard(folder_store, stage(extractor=extractor), shard)
    bytes_of = {o.key: folder_store.get(o.key) for o in first.objects}
    folder_store.delete(list(bytes_of))
    again = run_shard(folder_store, stage(extractor=extractor), shard)
    assert again == first
    assert {o.key: folder_store.get(o.key) for o in again.objects} == bytes_of


def test_a_standing_refusal_is_repeated_with_its_document(
    folder_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_warc(tmp_path / "a.warc.gz", PAGES[:2])
    first = rows(folder_store, run_shard(folder_store, stage(), shard_of(path)), "texts")[0]
    standing = {first["id"]: Refusal("ran_away", 60.0, "past 60 CPU seconds")}
    monkeypatch.setattr(extract_stage, "refusals", lambda *_: standing)
    result = run_shard(folder_store, stage(), shard_of(path))
    (reject,) = rows(folder_store, result, "rejects")
    assert (reject["id"], reject["stage"], reject["reason"], reject["value"]) == (
        first["id"],
        "extract",
        "ran_away",
        60.0,
    )
    assert [t["url"] for t in rows(folder_store, result, "texts")] == ["http://x/ar"]


@pytest.mark.slow
def test_a_page_that_runs_away_is_killed_and_stays_refused(
    folder_store: Store, tmp_path: Path
) -> None:
    """Within the limits but far over the CPU seconds: the worker dies, the page is refused, all
    others are there; another run finds the same without another death."""
    heavy = ("http://x/heavy", many("<pre>x</pre>", 12 * 45_000).encode())
    path = write_warc(tmp_path / "a.warc.gz", [PAGES[0], heavy, PAGES[1]])
    eager = stage(extractor="trafilatura", page_seconds=0.3)
    with Workers(folder_store, Engine(workers=1)) as workers:
        (result,) = run_stage(workers, eager, [shard_of(path)])
    assert result is not None
    (reject,) = rows(folder_store, result, "rejects")
    assert (reject["url"], reject["reason"], reject["value"]) == (heavy[0], "ran_away", 0.3)
    assert [t["url"] for t in rows(folder_store, result, "texts")] == ["http://x/en", "http://x/ar"]
    again = run_shard(folder_store, eager, shard_of(path))
    assert again.objects == result.objects
