"""The whole pipeline: the same bytes from any number of workers, nothing twice, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.crawl import SHARED, html_of, member, write_crawl, write_warc
from tests.corpus.curated import ledger, output, recipe, rows
from tests.texts import page

from eyas.corpus import curate, input_files, read_documents
from eyas.corpus.documents import DOCUMENTS, REJECTS, document_id
from eyas.corpus.plan import make_plan
from eyas.corpus.reading.inputs import InputChanged, InputFile, group_files
from eyas.corpus.reading.read import read_pages
from eyas.recipe import Recipe, UsageError
from eyas.store import (
    Corrupt,
    Manifest,
    Store,
    commit_manifest,
    open_store,
    put_object,
    read_manifest,
)
from eyas.work import Engine

ONE = Engine(workers=1)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_crawl(tmp_path_factory.mktemp("crawl"))


@pytest.fixture(scope="module")
def base(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Recipe, Manifest]:
    """One undisturbed run."""
    store = open_store(str(tmp_path_factory.mktemp("base") / "store"))
    keys = recipe(store, crawl, validation_share=0.3)
    return store, keys, curate(keys, store, ONE)


Base = tuple[Store, Recipe, Manifest]


def test_every_page_is_a_document_or_a_reject_exactly_once(base: Base) -> None:
    store, _, manifest = base
    documents, rejects = rows(store, manifest, "documents"), rows(store, manifest, "rejects")
    names = [r["id"] for r in documents + rejects]
    assert len(set(names)) == len(names) == manifest.counters["pages_in"] == 14 + 15 + 4
    assert manifest.counters["documents"] == len(documents)
    assert manifest.counters["broken_records"] == 1
    counted = {k: n for k, n in manifest.counters.items() if k.startswith("rejects_")}
    assert sum(counted.values()) == len(rejects)
    for row in documents + rejects:
        assert row["id"] == document_id(row["source"], row["offset"])


def test_of_every_cluster_exactly_the_lowest_id_stays(base: Base) -> None:
    store, _, manifest = base
    documents, rejects = rows(store, manifest, "documents"), rows(store, manifest, "rejects")
    kept = {r["id"] for r in documents}
    duplicates = [r for r in rejects if r["reason"] == "duplicate"]
    assert len(duplicates) == manifest.counters["duplicates"] == 2 + 4 + 4
    assert len(documents) == 12 + 10
    for row in duplicates:
        assert row["detail"] in kept
        assert row["detail"] < row["id"]
    assert all(r["cluster"] == r["id"] for r in documents)
    english = {
        r["text"].lower().replace("!", ".")[-200:] for r in documents if r["language"] == "en"
    }
    assert len(english) == 12


def test_the_splits_share_no_cluster_and_both_are_there(base: Base) -> None:
    store, _, manifest = base
    splits = {s: list(read_documents(store, manifest, s)) for s in ("train", "validation")}
    clusters = {s: {c for t in ts for c in t["cluster"].to_pylist()} for s, ts in splits.items()}
    assert clusters["train"]
    assert clusters["validation"]
    assert not clusters["train"] & clusters["validation"]
    assert len(clusters["train"]) == manifest.counters["documents_train"]
    assert len(clusters["validation"]) == manifest.counters["documents_validation"]


def test_documents_carry_their_provenance(base: Base, crawl: Path) -> None:
    store, _, manifest = base
    documents = rows(store, manifest, "documents")
    assert {Path(r["source"]).name for r in documents} >= {"b.jsonl"}
    for row in documents:
        assert row["bytes"] == len(row["text"].encode())
        assert row["words"] >= 50
        if row["source"].endswith(".warc.gz"):
            assert row["date"] == "2024-05-01T12:00:00Z"
            start = (crawl / "a.warc.gz").read_bytes()[row["offset"] :]
            assert start.startswith(b"\x1f\x8b")


def test_schemas_are_the_published_ones(base: Base) -> None:
    store, _, manifest = base
    for folder, schema in (("documents", DOCUMENTS), ("rejects", REJECTS)):
        for ref in manifest.under(f"corpus/{folder}/"):
            file = pq.ParquetFile(pa.BufferReader(store.get(ref.key)))
            assert file.schema_arrow.equals(schema)
            assert file.metadata.num_rows == ref.rows > 0
            assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_funnel_adds_up(base: Base) -> None:
    _, _, manifest = base
    funnel = manifest.facts["funnel"]
    assert funnel[0]["in"] == manifest.counters["pages_in"]
    assert funnel[-1]["out"] == manifest.counters["documents"]
    for stage, following in zip(funnel, [*funnel[1:], None], strict=True):
        assert stage["in"] - stage["out"] == sum(stage["reasons"].values())
        assert following is None or following["in"] == stage["out"]
    assert funnel[-1]["languages"] == {"ar": 10, "en": 12}
    assert sum(row["documents"] for row in manifest.facts["languages"].values()) == 22


def test_read_documents_gives_the_columns_asked_for(base: Base) -> None:
    store, _, manifest = base
    (names,) = {tuple(t.column_names) for t in read_documents(store, manifest, "train", ["url"])}
    assert names == ("url",)
    with pytest.raises(UsageError, match="no column txt"):
        next(read_documents(store, manifest, columns=["txt"]))
    with pytest.raises(UsageError, match='no split "test"'):
        next(read_documents(store, manifest, "test"))


def test_a_finished_corpus_is_returned_without_work(base: Base) -> None:
    store, keys, manifest = base
    before = {o.key: o.etag for o in store.list()}
    assert curate(keys, store, Engine(workers=2)) == manifest
    assert {o.key: o.etag for o in store.list()} == before


def test_any_number_of_workers_writes_the_same_bytes(base: Base, tmp_path: Path) -> None:
    first, keys, _ = base
    second = open_store(str(tmp_path / "two"))
    curate(keys, second, Engine(workers=2))
    assert output(first) == output(second)


def test_a_run_killed_in_the_middle_is_finished_by_the_next(base: Base, tmp_path: Path) -> None:
    whole, keys, _ = base
    store = open_store(str(tmp_path / "killed"))
    path = tmp_path / "recipe.toml"
    path.write_text(keys.to_toml())
    script = (
        "import sys; from eyas.recipe import Recipe; from eyas.store import open_store\n"
        "from eyas.corpus import curate; from eyas.work import Engine\n"
        "curate(Recipe.load(sys.argv[1]), open_store(sys.argv[2]), Engine(workers=1))"
    )
    command = [sys.executable, "-c", script, str(path), store.url]
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None and not ledger(store, "extract"):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = ledger(store, "extract")
    assert done
    assert read_manifest(store, "corpus") is None
    kept = {key: store.get(key) for key in done}
    curate(keys, store, Engine(workers=2))
    assert {key: store.get(key) for key in done} == kept
    assert output(store) == output(whole)


def test_a_new_input_file_is_read_and_the_others_are_not(
    base: Base, crawl: Path, tmp_path: Path
) -> None:
    whole, _, _ = base
    sources = [crawl / "b.jsonl", crawl / "html"]
    store = open_store(str(tmp_path / "grown"))
    first = curate(recipe(store, *sources, validation_share=0.3), store, ONE)
    before = {stage: ledger(store, stage) for stage in ("extract", "write")}
    second = curate(recipe(store, *sources, crawl / "a.warc.gz", validation_share=0.3), store, ONE)
    assert second.version == first.version + 1
    assert len(ledger(store, "extract") - before["extract"]) == 1
    assert before["extract"] < ledger(store, "extract")
    found = {r["id"]: r for r in rows(store, second, "documents")}
    assert found == {r["id"]: r for r in rows(whole, base[2], "documents")}
    assert first.counters["documents"] < second.counters["documents"]


def test_another_seed_writes_documents_again_and_reads_no_page(
    base: Base, crawl: Path, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "seed"))
    curate(recipe(store, crawl / "b.jsonl"), store, ONE)
    before = ledger(store, "extract")
    one = read_manifest(store, "corpus")
    two = curate(recipe(store, crawl / "b.jsonl", seed=2), store, ONE)
    assert one is not None
    assert ledger(store, "extract") == before
    assert one.identity != two.identity
    assert [o.key for o in one.objects] != [o.key for o in two.objects]


@pytest.mark.parametrize(
    "change",
    [
        {"extractor": "resiliparse"},
        {"languages": ["ar"]},
        {"language_threshold": 0.5},
        {"dedup_shingle": 4},
        {"max_page_bytes": 5000},
        {"preset": "gopher"},
        {"gopher": {"min_words": 30}},
        {"url": {"exclude_curated": False}},
        {"text_field": "body"},
    ],
    ids=str,
)
def test_a_changed_key_is_another_corpus(base: Base, crawl: Path, change: dict[str, Any]) -> None:
    store, keys, manifest = base
    other = recipe(store, crawl, validation_share=0.3, **change)
    assert make_plan(keys, store).identity == manifest.identity
    assert make_plan(other, store).identity != manifest.identity


def test_a_pattern_names_the_files_that_match_it(folder_store: Store, tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.html", "deep/d.jsonl"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("{}")
    found = input_files(recipe(folder_store, tmp_path / "in" / "*.jsonl"), folder_store, None)
    assert [Path(f.key).name for f in found] == ["a.jsonl", "b.jsonl"]
    found = input_files(recipe(folder_store, tmp_path / "in/**/*.jsonl"), folder_store, None)
    assert [Path(f.key).name for f in found] == ["a.jsonl", "b.jsonl", "d.jsonl"]
    with pytest.raises(UsageError, match="there is no file or folder"):
        input_files(recipe(folder_store, tmp_path / "in" / "*.warc"), folder_store, None)


def test_packed_sources_are_read_from_the_store(store: Store, tmp_path: Path) -> None:
    keys = recipe(store, "apt:some-doc")
    with pytest.raises(UsageError, match="apt:some-doc"):
        curate(keys, store)
    path = write_warc(
        tmp_path / "p.warc.gz", [(f"http://d/{n}", html_of(page(n))) for n in range(3)]
    )
    ref = put_object(store, "sources/0123-some-doc-0.warc.gz", path.read_bytes(), 3)
    commit_manifest(store, Manifest("sources", "0123", objects=(ref,)))
    manifest = curate(keys, store, ONE)
    assert manifest.counters["documents"] == 3
    assert manifest.inputs == (ref,)
    (table,) = read_documents(store, manifest)
    assert set(table["source"].to_pylist()) == {ref.key}
    assert sorted(table["url"].to_pylist()) == ["http://d/0", "http://d/1", "http://d/2"]


def test_packages_of_another_recipe_are_not_taken(folder_store: Store) -> None:
    facts = {"request": {"sources": ["apt:some-doc"]}}
    commit_manifest(folder_store, Manifest("sources", "0123", facts=facts))
    with pytest.raises(UsageError, match="apt:some-doc"):
        curate(recipe(folder_store, "apt:other-doc"), folder_store)


def test_files_in_a_bucket_are_read_and_a_missing_one_is_named(
    s3_store: Store, folder_store: Store
) -> None:
    s3_store.put("crawl/a.warc.gz", member(1))
    s3_store.put("crawl/b.warc.gz", member(2))
    s3_store.put("crawl/notes.txt", b"")
    keys = recipe(folder_store, f"{s3_store.url}/crawl")
    found = input_files(keys, folder_store, None)
    assert [f.key for f in found] == [f"{s3_store.url}/crawl/{n}.warc.gz" for n in "ab"]
    assert all(f.etag for f in found)
    assert curate(keys, folder_store, ONE).counters["documents"] == 2
    with pytest.raises(UsageError, match="crawl/none"):
        input_files(recipe(folder_store, f"{s3_store.url}/crawl/none"), folder_store, None)


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_file_in_a_bucket_that_changed_since_it_was_listed_is_an_error_naming_it(
    s3_store: Store, folder_store: Store, change: str
) -> None:
    s3_store.put("a.jsonl", b'{"text": "one"}\n')
    (listed,) = input_files(recipe(folder_store, f"{s3_store.url}/a.jsonl"), folder_store, None)
    assert len(list(read_pages(folder_store, listed, 1000))) == 1
    if change == "replaced":
        s3_store.put("a.jsonl", b'{"text": "two"}\n')
    else:
        s3_store.delete(["a.jsonl"])
    with pytest.raises(InputChanged, match=r"a\.jsonl changed"):
        list(read_pages(folder_store, listed, 1000))


@pytest.mark.parametrize("change", ["other bytes", "gone"])
def test_a_local_file_that_changed_since_it_was_listed_is_an_error_naming_it(
    folder_store: Store, tmp_path: Path, change: str
) -> None:
    """Else the work on other bytes would be recorded as that on these, for good."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n')
    (listed,) = input_files(recipe(folder_store, path), folder_store, None)
    assert len(list(read_pages(folder_store, listed, 1000))) == 1
    if change == "gone":
        path.unlink()
    else:
        path.write_text('{"text": "two"}\n')
    with pytest.raises(InputChanged, match=r"a\.jsonl"):
        list(read_pages(folder_store, listed, 1000))


def test_empty_files_make_an_empty_corpus(folder_store: Store, tmp_path: Path) -> None:
    for name in ("a.warc.gz", "b.jsonl", "c.html"):
        (tmp_path / name).write_bytes(b"")
    keys = recipe(folder_store, *(tmp_path / n for n in ("a.warc.gz", "b.jsonl", "c.html")))
    manifest = curate(keys, folder_store, ONE)
    assert manifest.counters["documents"] == 0
    assert manifest.counters["rejects_no_text"] == 1
    assert list(read_documents(folder_store, manifest)) == []
    assert manifest.facts["funnel"][-1]["out"] == 0


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        (["missing.warc.gz"], "missing.warc.gz"),
        (["notes.txt"], "notes.txt"),
        (["empty"], "empty"),
        (["names"], r"bad\\xff\.html.* is not UTF-8"),
        ([], "no page source"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_naming_it(
    folder_store: Store, tmp_path: Path, sources: list[str], named: str
) -> None:
    (tmp_path / "notes.txt").write_text("no pages")
    (tmp_path / "empty").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / os.fsdecode(b"bad\xff.html")).write_text("<p>page")
    with pytest.raises(UsageError, match=named):
        curate(recipe(folder_store, *(tmp_path / s for s in sources)), folder_store)


def test_an_empty_source_is_not_the_current_folder(
    folder_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private.html").write_text("<p>page")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="names nothing"):
        curate(recipe(folder_store, ""), folder_store)


def test_a_language_that_nothing_detects_is_refused(folder_store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>page")
    keys = recipe(folder_store, tmp_path / "a.html", languages=["en", "english"])
    with pytest.raises(UsageError, match=r"corpus\.languages: .*english; write"):
        curate(keys, folder_store)


def test_a_new_html_file_changes_one_group_only() -> None:
    files = [InputFile(f"site/{n:05d}.html", "html", "path", 1, "0") for n in range(6000)]
    new = InputFile("site/03000a.html", "html", "path", 1, "0")
    groups = list(group_files(files))
    grown = list(group_files(sorted([*files, new], key=lambda f: f.key)))
    assert [f for g in groups for f in g] == files
    assert 3 <= len(groups) <= 60
    assert len(set(grown) - set(groups)) in (1, 2)


def test_a_damaged_document_file_is_noticed(base: Base, tmp_path: Path) -> None:
    source, _, manifest = base
    store = open_store(str(tmp_path / "damaged"))
    for ref in manifest.under("corpus/documents/"):
        data = bytearray(source.get(ref.key))
        data[len(data) // 2] ^= 1
        store.put(ref.key, bytes(data))
    with pytest.raises(Corrupt, match=r"corpus/documents/"):
        list(read_documents(store, manifest))


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real crawl files are not at {SHARED}")
def test_real_crawl_files_sound_and_broken(folder_store: Store) -> None:
    manifest = curate(
        recipe(folder_store, SHARED, extractor="resiliparse"), folder_store, Engine(workers=2)
    )
    rejects = rows(folder_store, manifest, "rejects")
    documents = rows(folder_store, manifest, "documents")
    assert manifest.counters["pages_in"] == len(documents) + len(rejects)
    assert manifest.counters["broken_records"] == 5
    broken = {Path(r["source"]).name for r in rejects if r["reason"] in ("broken", "truncated")}
    assert broken == {"resi-clipped.warc.gz", "warcio-bad.arc", "warcio-example-trunc.warc"}
    assert len(documents) > 10
