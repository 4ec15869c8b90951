"""Promises of the tokenizer stage and of the sample it trains on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.made import commit_corpus, documents, recipe

from eyas.recipe import EyasError
from eyas.store import Corrupt, Store, open_store, read_object
from eyas.tokens import load_tokenizer, train_tokenizer
from eyas.tokens.sample import quotas, sample_documents


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
        list(sample_documents(folder_store, corpus, "train", 60_000, 0.5)) for _ in range(2)
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
    assert facts["entities"]["listed"] == 2
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


def test_a_damaged_or_missing_tokenizer_is_not_taken(folder_store: Store, tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"))
    asked = recipe(folder_store, tokenizer__from=other.url)
    with pytest.raises(EyasError, match=r"holds no tokenizer \(tokenizer.from\)"):
        train_tokenizer(asked, folder_store)
    commit_corpus(other, [documents(60, words=40)])
    key = train_tokenizer(recipe(other), other).objects[0].key
    data = bytearray(other.get(key))
    data[-5] ^= 1
    other.put(key, bytes(data))
    with pytest.raises(Corrupt, match=key):
        train_tokenizer(asked, folder_store)
    assert not list(folder_store.list())
