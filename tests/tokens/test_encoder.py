"""Promises: the ids of the fast library are the reference's on every build, and where they are not,
or where it gives up, the reference's are what comes out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import fastokens
import numpy as np
import pytest
import tokenizers
from tests.tokens.handmade import SEAMS, handmade, of_words
from tests.tokens.made import document

from eyas.recipe import EyasError, UsageError
from eyas.tokens import encoder as encoders
from eyas.tokens.encoder import Encoder
from eyas.tokens.fit import train
from eyas.tokens.pattern import DIGITS, multiword_pattern, word_pattern

TEXTS = [document(n, words=50)["text"] for n in range(60)]
SIZE = 512
TRAINED = train(TEXTS, SIZE, 16).json
ITEMS = ["the river", " in the", " in the United", " في البيت", " of the", " one two three"]
_RUNAWAY = r"(?: \p{L}+)+|" + word_pattern()

PATTERNS = {
    f"{name}, {digits} digits": pattern(digits)
    for name, pattern in (("words", word_pattern), ("runs of words", multiword_pattern))
    for digits in DIGITS
}
TOKENIZERS = {
    "trained": TRAINED,
    "items of several words": of_words(*ITEMS),
    "NFC": handmade(SEAMS, normaliser="NFC"),
    **{name: handmade(SEAMS, pattern) for name, pattern in PATTERNS.items()},
}
WIDE = [
    "",
    "\x00\x00a\x00",
    "".join(map(chr, range(0x20))) + "\x7f\x80\x9f",
    "<|endoftext|> <|reserved_1|><|endoftext|",
    "وَسَيَكْتُبُونَهَا كِتَـــابًا فِي الْبَيْتِ",
    "ـ" * 70 + " ﷺ ﻻ ١٢٣٤٥ ٣٫١٤",
    "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇪🇺🇪 ☝️",
    "漢字かな交じり文 中文没有空格。한국어 띄어쓰기",
    "नमस्ते दुनिया क्ष्म्य தமிழ் ကျေးဇူး ไทยไม่มีช่องว่าง",
    "def f(x): return {'a': [1, 2.5e-10]}  # ~!@#$%^&*()\n\t\tif x:\r\n\r\n",
    "don't DON'T we'LL camelCase HTTPServer ǅungla ªº",
    "1 12 123 1234 12345678 1,234.5 ½²Ⅷ ٣٤٥٦٧",
    "\ue000\uf8ff\U000f0000\U0010fffd \ufeff\ufffd\uffff",
    "e\u0301\u0323 \u00e9 \u212b \u1e9b\u0323 ﬁ \u0344",
    "in the United in the river of the one two three four five six seven eight nine ten",
    "\u00a0\u1680\u2003\u2028\u2029\u3000\u200b\u200d x \u0085y",
    "a" * 5000 + " " * 5000 + "\n" * 999 + "-" * 999,
    " a" * 5000,
]


def _random_texts(seed: int, count: int) -> list[str]:
    """Characters of one or two blocks of 64 each, of ASCII, or from anywhere."""
    rng = random.Random(seed)

    def anywhere() -> int:
        while 0xD800 <= (point := rng.randrange(0x110000)) < 0xE000:
            pass
        return point

    texts = []
    for _ in range(count):
        blocks = [anywhere() // 64 * 64 for _ in range(2)]
        pools = [[b + i for i in range(64)] for b in blocks]
        pools += [list(range(0x20, 0x7F)), [ord(" ")], [anywhere() for _ in range(8)]]
        texts.append("".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(80))))
    return texts


def _reference(data: bytes, texts: Sequence[str]) -> list[list[int]]:
    inner = tokenizers.Tokenizer.from_str(data.decode())
    inner.encode_special_tokens = True
    return [inner.encode(text, add_special_tokens=False).ids for text in texts]


def _lists(encoder: Encoder, texts: Sequence[str]) -> list[list[int]]:
    return [ids.tolist() for ids in encoders.split(encoder.flat(texts))]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast library from the first byte on, and nobody looks after it."""
    monkeypatch.setattr(encoders, "BULK", 0)
    monkeypatch.setattr(encoders, "FIRST", 0)
    monkeypatch.setattr(encoders, "ONE_IN", 10**9)


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test does to the trust of this process ends with it."""
    monkeypatch.setattr(Encoder, "_distrusted", False)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_fast_ids_are_the_reference_s(name: str) -> None:
    data = TOKENIZERS[name]
    texts = [*WIDE, *TEXTS[:5], *_random_texts(1, 1500)]
    encoder = Encoder(data, SIZE)
    assert _lists(encoder, texts) == _reference(data, texts)
    assert encoder.proof.fast
    assert encoder.proof.compared == 0


def _around_every(points: Sequence[int]) -> list[str]:
    """Each character beside letters of several scripts, digits, spaces, a sign and itself."""
    return [
        f"ab{c}cd {c}{c} A{c}b1{c}2 {c} 'ſ a'{c} {c}ب漢{c}한{c} {c}ア{c}\n{c}"
        for c in map(chr, points)
    ]


def _same_around(points: Sequence[int], pattern: str) -> None:
    data = handmade(SEAMS, pattern)
    encoder = Encoder(data, SIZE)
    for start in range(0, len(points), 2**15):
        texts = _around_every(points[start : start + 2**15])
        expected = encoder._by_reference(texts)
        for text, ours, theirs in zip(
            texts, encoders.split(encoder.flat(texts)), encoders.split(expected), strict=True
        ):
            assert ours.tolist() == theirs.tolist(), f"U+{ord(text[2]):04X}"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("pattern", [word_pattern(), multiword_pattern()], ids=["words", "runs"])
def test_the_fast_ids_are_the_reference_s_around_the_characters_of_most_scripts(
    pattern: str,
) -> None:
    others = random.Random(7).sample(range(0xE000, 0x110000), 2000)
    _same_around([*range(0x3200), *others], pattern)


@pytest.mark.soak
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_the_fast_ids_are_the_reference_s_around_every_character(pattern: str) -> None:
    _same_around([n for n in range(0x110000) if not 0xD800 <= n < 0xE000], pattern)


@pytest.mark.usefixtures("at_once")
def test_a_possessive_interval_would_not_mean_the_same_to_both() -> None:
    data = handmade(SEAMS, r" ?\p{L}++(?: \p{L}++){1,2}+|" + word_pattern())
    text = " a b c d e f g h"
    assert _lists(Encoder(data, SIZE), [text]) != _reference(data, [text])


def test_a_normaliser_that_the_fast_library_lacks_is_left_to_the_reference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encoders, "BULK", 0)
    data = handmade(SEAMS, normaliser="NFKC")
    encoder = Encoder(data, SIZE)
    assert _lists(encoder, WIDE) == _reference(data, WIDE)
    assert not encoder.proof.fast
    assert "fastokens cannot read this file" in caplog.text


@pytest.mark.usefixtures("at_once")
def test_a_text_on_which_the_fast_library_gives_up_is_encoded_by_the_reference() -> None:
    data = handmade(SEAMS, _RUNAWAY)
    texts = ["first", " a" * 40_000, "last"]
    with pytest.raises(ValueError, match="JIT stack"):
        fastokens.Tokenizer.from_json_str(data.decode()).encode_batch_flat(texts)
    encoder = Encoder(data, SIZE)
    assert _lists(encoder, texts) == _reference(data, texts)
    assert encoder.proof.fast


class _Liar:
    """Encodes as `fastokens` does, but for texts that begin with "lie"."""

    def __init__(self, data: bytes) -> None:
        self._inner = fastokens.Tokenizer.from_json_str(data.decode())

    def encode_batch_flat(self, texts: list[str], **keys: bool) -> tuple[bytes, bytes]:
        told = [text[::-1] if text.startswith("lie") else text for text in texts]
        return self._inner.encode_batch_flat(told, **keys)


def _lying(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    monkeypatch.setattr(encoders, "BULK", 0)
    encoder = Encoder(TRAINED, SIZE)
    monkeypatch.setattr(encoder, "_loaded_fast", _Liar(TRAINED))
    return encoder


@pytest.mark.usefixtures("trust")
def test_a_difference_is_logged_and_the_reference_s_ids_are_given_from_then_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = _lying(monkeypatch)
    texts = ["the river", "lie about it", "x"]
    assert _lists(encoder, texts) == _reference(TRAINED, texts)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "'lie about it'" in record.message
    assert (encoder.proof.differences, encoder.proof.fast) == (1, False)
    other = Encoder(TRAINED, SIZE)
    for now in (encoder, other):
        assert _lists(now, ["lie again"]) == _reference(TRAINED, ["lie again"])
        assert not now.proof.fast


@pytest.mark.usefixtures("trust")
def test_after_the_first_texts_a_sample_goes_on_being_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = _lying(monkeypatch)
    encoder.flat(TEXTS[: encoders.FIRST])
    assert encoder.proof.compared == encoders.FIRST
    for number in range(20 * encoders.ONE_IN):
        encoder.flat([f"lie {number}"])
        if encoder.proof.differences:
            break
    assert encoder.proof.differences == 1
    assert number > 0
    assert "fastokens and tokenizers differ" in caplog.text


def test_few_texts_do_not_load_the_fast_library_and_many_do() -> None:
    encoder = Encoder(TRAINED, SIZE)
    encoder.flat(["a short text"])
    assert not encoder.proof.fast
    texts = TEXTS[:10]
    while not encoder.proof.fast:
        assert encoder.proof.bytes < 2 * encoders.BULK * SIZE
        assert _lists(encoder, texts) == _reference(TRAINED, texts)
    assert encoder.proof.compared == len(texts)


@pytest.mark.usefixtures("at_once")
def test_threads_may_share_an_encoder() -> None:
    encoder = Encoder(TRAINED, SIZE)
    expected = _reference(TRAINED, TEXTS)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _lists(encoder, TEXTS), range(16)))
    assert all(lists == expected for lists in found)
    assert encoder.proof.texts == 16 * len(TEXTS)


@pytest.mark.parametrize("bulk", [0, 10**9])
def test_a_lone_surrogate_is_named_by_either_library(
    monkeypatch: pytest.MonkeyPatch, bulk: int
) -> None:
    monkeypatch.setattr(encoders, "BULK", bulk)
    with pytest.raises(UsageError, match=r"U\+DFFF at character 1"):
        Encoder(TRAINED, SIZE).flat(["fine", "x\udfff"])


def test_no_texts_give_no_ids() -> None:
    ids, offsets = Encoder(TRAINED, SIZE).flat([])
    assert (ids.dtype, len(ids), offsets.tolist()) == (np.uint32, 0, [0])


def test_a_file_that_the_reference_cannot_read_is_an_error_with_its_reason() -> None:
    with pytest.raises(EyasError, match=r"cannot read this tokenizer\.json"):
        Encoder(b'{"model": {"vocab": {}}}', SIZE).one("x")
