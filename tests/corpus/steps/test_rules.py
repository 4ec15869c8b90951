"""Gopher's rules with the published thresholds, on the side of the boundary that was published."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import page

from eyas.corpus.steps.packs import PACKS, Pack, pack_for, packs_digest
from eyas.corpus.steps.rules import measure, rules_of, verdict
from eyas.corpus.steps.words import split_words

ENGLISH, ARABIC = pack_for("en"), pack_for("ar")
words_of = st.integers(1, 30).flatmap(
    lambda size: st.lists(st.sampled_from([f"w{n}" for n in range(size)]), max_size=120)
)


def values_of(text: str, pack: Pack = ENGLISH) -> dict[str, float]:
    return measure(text, split_words(text), pack)


def reason(text: str, pack: Pack = ENGLISH) -> str:
    failure = verdict(values_of(text, pack), pack)
    return failure.rule.reason if failure else ""


def fillers(count: int, length: int = 5) -> list[str]:
    """Different words of this length."""
    alphabet = "bcdfghjklm"
    digits = (f"{n:0{length}d}" for n in range(count))
    return ["".join(alphabet[int(d)] for d in word) for word in digits]


@given(words_of)
def test_ngram_shares_are_those_of_the_plain_definition(words: list[str]) -> None:
    text = " ".join(words) or "-"
    values = measure(text, words, ENGLISH)
    for n, _ in ENGLISH.top_ngrams:
        grams = [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
        gram, count = Counter(grams).most_common(1)[0] if grams else ("", 0)
        assert values[f"top_{n}_gram"] == pytest.approx(len(gram) * count / len(text))
    for n, _ in ENGLISH.duplicated_ngrams:
        seen, place, characters = set[tuple[str, ...]](), 0, 0
        while place <= len(words) - n:
            run = tuple(words[place : place + n])
            characters += len("".join(run)) if run in seen else 0
            place += n if run in seen else 1
            seen.add(run)
        assert values[f"duplicated_{n}_grams"] == pytest.approx(characters / len(text))


def test_published_thresholds() -> None:
    bounds = {r.reason: (r.low, r.high) for r in rules_of(ENGLISH)}
    upper = {
        "duplicate_lines": 0.30,
        "duplicate_paragraphs": 0.30,
        "duplicate_line_characters": 0.20,
        "duplicate_paragraph_characters": 0.20,
        "top_2_gram": 0.20,
        "top_3_gram": 0.18,
        "top_4_gram": 0.16,
        "duplicated_5_grams": 0.15,
        "duplicated_6_grams": 0.14,
        "duplicated_7_grams": 0.13,
        "duplicated_8_grams": 0.12,
        "duplicated_9_grams": 0.11,
        "duplicated_10_grams": 0.10,
        "too_many_words": 100_000,
        "words_too_long": 10,
        "too_many_hashes": 0.1,
        "too_many_ellipses": 0.1,
        "too_many_bullet_lines": 0.9,
        "too_many_ellipsis_lines": 0.3,
    }
    lower = {
        "too_few_words": 50,
        "words_too_short": 3,
        "too_few_letter_words": 0.8,
        "too_few_stop_words": 2,
    }
    assert {k: high for k, (_, high) in bounds.items() if k in upper} == upper
    assert {k: low for k, (low, _) in bounds.items() if k in lower} == lower
    assert set(bounds) == set(upper) | set(lower)


@pytest.mark.parametrize("language", sorted({*PACKS, "fi"}))
def test_a_value_at_its_threshold_is_kept_and_the_next_is_not(language: str) -> None:
    pack = pack_for(language)
    good = {
        r.measure: sum(b for b in (r.low, r.high) if abs(b) != float("inf")) for r in rules_of(pack)
    }
    good |= {"words": pack.min_words, "word_length": pack.min_word_length}
    assert verdict(good, pack) is None
    step = 1e-9
    for rule in rules_of(pack):
        at = rule.high if rule.high != float("inf") else rule.low
        past = at + step if rule.high != float("inf") else at - step
        assert verdict(good | {rule.measure: at}, pack) is None
        failure = verdict(good | {rule.measure: past}, pack)
        assert failure is not None
        assert (failure.rule.reason, failure.value) == (rule.reason, past)


def test_word_count_boundary_on_text() -> None:
    kept = ["the", "of", *fillers(48)]
    assert reason(" ".join(kept)) == ""
    assert reason(" ".join(kept[:-1])) == "too_few_words"
    assert reason(" ".join(kept[:-1]) + " . ! ?") == "too_few_words"


def test_stop_words_count_distinct() -> None:
    assert reason(" ".join(["the", *fillers(60)])) == "too_few_stop_words"
    assert reason(" ".join(["the", "the", *fillers(60)])) == "too_few_stop_words"
    assert reason(" ".join(["the", "of", *fillers(60)])) == ""


def test_letters_count_against_all_tokens() -> None:
    words = ["the", "of", *fillers(78)]
    numbers = [str(n * n) for n in range(21)]
    assert reason(" ".join([*words, *numbers[:20]])) == ""
    assert reason(" ".join([*words, *numbers])) == "too_few_letter_words"


def test_repeated_lines_and_paragraphs() -> None:
    lines = [" ".join(fillers(60)[n : n + 6]) for n in range(0, 60, 6)]
    assert values_of("\n".join([*lines, lines[0]]))["duplicate_lines"] == pytest.approx(1 / 11)
    values = values_of("\n\n".join([*lines, lines[0], lines[1]]))
    assert values["duplicate_paragraphs"] == pytest.approx(2 / 12)
    assert values["duplicate_lines"] == pytest.approx(2 / 12)


def test_arabic_is_not_eaten_by_english_rules() -> None:
    texts = [page(n, "ar") for n in range(40)]
    assert [reason(t, ARABIC) for t in texts] == [""] * 40
    assert {reason(t, ENGLISH) for t in texts} == {"too_few_stop_words"}


def test_arabic_takes_the_published_numbers() -> None:
    assert (ARABIC.min_word_length, ARABIC.max_word_length) == (2, 9)
    assert (ARABIC.min_letter_words, ARABIC.max_duplicate_lines) == (0.787, 0.304)
    assert ARABIC.top_ngrams == ((2, 0.197), (3, 0.172), (4, 0.146))
    assert len(ARABIC.stop_words) == 19
    assert ARABIC.min_stop_words == 2


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "これは{}番目の文で、図書館の本を読んで{}ページについて書いた。"),
        ("zh", "这是第{}个句子，我们在图书馆读书，第{}页写的是历史和自然。"),
    ],
)
def test_scripts_without_spaces_are_counted_in_characters(language: str, text: str) -> None:
    pack = pack_for(language)
    numbers = "一二三四五六七八九十百千万春夏秋冬東西南北山川海空花鳥風月"
    lines = [text.format(a, b) for a, b in zip(numbers, reversed(numbers), strict=True)]
    values = values_of("\n".join(lines), pack)
    assert values["words"] > 500
    assert values["word_length"] == pytest.approx(1, abs=0.05)
    assert values["stop_words"] >= pack.min_stop_words


def test_an_empty_text_has_values_and_is_dropped() -> None:
    for pack in (ENGLISH, ARABIC, pack_for("ja")):
        assert set(values_of("", pack)) == {r.measure for r in rules_of(pack)}
        assert reason("", pack) == "too_few_words"


def test_a_changed_number_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = packs_digest()
    assert packs_digest() == before
    monkeypatch.setitem(PACKS, "ar", dataclasses.replace(ARABIC, min_words=49))
    assert packs_digest() != before
