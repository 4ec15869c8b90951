"""The decision is pure in the recorded values, and a value at its limit is kept."""

from __future__ import annotations

import pytest

from eyas.corpus.steps.packs import LanguageRules, resolve
from eyas.corpus.steps.rules import RULES, SHAPING, verdict
from eyas.recipe import Corpus

STEPS = ("repetition", "gopher", "c4", "fineweb", "lines")
RULESET = resolve(Corpus(steps=("language", *STEPS)))


def good_values(rules: LanguageRules) -> dict[str, float]:
    """Each at the lower limit where there is one, else at the upper."""
    values: dict[str, float] = {}
    for step in STEPS:
        for rule in sorted(RULES[step], key=lambda rule: rule.side != "low"):
            values.setdefault(f"{step}.{rule.measure}", rules.limits[step][rule.key])
    return values


@pytest.mark.parametrize("language", ["en", "ar", "fr", "de", "es", "ru", "zh", "ja", "hi", "tr"])
def test_a_value_at_its_limit_is_kept_and_the_next_is_not(language: str) -> None:
    rules = RULESET.for_language(language)
    good = good_values(rules)
    assert verdict(good, rules) is None
    for step in STEPS:
        for rule in RULES[step]:
            name, limit = f"{step}.{rule.measure}", rules.limits[step][rule.key]
            assert verdict(good | {name: limit}, rules) is None
            past = limit + (1e-9 if rule.side == "high" else -1e-9)
            failure = verdict(good | {name: past}, rules)
            assert failure is not None
            assert (failure.rule, failure.value) == (rule, past)


def test_the_first_step_that_fails_gives_the_reason() -> None:
    rules = RULESET.for_language("en")
    values = good_values(rules) | {"gopher.words": 0, "repetition.duplicate_lines": 1}
    failure = verdict(values, rules)
    assert failure is not None
    assert failure.rule.reason == "duplicate_lines"
    gopher_first = LanguageRules("gopher", ("language", "gopher", "repetition"), rules.limits)
    failure = verdict(values, gopher_first)
    assert failure is not None
    assert failure.rule.reason == "too_few_words"


def test_every_limit_is_a_rule_or_shapes_the_text() -> None:
    limits = RULESET.for_language("en").limits
    for step in STEPS:
        assert set(limits[step]) == {rule.key for rule in RULES[step]} | SHAPING[step]
        assert not {rule.key for rule in RULES[step]} & SHAPING[step]


def test_names_are_unique() -> None:
    rules = [rule for step in STEPS for rule in RULES[step]]
    assert len({(rule.step, rule.key) for rule in rules}) == len(rules)
    assert len({(rule.step, rule.reason) for rule in rules}) == len(rules)
    assert {rule.side for rule in rules} == {"low", "high"}


def test_published_thresholds() -> None:
    limits = RULESET.for_language("en").limits
    assert {
        f"{step}.{rule.key}": limits[step][rule.key] for step in STEPS for rule in RULES[step]
    } == {
        "repetition.max_duplicate_paragraphs": 0.30,
        "repetition.max_duplicate_paragraph_characters": 0.20,
        "repetition.max_duplicate_lines": 0.30,
        "repetition.max_duplicate_line_characters": 0.20,
        "repetition.max_top_2_gram": 0.20,
        "repetition.max_top_3_gram": 0.18,
        "repetition.max_top_4_gram": 0.16,
        "repetition.max_duplicated_5_grams": 0.15,
        "repetition.max_duplicated_6_grams": 0.14,
        "repetition.max_duplicated_7_grams": 0.13,
        "repetition.max_duplicated_8_grams": 0.12,
        "repetition.max_duplicated_9_grams": 0.11,
        "repetition.max_duplicated_10_grams": 0.10,
        "gopher.min_words": 50,
        "gopher.max_words": 100_000,
        "gopher.min_word_length": 3,
        "gopher.max_word_length": 10,
        "gopher.max_hashes": 0.1,
        "gopher.max_ellipses": 0.1,
        "gopher.max_bullet_lines": 0.9,
        "gopher.max_ellipsis_lines": 0.3,
        "gopher.min_letter_words": 0.8,
        "gopher.min_stop_words": 2,
        "c4.max_lorem_ipsum": 0,
        "c4.max_curly_brackets": 0,
        "c4.min_sentences": 5,
        "c4.max_bad_words": 0,
        "fineweb.min_punctuated_lines": 0.12,
        "fineweb.max_short_lines": 0.67,
        "fineweb.max_duplicate_line_characters": 0.1,
        "fineweb.max_newlines_per_word": 0.3,
        "lines.max_removed_words": 0.05,
    }
