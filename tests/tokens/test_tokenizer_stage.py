"""Promises of the tokenizer stage and of the sample it trains on."""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.texts import write_jsonl
from tests.tokens.made import commit_corpus, documents, recipe

from eyas.corpus import curate, remove_documents
from eyas.recipe import DataSource, EyasError, Recipe
from eyas.store import (
    Corrupt,
    ObjectInfo,
    Store,
    StoreError,
    open_store,
    read_manifest,
    read_object,
)
from eyas.store.folder import FolderStore
from eyas.tokens import load_tokenizer, tokenizer_size, train_tokenizer
from eyas.tokens.encode import held_out
from eyas.tokens.foreign import text_pieces_of
from eyas.tokens.sample import Sampled, quotas, sample_documents
from eyas.tokens.texts import CorpusTexts, ForeignTexts, recipe_texts
from eyas.work import Engine

MDS = Path(__file__).parent / "data" / "mds"


def _with_sources(store: Store, *urls: str, **keys: Any) -> Recipe:
    """Sources named a, b, c; an empty URL is the own corpus."""
    made = recipe(store, **keys)
    sources = tuple(DataSource(name=n, from_=url) for n, url in zip("abc", urls, strict=False))
    return dataclasses.replace(made, data=dataclasses.replace(made.data, sources=sources))


def _lines(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return f"hf:{path}"


def _rows(count: int, source: int, language: str = "") -> list[dict[str, Any]]:
    rows = [{"text": d["text"]} for d in documents(count, source, words=40)]
    return [row | {"language": language} for row in rows] if language else rows


def _foreign(url: str, share: float = 0.25, **bounds: int) -> ForeignTexts:
    place, pieces = text_pieces_of("data.sources", url)
    return ForeignTexts(url.partition(":")[0], place, pieces, share, **bounds)


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**9), min_size=1),
    st.integers(1, 10**9),
    st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_quotas_fill_the_sample_or_take_everything(
    available: dict[str, int], total: int, temperature: float
) -> None:
    taken = quotas(available, total, temperature)
    assert all(0 <= taken[name] <= available[name] for name in taken)
    expected = min(total, sum(available.values()))
    assert expected - len(available) <= sum(taken.values()) <= expected


def test_temperature_gives_rare_languages_more_than_their_share() -> None:
    available = {"en": 9_000_000, "ar": 900_000, "fa": 100_000}
    as_found, warm, equal = (quotas(available, 300_000, t) for t in (1.0, 0.7, 0.0))
    assert as_found == {"en": 270_000, "ar": 27_000, "fa": 3_000}
    assert 27_000 < warm["ar"] < equal["ar"] == equal["en"] == equal["fa"] == 100_000


def test_a_sample_is_fair_deterministic_and_of_one_split(folder_store: Store) -> None:
    corpus = commit_corpus(folder_store, [documents(150, source, words=40) for source in range(3)])
    first, again = (
        list(sample_documents([CorpusTexts(folder_store, corpus)], "train", 60_000, 0.5))
        for _ in range(2)
    )
    assert first == again
    size = sum(len(d.text.encode()) for d in first)
    assert 50_000 < size <= 60_000
    held_out = {d["text"] for s in range(3) for d in documents(150, s, 40) if d["split"] != "train"}
    assert not held_out & {d.text for d in first}
    for source in range(3):
        texts = {d["text"] for d in documents(150, source, 40)}
        assert sum(d.text in texts for d in first) > 20


def test_training_commits_once_and_the_store_gives_it_back(store: Store) -> None:
    commit_corpus(store, [documents(40, source, words=40) for source in range(2)])
    manifest = train_tokenizer(recipe(store), store)
    before = sorted(o.key for o in store.list())
    assert train_tokenizer(recipe(store), open_store(store.url)) == manifest
    assert sorted(o.key for o in store.list()) == before
    tokenizer = load_tokenizer(store)
    assert tokenizer.digest == manifest.facts["digest"]
    assert manifest.facts["vocab_size"] == 512
    assert manifest.facts["measured_on"] == "validation"
    assert manifest.facts["bytes_per_token"] > 1
    assert set(manifest.facts["languages"]) == {"en", "ar"}
    assert read_object(store, manifest.objects[0]) == tokenizer.json
    other = train_tokenizer(recipe(store, tokenizer__vocab_size=520), store)
    assert other.version == 2
    assert load_tokenizer(store, manifest).digest == tokenizer.digest


def test_without_a_corpus_the_sentence_says_what_to_run(folder_store: Store) -> None:
    with pytest.raises(EyasError, match="eyas curate"):
        train_tokenizer(recipe(folder_store), folder_store)
    with pytest.raises(EyasError, match="eyas tokenize"):
        load_tokenizer(folder_store)


def test_a_multi_word_tokenizer_says_what_its_items_are(
    folder_store: Store, tmp_path: Path
) -> None:
    commit_corpus(folder_store, [documents(150, source, words=60) for source in range(3)])
    names = tmp_path / "names.txt"
    names.write_text("# mine\nriver garden\nNobody Knows\nalone\n", "utf-8")
    asked = recipe(
        folder_store,
        tokenizer__vocab_size=700,
        tokenizer__multiword=True,
        tokenizer__entities=str(names),
    )
    facts = train_tokenizer(asked, folder_store).facts
    assert facts["vocab_size"] == 700
    assert 0 < facts["multiword_share"] <= 0.45
    assert facts["multiword_items"] > 0
    entities = facts["entities"]
    assert entities["listed"] == 2
    assert 0 <= entities["occurrences_single"] <= entities["occurrences"]
    assert entities["occurrence_coverage"] <= 1
    assert load_tokenizer(folder_store).vocab_size == 700
    standing = train_tokenizer(asked, folder_store)
    assert standing.version == 1
    names.write_text("mountain window\n", "utf-8")
    assert train_tokenizer(asked, folder_store).version == 2


def test_the_tokenizer_of_another_store_is_taken_verified_and_kept(
    store: Store, tmp_path: Path
) -> None:
    other = open_store(str(tmp_path / "other"))
    commit_corpus(other, [documents(60, words=40)])
    theirs = train_tokenizer(recipe(other), other)
    asked = recipe(store, tokenizer__from=other.url, tokenizer__vocab_size=9000)
    taken = train_tokenizer(asked, store)
    assert taken.facts["digest"] == theirs.facts["digest"]
    assert taken.facts["vocab_size"] == 512
    assert taken.facts["taken_from"] == other.url
    assert [reference.key for reference in taken.inputs] == [
        f"{other.url}/tokenizer/manifest-{theirs.version:06d}.json"
    ]
    assert train_tokenizer(asked, open_store(store.url)) == taken
    other.delete([info.key for info in other.list()])
    assert load_tokenizer(store).digest == theirs.facts["digest"]


def test_the_size_of_a_tokenizer_that_is_taken_is_that_of_its_file(
    folder_store: Store, tmp_path: Path
) -> None:
    other = open_store(str(tmp_path / "other"))
    commit_corpus(other, [documents(60, words=40)])
    train_tokenizer(recipe(other), other)
    asked = {"tokenizer__vocab_size": 9000}
    assert tokenizer_size(recipe(folder_store, **asked)) == 9000
    assert tokenizer_size(recipe(folder_store, tokenizer__from=other.url, **asked)) == 512
    assert tokenizer_size(recipe(folder_store, data__from=other.url, **asked)) == 512


def test_without_a_corpus_the_error_names_both_ways_to_a_tokenizer(folder_store: Store) -> None:
    with pytest.raises(EyasError, match=r"eyas curate RECIPE.*\[tokenizer\] from"):
        train_tokenizer(recipe(folder_store), folder_store)


def test_a_damaged_or_missing_tokenizer_is_not_taken(folder_store: Store, tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"))
    asked = recipe(folder_store, tokenizer__from=other.url)
    with pytest.raises(EyasError, match="holds no tokenizer to take over"):
        train_tokenizer(asked, folder_store)
    commit_corpus(other, [documents(60, words=40)])
    key = train_tokenizer(recipe(other), other).objects[0].key
    data = bytearray(other.get(key))
    data[-5] ^= 1
    other.put(key, bytes(data))
    with pytest.raises(Corrupt, match=key):
        train_tokenizer(asked, folder_store)
    assert not list(folder_store.list())


def test_a_tokenizer_is_trained_on_foreign_text_alone(store: Store, tmp_path: Path) -> None:
    web = _lines(tmp_path / "web.jsonl", _rows(120, 0, "en"))
    books = tmp_path / "books"
    books.mkdir()
    pq.write_table(pa.table({"text": [r["text"] for r in _rows(90, 1)]}), books / "a.parquet")
    asked = _with_sources(store, web, f"hf:{books}", f"mds:{MDS / 'text'}")
    manifest = train_tokenizer(asked, store)
    assert manifest.facts["vocab_size"] == 512
    assert manifest.facts["measured_on"] == "validation"
    assert manifest.facts["trained_on"].keys() == {"en", "und"}
    assert manifest.facts["fertility"] > 1
    assert load_tokenizer(store).json == read_object(store, manifest.objects[0])
    (listed,) = manifest.inputs
    found = json.loads(read_object(store, listed))
    assert {f["url"] for source in found for f in source["files"]} >= {
        str(tmp_path / "web.jsonl"),
        str(books / "a.parquet"),
    }
    assert train_tokenizer(asked, open_store(store.url)) == manifest


def test_the_same_foreign_text_gives_the_same_file_wherever_it_lies_and_whatever_it_is_called(
    tmp_path: Path,
) -> None:
    digests = []
    for place in ("one", "two"):
        urls = [_lines(tmp_path / place / f"{n}.jsonl", _rows(90, n)) for n in range(2)]
        store = open_store(str(tmp_path / f"store-{place}"))
        asked = _with_sources(store, *urls, tokenizer__sample_bytes=40_000)
        manifest = train_tokenizer(asked, store)
        digests.append(manifest.facts["digest"])
        sources = tuple(
            dataclasses.replace(s, name=f"other-{s.name}", weight=3.0)
            for s in reversed(asked.data.sources)
        )
        other = dataclasses.replace(asked, data=dataclasses.replace(asked.data, sources=sources))
        assert train_tokenizer(other, store) == manifest
    assert digests[0] == digests[1]


def test_corpus_and_foreign_text_are_both_heard(folder_store: Store, tmp_path: Path) -> None:
    commit_corpus(folder_store, [documents(90, words=40)])
    word = "zyzzyvas"
    web = _lines(tmp_path / "web.jsonl.gz", [{"text": f"{word} {n} " * 30} for n in range(60)])
    alone = train_tokenizer(recipe(folder_store), folder_store)
    assert len(load_tokenizer(folder_store).encode(f" {word}")) > 1
    asked = _with_sources(folder_store, "", web)
    both = train_tokenizer(asked, folder_store)
    assert both.version == alone.version + 1
    assert len(load_tokenizer(folder_store).encode(f" {word}")) == 1
    assert both.facts["trained_on"].keys() == {"ar", "en", "und"}
    assert both.facts["languages"].keys() == {"ar", "en", "und"}
    lines = _lines(tmp_path / "lines.jsonl", _rows(90, 1))
    only = train_tokenizer(_with_sources(folder_store, lines), folder_store)
    assert only.facts["trained_on"].keys() == {"und"}


def test_taking_documents_out_keeps_the_tokenizer_that_models_were_trained_with(
    folder_store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "lines.jsonl", 30)
    keys = {"corpus": {"sources": [str(source)]}, "tokenizer": {"vocab_size": 600}}
    asked = Recipe.build({"name": "test", "store": folder_store.url, **keys})
    before = curate(asked, folder_store, Engine(workers=1))
    first = train_tokenizer(asked, folder_store)
    remove_documents(folder_store, ["https://en.test/3"], [], "asked", Engine(workers=1))
    after = read_manifest(folder_store, "corpus")
    assert after is not None
    assert after.counters["documents"] == before.counters["documents"] - 1
    assert train_tokenizer(asked, folder_store) == first
    write_jsonl(source, 31)
    curate(asked, folder_store, Engine(workers=1))
    assert train_tokenizer(asked, folder_store).version == first.version + 1


def test_a_changed_file_of_a_foreign_source_makes_another_tokenizer(
    folder_store: Store, tmp_path: Path
) -> None:
    asked = _with_sources(folder_store, _lines(tmp_path / "web.jsonl", _rows(90, 0)))
    first = train_tokenizer(asked, folder_store)
    _lines(tmp_path / "web.jsonl", _rows(95, 0))
    assert train_tokenizer(asked, folder_store).identity != first.identity


def test_a_source_of_ids_is_no_text(folder_store: Store) -> None:
    for url in (f"mds:{MDS / 'int32'}", f"megatron:{MDS.parent / 'megatron'}"):
        with pytest.raises(EyasError, match=r"eyas curate RECIPE.*\[tokenizer\] from"):
            train_tokenizer(_with_sources(folder_store, url), folder_store)
    commit_corpus(folder_store, [documents(90, words=40)])
    asked = _with_sources(folder_store, f"mds:{MDS / 'int32'}")
    assert train_tokenizer(asked, folder_store).facts["trained_on"].keys() == {"ar", "en"}


def test_a_source_of_the_corpus_needs_one_whatever_else_has_text(
    folder_store: Store, tmp_path: Path
) -> None:
    web = _lines(tmp_path / "web.jsonl", _rows(90, 0))
    with pytest.raises(EyasError, match="eyas curate RECIPE"):
        train_tokenizer(_with_sources(folder_store, "", web), folder_store)
    assert not list(folder_store.list())


def test_held_out_documents_of_foreign_text_are_never_trained_on(tmp_path: Path) -> None:
    rows = _rows(200, 0)
    texts = _foreign(_lines(tmp_path / "web.jsonl", rows), share=0.3)
    train, validation = (
        {d.text for d in sample_documents([texts], split, 10**9, 0.0)}
        for split in ("train", "validation")
    )
    assert validation == {r["text"] for r in rows if held_out(r["text"].encode(), 0.3)}
    assert train == {r["text"] for r in rows} - validation
    by_folder = _foreign(f"mds:{MDS / 'text'}")
    (first, *_) = sample_documents([by_folder], "validation", 10**9, 0.0)
    assert first.text.startswith("validation document")


def test_no_more_of_foreign_sources_is_looked_at_than_is_allowed(
    folder_store: Store, tmp_path: Path
) -> None:
    for n in range(9):
        _lines(tmp_path / "web" / f"{n}.jsonl", [{"text": f"{n} " * 50, "url": str(n)}] * 40)
    url = f"hf:{tmp_path / 'web'}"
    seen = [d.url for d in sample_documents([_foreign(url, 0.0, objects=3)], "train", 10**9, 0.0)]
    assert len(set(seen)) == 3
    assert len(seen) == 3 * 40
    bounded = _foreign(url, 0.0, objects=4, most=4 * 10 * 100)
    assert len(list(bounded.sizes("train"))) == 4 * 10
    found = recipe_texts(
        _with_sources(folder_store, url, f"hf:{tmp_path / 'web/1.jsonl'}"), folder_store
    )
    assert [(t.objects, t.most) for t in found.foreign.values()] == [(32, 2 * 2**30)] * 2


@pytest.mark.parametrize(("temperature", "arabic"), [(0.0, 10_000), (1.0, 20_000 / 7)])
def test_what_a_sample_remembers_does_not_change_what_it_takes(
    temperature: float, arabic: float
) -> None:
    """Many more documents than the quota: the first pass forgets most of them on the way."""

    class Made:
        def sizes(self, split: str) -> Iterator[tuple[str, str, int]]:
            return ((f"{n}", "en" if n % 7 else "ar", 90 + n % 21) for n in range(5000))

        def documents(self, split: str, chosen: Callable[[str, str], bool]) -> Iterator[Sampled]:
            for name, language, size in self.sizes(split):
                if chosen(name, language):
                    yield Sampled(language, "x" * size, 1, name)

    taken = list(sample_documents([Made()], "train", 20_000, temperature))
    size = sum(len(d.text) for d in taken)
    assert 19_500 < size <= 20_000
    heard = sum(len(d.text) for d in taken if d.language == "ar")
    assert heard == pytest.approx(arabic, abs=120)
    hashes = {
        language: sorted(
            (xxhash.xxh3_64_intdigest(name.encode()), name)
            for name, found, _ in Made().sizes("train")
            if found == language
        )
        for language in ("en", "ar")
    }
    for language, order in hashes.items():
        names = {d.url for d in taken if d.language == language}
        assert names == {name for _, name in order[: len(names)]}


class _OutOfReach(FolderStore):
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise StoreError("no route to the host")


def test_a_tokenizer_that_was_taken_stays_when_its_origin_is_gone_or_out_of_reach(
    store: Store,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = open_store(str(tmp_path / "other"))
    commit_corpus(other, [documents(60, words=40)])
    train_tokenizer(recipe(other), other)
    asked = recipe(store, tokenizer__from=other.url)
    taken = train_tokenizer(asked, store)
    other.delete([info.key for info in other.list()])
    with caplog.at_level(logging.WARNING, "eyas.tokens"):
        assert train_tokenizer(asked, store) == taken
    assert f"{other.url}: the tokenizer that was taken from there" in caplog.text
    assert tokenizer_size(asked) == 512

    with monkeypatch.context() as patched:
        patched.setattr(
            sys.modules["eyas.tokens.tokenizer_stage"],
            "open_store",
            lambda url: _OutOfReach(url) if url == other.url else open_store(url),
        )
        caplog.clear()
        assert train_tokenizer(asked, store) == taken
        assert "no route to the host" in caplog.text
        with pytest.raises(StoreError, match="no route"):
            train_tokenizer(asked, open_store(str(tmp_path / "new")))
    elsewhere = recipe(store, tokenizer__from=str(tmp_path / "third"))
    with pytest.raises(EyasError, match="third holds no tokenizer to take over"):
        train_tokenizer(elsewhere, store)


def test_a_run_keeps_its_tokenizer_by_naming_its_own_store(
    folder_store: Store, tmp_path: Path
) -> None:
    commit_corpus(folder_store, [documents(60, words=40)])
    trained = train_tokenizer(recipe(folder_store), folder_store)
    web = _lines(tmp_path / "web.jsonl", _rows(90, 0))
    asked = _with_sources(folder_store, "", web, tokenizer__from=folder_store.url)
    kept = train_tokenizer(asked, folder_store)
    assert kept.facts["digest"] == trained.facts["digest"]
    assert train_tokenizer(asked, folder_store) == kept
