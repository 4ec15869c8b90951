"""Promises of training: words, determinism, the size asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.tokens.made import document
from tokenizers import Regex, pre_tokenizers

from eyas.recipe import EyasError
from eyas.tokens import Tokenizer
from eyas.tokens.fit import PATTERN, train
from eyas.tokens.pattern import DIGITS, multiword_pattern, stage_one_pattern, word_pattern

RESERVED = 16
TEXTS = [document(n, words=50)["text"] for n in range(60)]
TOKENIZER = Tokenizer(train(TEXTS, 512, RESERVED).json)


def _pieces(text: str, pattern: str = PATTERN) -> list[str]:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return [piece for piece, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("abcعربي", ["abc", "عربي"]),
        ("عربيEnglish", ["عربي", "English"]),
        ("中文かな한글ไทย", ["中文かな", "한글", "ไทย"]),
        ("می‌خواهم", ["می‌خواهم"]),
        ("क्‍ष नमस्ते", ["क्‍ष", " नमस्ते"]),
        ("كتـــاب ـات", ["كتـــاب", " ـات"]),
        ("camelCase HTTPServer", ["camel", "Case", " HTTPServer"]),
        ("👨‍👩‍👧 ☀️", ["👨‍👩‍👧", " ☀️"]),
        ("    if (x):\n\n\ty", ["   ", " if", " (", "x", "):\n\n", "\ty"]),
    ],
)
def test_a_change_of_script_ends_a_word_and_marks_and_joiners_do_not(
    text: str, pieces: list[str]
) -> None:
    assert _pieces(text) == pieces


@given(st.text())
def test_pieces_are_the_text_under_every_rule(text: str) -> None:
    for digits in DIGITS:
        for rule in (word_pattern, stage_one_pattern, multiword_pattern):
            assert "".join(_pieces(text, rule(digits))) == text


@pytest.mark.parametrize(
    ("digits", "pieces"),
    [("triples", ["123", "45"]), ("single", list("12345")), ("free", ["12345"])],
)
def test_digits_are_cut_as_asked(digits: str, pieces: list[str]) -> None:
    assert _pieces("12345", word_pattern(digits)) == pieces
    file = json.loads(train(TEXTS, 400, RESERVED, digits=digits).json)
    cut = file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    assert cut == word_pattern(digits)


def test_nothing_is_normalised_unless_asked() -> None:
    assert json.loads(TOKENIZER.json)["normalizer"] is None
    for name, text, form in (("NFC", "e\u0301", "é"), ("NFKC", "ﻻ", "لا")):
        made = Tokenizer(train(TEXTS, 400, RESERVED, normalisation=name).json)
        assert made.decode(made.encode(text)) == form
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_marks_stay_inside_words_and_digits_go_by_three() -> None:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated")
    pieces = [piece for piece, _ in split.pre_tokenize_str("وَسَيَكْتُبُونَهَا نَعَمْ 1234567 don't हिन्दी")]
    assert pieces == ["وَسَيَكْتُبُونَهَا", " نَعَمْ", " ", "123", "456", "7", " don't", " हिन्दी"]


def test_the_same_texts_in_another_order_give_the_same_bytes() -> None:
    assert train(TEXTS[::-1], 512, RESERVED).json == TOKENIZER.json


def test_another_process_with_other_threads_gives_the_same_bytes() -> None:
    code = (
        "import sys, hashlib; from tests.tokens.made import document;"
        "from eyas.tokens.fit import train;"
        "texts = [document(n, words=50)['text'] for n in range(60)];"
        "print(hashlib.sha256(train(texts, 512, 16).json).hexdigest())"
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
        train(TEXTS, 9000, RESERVED)
