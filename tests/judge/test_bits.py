"""Bits are what the model's probabilities say, over every token, once."""

from __future__ import annotations

import dataclasses
import lzma
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judge.made import SHAPE, Bytes, Uniform, random_model

from eyas.judge import HeldOut, JudgeError, score_documents, xz_bytes

TEXT = "Der Falke, صقرٌ 🦅, the falcon. "


def documents(*texts: str) -> list[HeldOut]:
    return [HeldOut(f"{number:032x}", text) for number, text in enumerate(texts)]


@settings(max_examples=60)
@given(st.lists(st.text(max_size=300), max_size=5), st.integers(2, 64))
def test_a_uniform_model_needs_log2_v_bits_a_token(texts: list[str], context: int) -> None:
    scores = score_documents(Uniform(), documents(*texts), context)
    for score, text in zip(scores, texts, strict=True):
        assert score.tokens == len(text.encode())
        assert score.bytes == len(text.encode())
        assert score.bits == pytest.approx(math.log2(SHAPE.vocab_size) * score.tokens, rel=1e-6)


def test_a_document_that_fits_is_scored_as_the_model_sees_it_whole() -> None:
    model = random_model()
    text = TEXT
    ids = [0, *Bytes().encode(text)]
    log_p = torch.log_softmax(model.logits([ids])[0].double(), dim=-1)
    by_hand = -sum(float(log_p[i, ids[i + 1]]) for i in range(len(ids) - 1)) / math.log(2)
    (score,) = score_documents(model, documents(text), 64)
    assert score.bits == pytest.approx(by_hand, rel=1e-5)


def test_a_long_document_is_scored_window_by_window_as_by_hand() -> None:
    model, context = random_model(), 16
    ids = [0, *Bytes().encode(TEXT * 5)]
    bits, first = 0.0, 1
    while first < len(ids):
        start = 0 if first == 1 else first - context // 2
        window = ids[start : start + context + 1]
        log_p = torch.log_softmax(model.logits([window[:-1]])[0].double(), dim=-1)
        for position in range(first, start + len(window)):
            bits -= float(log_p[position - start - 1, ids[position]]) / math.log(2)
        first = start + len(window)
    (score,) = score_documents(model, documents(TEXT * 5), context)
    assert score.bits == pytest.approx(bits, rel=1e-5)


def test_company_in_a_batch_changes_nothing() -> None:
    model = random_model()
    texts = ["", "a", TEXT, TEXT * 3, "x" * 200]
    alone = [score_documents(model, documents(t), 32)[0].bits for t in texts]
    together = [s.bits for s in score_documents(model, documents(*texts), 32)]
    assert together == pytest.approx(alone, rel=1e-5)


def test_batches_are_bounded_whatever_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyas.judge.bits._LOGITS_A_BATCH", 257 * 64)
    sizes: list[int] = []

    class Counting(Uniform):
        def logits(self, ids_BT: torch.Tensor) -> torch.Tensor:
            sizes.append(ids_BT.numel())
            return super().logits(ids_BT)

    score_documents(Counting(), documents(*["x" * n for n in (3, 500, 17, 64)]), 32)
    assert max(sizes) <= 64
    assert len(sizes) > 5


def test_a_model_that_answers_no_number_is_named_with_its_document() -> None:
    with pytest.raises(JudgeError, match=f"document {0:032x}"):
        score_documents(Uniform(value=math.nan), documents("abc"), 16)


def test_progress_ends_at_all_bytes() -> None:
    done: list[float] = []
    score_documents(Uniform(), documents(TEXT * 9, "abc"), 16, done.append)
    assert sum(done) == pytest.approx(len((TEXT * 9 + "abc").encode()))


def test_xz_is_lzma_on_the_concatenated_text() -> None:
    words = random.Random(1)
    texts = [" ".join(words.choice(TEXT.split()) for _ in range(200)) for _ in range(3)]
    by_hand = lzma.compress("".join(texts).encode(), preset=lzma.PRESET_EXTREME | 9)
    assert xz_bytes(texts) == len(by_hand)


def test_a_shape_of_another_vocabulary_is_scored_in_its_own() -> None:
    wide = Uniform(shape=dataclasses.replace(SHAPE, vocab_size=1024))
    (score,) = score_documents(wide, documents("four"), 16)
    assert score.bits == pytest.approx(10 * 4)
