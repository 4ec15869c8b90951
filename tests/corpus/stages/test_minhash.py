"""Signatures find what the theory says, in bounded memory, and for good."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.texts import page

from eyas.corpus.stages import minhash
from eyas.corpus.stages.minhash import band_hashes, match_probability, matching_words
from eyas.corpus.steps.words import split_words


def bands(text: str, shingle: int = 5) -> set[int]:
    return set(band_hashes(matching_words(split_words(text)), 14, 8, shingle).tolist())


def test_a_signature_never_changes() -> None:
    found = band_hashes(
        matching_words("the quick brown fox jumps over the lazy dog".split()), 2, 3, 5
    )
    assert [f"{n:016x}" for n in found.tolist()] == SIGNATURE


SIGNATURE = ["383f79fd3432593a", "43147c3b4340b752"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: t.replace(".", "؟").replace(" ", "، ", 20), id="punctuation"),
        pytest.param(lambda t: t.replace("ا", "اً").replace("ر", "رّ"), id="diacritics"),
        pytest.param(lambda t: t.replace("ال", "الـــ"), id="tatweel"),
        pytest.param(lambda t: t.replace("إ", "ا").replace("أ", "ا"), id="alef"),
        pytest.param(lambda t: "\n".join(t.split()), id="white space"),
    ],
)
def test_arabic_variants_match_in_every_band(change: object) -> None:
    text = page(3, "ar")
    variant = change(text)  # type: ignore[operator]
    assert variant != text
    assert bands(variant) == bands(text)


def test_different_pages_share_no_band() -> None:
    sets = [bands(page(n, language)) for n in range(30) for language in ("en", "ar")]
    assert len(set().union(*sets)) == sum(len(s) for s in sets) == 60 * 14


def test_pairs_are_found_as_often_as_the_theory_says() -> None:
    numbers = np.random.default_rng(7)
    for shared in (0.5, 0.7, 0.8, 0.9):
        found = trials = 0
        for _ in range(300):
            size = 100
            common = round(2 * size * shared / (1 + shared))
            base = numbers.integers(1, 2**63, size=2 * size - common, dtype=np.uint64)
            one, other = base[:size], base[size - common :]
            jaccard = common / (2 * size - common)
            a, b = (set(band_hashes(w, 14, 8, 1).tolist()) for w in (one, other))
            found += bool(a & b)
            trials += 1
        assert found / trials == pytest.approx(match_probability(jaccard, 14, 8), abs=0.09)


def test_published_curve() -> None:
    assert match_probability(0.8, 14, 8) == pytest.approx(0.924, abs=1e-3)
    assert match_probability(0.8, 450, 20) == pytest.approx(0.995, abs=1e-3)
    assert match_probability(0.8, 20, 450) == pytest.approx(0, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 400), st.integers(1, 30), st.integers(0, 9))
def test_chunks_do_not_change_a_signature(size: int, chunk: int, seed: int) -> None:
    words = np.random.default_rng(seed).integers(1, 2**63, size=size, dtype=np.uint64)
    whole = band_hashes(words, 14, 8, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "_CELLS", chunk * 112)
        assert band_hashes(words, 14, 8, 5).tolist() == whole.tolist()


def test_a_huge_document_costs_little_memory() -> None:
    words = np.random.default_rng(1).integers(1, 2**63, size=1_000_000, dtype=np.uint64)
    tracemalloc.start()
    band_hashes(words, 14, 8, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_text_shorter_than_a_shingle_matches_exactly_or_not_at_all() -> None:
    assert bands("three short words") == bands("Three, short words!")
    assert len(bands("three short words")) == 1
    assert bands("three short words") != bands("three short wards")


def test_order_matters_and_copies_do_not() -> None:
    words = page(1).split()
    random.Random(1).shuffle(words)
    assert not bands(" ".join(words)) & bands(page(1))
    assert bands(page(1) + "\n\n" + page(1)) & bands(page(1))
