"""Promises: what is reported of a tokenizer is there, and two of them are measured on one text."""

from __future__ import annotations

import json

import pytest
from tests.tokens.handmade import handmade, of_words
from tests.tokens.made import commit_corpus, document, documents

from eyas.recipe import EyasError
from eyas.store import Store
from eyas.tokens import Tokenizer, compare, held_out_sample, inspect
from eyas.tokens.report import measure
from eyas.tokens.sample import Sampled

RESERVED = 2
WORDS = Tokenizer(of_words("the river", " New York", " in the", " في البيت", " if ("))
BYTES = Tokenizer(handmade([]))
DOCUMENTS = [
    Sampled("en", "the river in the New York", 6, "https://one.test/a"),
    Sampled("en", "the river", 2, "https://two.test/b"),
    Sampled("ar", "نحن في البيت", 3, "https://two.test/c"),
]


def _size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def test_counts_are_by_language_and_by_domain() -> None:
    report = inspect(WORDS, DOCUMENTS, RESERVED)
    texts = [d.text for d in DOCUMENTS]
    tokens = [len(WORDS.encode(text)) for text in texts]
    assert (report["documents"], report["bytes"], report["words"]) == (3, _size(*texts), 11)
    assert report["tokens"] == sum(tokens)
    assert report["languages"]["ar"]["fertility"] == round(tokens[2] / 3, 4)
    assert report["languages"]["en"]["documents"] == 2
    assert report["domains"]["two.test"]["bytes"] == _size(*texts[1:])
    assert list(report["domains"]) == ["two.test", "one.test"]
    assert report["domains"]["one.test"]["bytes_per_token"] == round(_size(texts[0]) / tokens[0], 4)


def test_items_of_several_words_and_names_are_told() -> None:
    report = inspect(WORDS, DOCUMENTS, RESERVED)
    assert report["multiword_items"] == 4  # " if (" is a word and a bracket
    assert (report["name_items"], report["names"]) == (1, [" New York"])
    ids = [i for d in DOCUMENTS for i in WORDS.encode(d.text)]
    several = [i for i in ids if len(WORDS.decode([i]).split()) > 1]
    assert len(several) == 5
    assert report["multiword_tokens"] == round(len(several) / len(ids), 4)
    assert report["longest"][0] == " في البيت"


def test_items_that_do_not_occur_and_rare_ones_are_counted() -> None:
    report = measure(BYTES, [Sampled("en", "aaab", 1), Sampled("en", "bc", 1)], RESERVED)
    assert report["unused_items"] == 256 - 3
    assert report["rare_items"] == 2


def test_examples_are_the_beginning_of_a_text_item_by_item() -> None:
    report = inspect(WORDS, DOCUMENTS, RESERVED)
    assert report["examples"]["en"] == ["the river", " in the", " New York"]
    assert "".join(report["examples"]["ar"][-1:]) == " في البيت"


def test_every_document_comes_back_and_one_that_does_not_is_missed() -> None:
    whole = inspect(WORDS, DOCUMENTS, RESERVED)["round_trip"]
    assert whole == {"documents": 3, "bytes": _size(*(d.text for d in DOCUMENTS))}
    composed = Tokenizer(handmade([], normaliser="NFC"))
    changed = [Sampled("en", "e\u0301", 1), Sampled("en", "plain", 1)]
    assert inspect(composed, changed, RESERVED)["round_trip"] == {"documents": 1, "bytes": 5}


def test_a_report_is_json_and_says_how_it_was_encoded() -> None:
    report = inspect(WORDS, DOCUMENTS, RESERVED)
    assert json.loads(json.dumps(report)) == report
    assert report["encoder"]["texts"] >= 3
    assert report["encoder"]["differences"] == 0


def test_progress_comes_to_the_bytes_of_all() -> None:
    done: list[float] = []
    inspect(WORDS, DOCUMENTS, RESERVED, done.append)
    compare({"a": WORDS, "b": BYTES}, DOCUMENTS, done.append)
    assert sum(done) == 3 * _size(*(d.text for d in DOCUMENTS))


def test_two_tokenizers_are_compared_on_the_same_text() -> None:
    first, second = compare({"words": WORDS, "bytes": BYTES}, DOCUMENTS)
    assert (first["name"], first["ratio"], second["bytes_per_token"]) == ("words", 1.0, 1.0)
    assert second["ratio"] == round(1 / first["bytes_per_token"], 4)
    assert second["languages"] == {"en": 1.0, "ar": 1.0}
    assert first["languages"]["en"] > first["languages"]["ar"] > 1


def test_nothing_to_measure_gives_zeros() -> None:
    report = inspect(WORDS, [], RESERVED)
    assert (report["bytes_per_token"], report["fertility"], report["multiword_tokens"]) == (0, 0, 0)
    assert compare({"words": WORDS}, [])[0]["ratio"] == 0


def test_held_out_documents_are_measured_and_training_ones_only_for_want_of_them(
    folder_store: Store,
) -> None:
    commit_corpus(folder_store, [documents(40, words=10)])
    split, found = held_out_sample(folder_store)
    held_out = {d["text"] for d in documents(40, words=10) if d["split"] == "validation"}
    assert (split, {d.text for d in found}) == ("validation", held_out)
    assert all(d.url.startswith("https://") for d in found)
    commit_corpus(folder_store, [[document(n, words=10) for n in range(5)]])
    split, found = held_out_sample(folder_store)
    assert (split, len(found)) == ("train", 5)


def test_without_a_corpus_the_sentence_says_what_to_run(folder_store: Store) -> None:
    with pytest.raises(EyasError, match="eyas curate"):
        held_out_sample(folder_store)
