"""Promises of the tokenizer."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.made import commit_corpus, document, documents, recipe

from eyas.recipe import EyasError, UsageError
from eyas.store import Store, open_store, read_object
from eyas.tokens import Tokenizer, load_tokenizer, train_tokenizer
from eyas.tokens.fit import PATTERN, fit
from eyas.tokens.report import measure
from eyas.tokens.sample import Sampled, quotas, sample_documents

RESERVED = 16
TEXTS = [document(n, words=50)["text"] for n in range(60)]
TOKENIZER = Tokenizer(fit(TEXTS, 512, RESERVED))
SPECIAL = ["<|endoftext|>", *(f"<|reserved_{i}|>" for i in range(1, RESERVED))]
HARD = [
    "",
    "\x00",
    "a\x00b\x00",
    "كتـــاب",
    "وَسَيَكْتُبُونَهَا",
    "ﻻ ﷺ",
    "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "e\u0301 \u00e9 \u212b",
    "\t\r\n \u00a0\u2028 x",
    "١٢٣٤ 12345 ½ ²",
    "\ufeff\ufffd\uffff\U0010ffff",
    "नमस्ते ကျေးဇူး 漢字かな",
    "don't DON'T camelCase HTTPServer",
]


@pytest.mark.parametrize("text", HARD)
def test_decoding_gives_back_hard_texts(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text
    assert TOKENIZER.encode_batch([text, "x"])[0] == TOKENIZER.encode(text)


@given(st.text())
@settings(deadline=None)
def test_decoding_gives_back_any_text(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize("letter", ["a", "A", "م", " ", "\n", "7", "ـ", "-", "َ"])
def test_decoding_gives_back_a_hundred_thousand_of_one_character(letter: str) -> None:
    text = letter * 100_000
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_decoding_gives_back_a_megabyte_of_one_letter() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("a" * 2**20)) == "a" * 2**20


@given(st.lists(st.one_of(st.sampled_from(SPECIAL), st.text(max_size=5)), max_size=8).map("".join))
@settings(deadline=None)
def test_special_strings_typed_by_a_person_are_plain_text(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert all(i >= RESERVED for i in ids)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.encode_batch([text]) == [ids]


def test_ids_are_end_of_text_then_reserved_then_bytes_then_merges() -> None:
    inner = tokenizers.Tokenizer.from_str(TOKENIZER.json.decode())
    assert TOKENIZER.end_of_text == 0
    assert [inner.id_to_token(i) for i in range(RESERVED)] == SPECIAL
    singles = {TOKENIZER.decode_bytes([i]) for i in range(RESERVED, RESERVED + 256)}
    assert singles == {bytes([b]) for b in range(256)}
    assert all(len(TOKENIZER.decode_bytes([i])) > 1 for i in range(RESERVED + 256, 512))
    assert TOKENIZER.vocab_size == 512
    assert TOKENIZER.decode([0]) == "<|endoftext|>"


def test_ids_equal_the_exported_files_with_special_parsing_off() -> None:
    inner = tokenizers.Tokenizer.from_str(TOKENIZER.json.decode())
    inner.encode_special_tokens = True
    for text in [*HARD, *TEXTS[:5]]:
        assert inner.encode(text).ids == TOKENIZER.encode(text)
        assert inner.decode(inner.encode(text).ids, skip_special_tokens=False) == text


@given(st.lists(st.integers(0, 511), max_size=20))
@settings(deadline=None)
def test_any_ids_decode_and_bytes_add_up(ids: list[int]) -> None:
    assert TOKENIZER.decode_bytes(ids) == b"".join(TOKENIZER.decode_bytes([i]) for i in ids)
    assert TOKENIZER.decode(ids) == TOKENIZER.decode_bytes(ids).decode(errors="replace")


def test_an_id_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(UsageError, match="id 512 is not in the vocabulary of 512 items"):
        TOKENIZER.decode([512])


def test_a_lone_surrogate_is_named_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"U\+D800 at character 2"):
        TOKENIZER.encode("ab\ud800c")
    with pytest.raises(UsageError, match=r"U\+DFFF at character 0"):
        TOKENIZER.encode_batch(["fine", "\udfffx"])


def test_marks_stay_inside_words_and_digits_go_by_three() -> None:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated")
    pieces = [piece for piece, _ in split.pre_tokenize_str("وَسَيَكْتُبُونَهَا نَعَمْ 1234567 don't हिन्दी")]
    assert pieces == ["وَسَيَكْتُبُونَهَا", " نَعَمْ", " ", "123", "456", "7", " don't", " हिन्दी"]


def test_it_pickles_and_names_its_file_by_digest() -> None:
    other = pickle.loads(pickle.dumps(TOKENIZER))
    assert other.digest == TOKENIZER.digest
    assert other.encode("the river") == TOKENIZER.encode("the river")
    assert Tokenizer(fit(TEXTS, 500, RESERVED)).digest != TOKENIZER.digest


def test_the_same_texts_in_another_order_give_the_same_bytes() -> None:
    assert fit(TEXTS[::-1], 512, RESERVED) == TOKENIZER.json


def test_another_process_with_other_threads_gives_the_same_bytes() -> None:
    code = (
        "import sys, hashlib; from tests.tokens.made import document;"
        "from eyas.tokens.fit import fit;"
        "texts = [document(n, words=50)['text'] for n in range(60)];"
        "print(hashlib.sha256(fit(texts, 512, 16)).hexdigest())"
    )
    for threads in ("1", "3"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"RAYON_NUM_THREADS": threads, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == TOKENIZER.digest


def test_too_little_text_says_what_is_reached_and_what_to_do() -> None:
    with pytest.raises(EyasError, match=r"gives (\d+) items, tokenizer.vocab_size asks for 9000"):
        fit(TEXTS, 9000, RESERVED)


def test_bytes_that_are_no_tokenizer_are_refused() -> None:
    with pytest.raises(EyasError, match=r"not a tokenizer\.json"):
        Tokenizer(b"{}")


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


def test_the_report_counts_what_is_there() -> None:
    report = measure(
        TOKENIZER, [Sampled("en", "river river", 2), Sampled("ar", "النهر", 1)], RESERVED
    )
    ids = TOKENIZER.encode("river river") + TOKENIZER.encode("النهر")
    assert report["tokens"] == len(ids)
    assert report["languages"]["en"]["bytes"] == 11
    assert report["languages"]["ar"]["fertility"] == len(TOKENIZER.encode("النهر"))
    assert report["unused_items"] == 512 - RESERVED - len(set(ids))


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
