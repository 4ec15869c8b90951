"""Promises of the tokenizer."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.handmade import of_words
from tests.tokens.made import document

from eyas.recipe import EyasError, UsageError
from eyas.tokens import Tokenizer
from eyas.tokens.fit import train
from eyas.tokens.report import measure
from eyas.tokens.sample import Sampled

RESERVED = 16
TEXTS = [document(n, words=50)["text"] for n in range(60)]
TOKENIZER = Tokenizer(train(TEXTS, 512, RESERVED).json)
SPECIAL = ["<|endoftext|>", *(f"<|reserved_{i}|>" for i in range(1, RESERVED))]
WORDS = Tokenizer(of_words("the river", " in the", " في البيت"))
TAIL = [WORDS.items[i] for i in WORDS.encode(" river")]
SURROGATE = b"\xed\xa0\x80"  # half of a pair, written as if it were a character
PIECES = [b"\xff", b"\xd9", "١ في".encode(), b" in the", SURROGATE, b"\xf0\x9f", b"<|endoftext|>"]
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


@pytest.mark.slow
@pytest.mark.parametrize("part", ["a", " ", " a"])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, WORDS], ids=["trained", "runs of words"])
def test_decoding_gives_back_a_megabyte_of_the_same(tokenizer: Tokenizer, part: str) -> None:
    text = part * (2**20 // len(part))
    ids, _ = tokenizer.encode_flat([text])
    assert tokenizer.decode(ids.tolist()) == text


@pytest.mark.slow
@given(st.lists(st.text(), max_size=4))
@settings(deadline=None)
def test_many_texts_at_once_are_encoded_as_one_by_one(texts: list[str]) -> None:
    ids, offsets = WORDS.encode_flat(texts)
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    parts = [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    assert parts == WORDS.encode_batch(texts) == [WORDS.encode(text) for text in texts]
    assert [WORDS.decode(part) for part in parts] == texts


@given(st.one_of(st.binary(), st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)))
@settings(deadline=None)
def test_decoding_gives_back_any_bytes(data: bytes) -> None:
    ids = WORDS.encode_bytes(data)
    assert WORDS.decode_bytes(ids) == data
    assert not {0, 1} & set(ids)


def test_bytes_that_are_no_text_are_items_of_one_byte_and_the_rest_is_encoded_as_ever() -> None:
    ids = WORDS.encode_bytes(b"in the\xff\xd9 river")
    assert [WORDS.items[i] for i in ids] == [b"in", b" the", b"\xff", b"\xd9", *TAIL]
    assert WORDS.encode_bytes("نحن في البيت".encode()) == WORDS.encode("نحن في البيت")
    assert WORDS.encode_bytes(b"\xed\xa0\x80") == [WORDS.items.index(bytes([b])) for b in SURROGATE]


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


@pytest.mark.parametrize("tokenizer", [TOKENIZER, WORDS], ids=["trained", "runs of words"])
def test_ids_equal_the_exported_files_with_special_parsing_off(tokenizer: Tokenizer) -> None:
    inner = tokenizers.Tokenizer.from_str(tokenizer.json.decode())
    inner.encode_special_tokens = True
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.json.decode()),
        eos_token="<|endoftext|>",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    for text in [*HARD, *TEXTS[:5], "a <|endoftext|> typed", "the river in the"]:
        ids = tokenizer.encode(text)
        assert inner.encode(text).ids == ids
        assert other.encode(text, add_special_tokens=False) == ids
        assert inner.decode(ids, skip_special_tokens=False) == text
        assert other.decode(ids) == text


def test_other_tools_differ_where_special_items_are_looked_for() -> None:
    inner = tokenizers.Tokenizer.from_str(TOKENIZER.json.decode())
    assert inner.encode("a<|endoftext|>").ids[-1] == TOKENIZER.end_of_text
    assert TOKENIZER.end_of_text not in TOKENIZER.encode("a<|endoftext|>")


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


def test_it_pickles_and_names_its_file_by_digest() -> None:
    other = pickle.loads(pickle.dumps(TOKENIZER))
    assert other.digest == TOKENIZER.digest
    assert other.encode("the river") == TOKENIZER.encode("the river")
    assert Tokenizer(train(TEXTS, 500, RESERVED).json).digest != TOKENIZER.digest


@pytest.mark.parametrize("data", [b"{}", b"[]", b"\xff", b"", b'{"model": {"vocab": []}}'])
def test_bytes_that_are_no_tokenizer_are_refused(data: bytes) -> None:
    with pytest.raises(EyasError, match=r"not a tokenizer\.json"):
        Tokenizer(data)


def test_a_file_without_an_end_of_text_is_refused() -> None:
    with pytest.raises(EyasError, match=r"has no <\|endoftext\|>"):
        Tokenizer(TOKENIZER.json.replace(b"<|endoftext|>", b"<|end|>"))


def test_nothing_is_loaded_to_decode_and_one_file_is_loaded_once() -> None:
    code = (
        "import sys; from eyas.tokens.tokenizer import Tokenizer;"
        "data = sys.stdin.buffer.read(); t = Tokenizer(data); print(t.decode([300]), t.vocab_size);"
        "u = Tokenizer(bytes(bytearray(data))); assert u.items is t.items;"
        "t.encode('x'); assert u._encoder._loaded_reference is t._encoder._loaded_reference;"
        "assert 'fastokens' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=TOKENIZER.json, capture_output=True, check=True
    )
    assert done.stdout.split()[-1] == b"512"


def test_the_report_counts_what_is_there() -> None:
    report = measure(
        TOKENIZER, [Sampled("en", "river river", 2), Sampled("ar", "النهر", 1)], RESERVED
    )
    ids = TOKENIZER.encode("river river") + TOKENIZER.encode("النهر")
    assert report["tokens"] == len(ids)
    assert report["languages"]["en"]["bytes"] == 11
    assert report["languages"]["ar"]["fertility"] == len(TOKENIZER.encode("النهر"))
    assert report["unused_items"] == 512 - RESERVED - len(set(ids))
