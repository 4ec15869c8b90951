"""Documents taken out by URL or domain: gone for good, with a record, without the sources."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.crawl import html_of, write_warc
from tests.corpus.curated import ledger, recipe, rows
from tests.texts import page, write_jsonl

from eyas.corpus import curate, remove_documents
from eyas.corpus.removals import Removals, read_removals, record_removal
from eyas.recipe import EyasError, UsageError
from eyas.store import Store, manifest_versions, open_store, unseal, verify
from eyas.work import Engine

ONE = Engine(workers=1)
curate_module = importlib.import_module("eyas.corpus.curate")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with crawl files and the store of a corpus of them: two WARC files of four pages, of
    which one stands in both, and Arabic lines."""
    folder = tmp_path_factory.mktemp("removals")
    crawl = folder / "crawl"
    crawl.mkdir()
    first = [(f"http://one.test/{n}", html_of(page(n))) for n in range(4)]
    second = [(f"https://www.two.test/{n}", html_of(page(n))) for n in (0, 10, 11)]
    write_warc(crawl / "a.warc.gz", first)
    write_warc(crawl / "b.warc.gz", [*second, ("https://two.test/short", html_of("Few words."))])
    write_jsonl(crawl / "c.jsonl", 3, "ar")
    store = open_store(str(folder / "store"))
    curate(recipe(store, crawl), store, ONE)
    return crawl, folder / "store"


@pytest.fixture
def corpus(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Store]:
    """A copy of the crawl (which a test may delete) and of the store."""
    crawl, whole = made
    shutil.copytree(whole, tmp_path / "store")
    return crawl, open_store(str(tmp_path / "store"))


Corpus = tuple[Path, Store]


def test_a_url_and_a_domain_are_taken_out_with_a_record(corpus: Corpus) -> None:
    _, store = corpus
    manifest = remove_documents(store, ["https://one.test/2/#top"], ["two.test"], "asked", ONE)
    urls = {r["url"] for r in rows(store, manifest, "documents")}
    assert "http://one.test/2" not in urls
    assert "http://one.test/3" in urls
    assert not [u for u in urls if "two.test" in u]
    removed = [r for r in rows(store, manifest, "rejects") if r["stage"] == "removed"]
    assert {r["url"] for r in removed} >= {"http://one.test/2", "https://www.two.test/10"}
    assert {(r["reason"], r["value"], r["text"]) for r in removed} == {("removed", 1.0, "")}
    assert manifest.counters["removed"] == len(removed) == 4
    assert [row["stage"] for row in manifest.facts["funnel"][-2:]] == ["removed", "duplicates"]
    assert manifest.facts["funnel"][-1]["out"] == manifest.counters["documents"] == len(urls)
    record = unseal(store, "", store.get("corpus/removals/000001.json"))
    assert (record["why"], record["urls"]) == ("asked", ["https://one.test/2/#top"])
    assert not verify(store).problems


def test_no_text_of_a_removed_page_is_left_in_what_the_manifest_names(corpus: Corpus) -> None:
    _, store = corpus
    manifest = remove_documents(store, [], ["two.test"], "asked", ONE)
    named = [store.get(o.key) for o in manifest.under("corpus/report-")]
    assert all(b"two.test" not in data for data in named)
    for row in rows(store, manifest, "rejects"):
        assert not ("two.test" in row["url"] and row["text"])
    short = [r for r in rows(store, manifest, "rejects") if r["url"].endswith("/short")]
    assert [r["stage"] for r in short] != ["removed"], "it was dropped before, and says so"


def test_only_what_holds_a_removed_document_is_written_again(corpus: Corpus) -> None:
    crawl, store = corpus
    before = {stage: ledger(store, stage) for stage in ("extract", "filter", "bands", "write")}
    first = rows(store, curate(recipe(store, crawl), store, ONE), "documents")
    manifest = remove_documents(store, ["http://one.test/3"], [], "asked", ONE)
    for stage in ("extract", "filter", "bands"):
        assert ledger(store, stage) == before[stage]
    assert len(ledger(store, "write") - before["write"]) == 1
    after = rows(store, manifest, "documents")
    assert [r for r in first if r["url"] != "http://one.test/3"] == after


def test_a_later_removal_does_not_write_again_what_an_earlier_one_did(corpus: Corpus) -> None:
    _, store = corpus
    remove_documents(store, ["http://one.test/3", "https://two.test/short"], [], "one", ONE)
    before = ledger(store, "write")
    rejects = {o.key for o in store.list("corpus/rejects/")}
    manifest = remove_documents(store, ["https://www.two.test/10"], [], "two", ONE)
    assert len(ledger(store, "write") - before) == 1
    assert len({o.key for o in store.list("corpus/rejects/")} - rejects) == 1, "of corpus.write"
    assert manifest.counters["removed"] == 2


def test_the_sources_are_not_needed(made: tuple[Path, Path], tmp_path: Path) -> None:
    crawl = shutil.copytree(made[0], tmp_path / "crawl")
    store = open_store(str(tmp_path / "store"))
    first = curate(recipe(store, crawl), store, ONE)
    shutil.rmtree(crawl)
    second = remove_documents(store, ["http://one.test/3"], [], "asked", ONE)
    assert second.counters["documents"] == first.counters["documents"] - 1
    assert second.version == first.version + 1


def test_a_later_run_of_the_recipe_does_not_bring_it_back(corpus: Corpus) -> None:
    crawl, store = corpus
    removed = remove_documents(store, ["http://one.test/3"], [], "asked", ONE)
    assert curate(recipe(store, crawl), store, ONE) == removed
    assert manifest_versions(store, "corpus")[-1] == removed.version
    other = curate(recipe(store, crawl, seed=2), store, ONE)
    assert other.counters["removed"] == 1
    assert "http://one.test/3" not in {r["url"] for r in rows(store, other, "documents")}


def test_the_duplicates_of_a_removed_document_do_not_come_back(corpus: Corpus) -> None:
    crawl, store = corpus
    manifest = curate(recipe(store, crawl), store, ONE)
    copies = {"http://one.test/0", "https://www.two.test/0"}
    (stayed,) = copies & {r["url"] for r in rows(store, manifest, "documents")}
    manifest = remove_documents(store, [stayed], [], "asked", ONE)
    assert not copies & {r["url"] for r in rows(store, manifest, "documents")}


def test_two_removals_add_up(corpus: Corpus) -> None:
    crawl, store = corpus
    before = curate(recipe(store, crawl), store, ONE)
    remove_documents(store, ["http://one.test/1"], [], "first", ONE)
    manifest = remove_documents(store, ["http://one.test/2"], [], "second", ONE)
    assert manifest.counters["documents"] == before.counters["documents"] - 2
    removed = [r for r in rows(store, manifest, "rejects") if r["stage"] == "removed"]
    assert sorted((r["url"], r["value"]) for r in removed) == [
        ("http://one.test/1", 1.0),
        ("http://one.test/2", 2.0),
    ]
    assert manifest_versions(store, "corpus")[-1] == 3


def test_a_removal_that_hits_nothing_is_kept_for_what_comes_later(corpus: Corpus) -> None:
    crawl, store = corpus
    before = curate(recipe(store, crawl), store, ONE)
    manifest = remove_documents(store, [], ["elsewhere.test"], "asked", ONE)
    assert manifest.under("corpus/documents/") == before.under("corpus/documents/")
    assert manifest.counters["removed"] == 0
    write_jsonl(crawl.parent / "d.jsonl", 1, "elsewhere")
    later = curate(recipe(store, crawl, crawl.parent / "d.jsonl"), store, ONE)
    assert not [r for r in rows(store, later, "documents") if "elsewhere" in r["url"]]


def test_a_run_that_ends_after_its_record_is_finished_by_the_next(corpus: Corpus) -> None:
    crawl, store = corpus
    record_removal(store, ["http://one.test/3"], [], "asked")
    manifest = curate(recipe(store, crawl), store, ONE)
    assert manifest.counters["removed"] == 1


def test_forcing_the_corpus_keeps_the_removals(corpus: Corpus) -> None:
    from eyas.cli.stages import forget

    crawl, store = corpus
    remove_documents(store, ["http://one.test/3"], [], "asked", ONE)
    forget(store, "corpus")
    assert curate(recipe(store, crawl), store, ONE).counters["removed"] == 1


@pytest.mark.parametrize(
    ("urls", "domains", "why", "named"),
    [
        ([], [], "asked", "nothing to remove"),
        (["http://one.test/1"], [], " ", "needs its reason"),
        ([], ["two words.test"], "asked", '"two words.test" is no domain'),
    ],
)
def test_a_removal_that_says_too_little_is_refused(
    folder_store: Store, urls: list[str], domains: list[str], why: str, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        record_removal(folder_store, urls, domains, why)
    assert not list(folder_store.list())


def test_without_a_corpus_there_is_nothing_to_remove_from(folder_store: Store) -> None:
    with pytest.raises(EyasError, match="holds no corpus"):
        remove_documents(folder_store, ["http://one.test/1"], [], "asked", ONE)
    assert not list(folder_store.list())


def test_records_are_numbered_and_never_changed(folder_store: Store) -> None:
    assert record_removal(folder_store, ["http://b/"], ["HTTPS://Example.ORG/"], "one") == 1
    assert record_removal(folder_store, ["http://b"], ["sub.example.org"], "two") == 2
    removals = read_removals(folder_store)
    assert removals.urls == {"b": 1}
    assert removals.domains == {"example.org": 1, "sub.example.org": 2}


_HOSTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)


@given(_HOSTS, _HOSTS)
def test_a_domain_takes_out_exactly_itself_and_what_is_below(domain: str, host: str) -> None:
    removals = Removals(domains={domain: 1})
    below = host == domain or host.endswith(f".{domain}")
    for url in (f"http://{host}/x", f"https://user@{host.upper()}:8080/?q", f"http://{host}./"):
        assert bool(removals.number(url)) == below


@pytest.mark.parametrize(
    ("url", "hit"),
    [
        ("http://a.test/x", True),
        ("https://A.test/x/", True),
        ("http://a.test/x#part", True),
        ("http://a.test/X", False),
        ("http://a.test/x?y", False),
        ("ftp://a.test/x", False),
        ("http://[broken/x", False),
    ],
)
def test_which_urls_are_the_same(url: str, hit: bool) -> None:
    assert bool(Removals(urls={"a.test/x": 1}).number(url)) == hit


def test_names_that_are_no_urls_are_compared_as_they_are() -> None:
    removals = Removals(urls={"pages/a.html": 1, "apt://doc/1/x.html": 1})
    assert removals.number("pages/a.html")
    assert removals.number("apt://doc/1/x.html")
    assert not removals.number("pages/A.html")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://ar.wiki.test/مصر", "http://ar.wiki.test/%d9%85%D8%B5%D8%B1"),
        ("http://münchen.test/x", "http://xn--mnchen-3ya.test/%78"),
        ("https://a.test:443/x", "http://user@a.test:80/x"),
    ],
)
def test_a_url_is_found_however_it_is_written(one: str, other: str, folder_store: Store) -> None:
    record_removal(folder_store, [one], [], "asked")
    assert read_removals(folder_store).number(other)
    record_removal(folder_store, [f"{other}/y"], [], "asked")
    assert read_removals(folder_store).number(f"{one}/y")


def test_another_port_or_an_escaped_sign_is_another_url() -> None:
    removals = Removals(urls={"a.test/x/y": 1})
    assert not removals.number("http://a.test:8080/x/y")
    assert not removals.number("http://a.test/x%2Fy")


@pytest.mark.parametrize(
    ("domain", "named"),
    [
        ("example.org/page", "is a page and no domain"),
        ("https://example.org/?q", "is a page and no domain"),
        ("org", "has no dot"),
        ("https://", "is no domain"),
    ],
)
def test_no_more_than_was_meant_is_taken_out(domain: str, named: str, folder_store: Store) -> None:
    with pytest.raises(UsageError, match=named):
        record_removal(folder_store, [], [domain], "asked")
    with pytest.raises(UsageError, match="is no URL"):
        record_removal(folder_store, ["http://"], [], "asked")
    assert not list(folder_store.list())


def test_a_domain_may_be_written_as_in_a_block_list(folder_store: Store) -> None:
    record_removal(folder_store, [], ["*.example.org", ".xxx"], "asked")
    assert set(read_removals(folder_store).domains) == {"example.org", "xxx"}


@contextmanager
def _meanwhile(
    step: str, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """`happens` once, just before this step of the block."""
    before = getattr(curate_module, step)
    left = [happens]

    def overtaken(*args: Any, **keys: Any) -> Any:
        while left:
            left.pop()()
        return before(*args, **keys)

    with monkeypatch.context() as patch:
        patch.setattr(curate_module, step, overtaken)
        yield
    assert not left


@pytest.mark.parametrize("step", ["_finished", "_commit"])
def test_a_removal_during_a_run_is_followed_by_that_run(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    crawl, store = corpus
    asked = partial(record_removal, store, ["http://one.test/3"], [], "two")
    with _meanwhile(step, asked, monkeypatch):
        manifest = curate(recipe(store, crawl, seed=2), store, ONE)
    assert manifest.counters["removed"] == 1


@pytest.mark.parametrize("step", ["_finished", "_commit"])
def test_of_two_removals_at_once_both_are_followed(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    _, store = corpus
    asked = partial(record_removal, store, ["http://one.test/3"], [], "two")
    with _meanwhile(step, asked, monkeypatch):
        manifest = remove_documents(store, ["http://one.test/2"], [], "one", ONE)
    assert manifest.counters["removed"] == 2


def test_a_removal_never_brings_an_older_corpus_back(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is run with another seed while the removal works on what stood before."""
    crawl, store = corpus
    other = recipe(store, crawl, seed=2)
    with _meanwhile("_finished", partial(curate, other, store, ONE), monkeypatch):
        manifest = remove_documents(store, ["http://one.test/2"], [], "asked", ONE)
    assert (manifest.recipe, manifest.counters["removed"]) == (other.hash, 1)
    assert manifest_versions(store, "corpus")[-1] == manifest.version == 2
