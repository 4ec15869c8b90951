"""The rules as data, and the decision: recorded values in, the first rule that fails out.

A rule compares one measured value with one limit of the recipe or of the language pack. What the
values are is said where they are measured (`repetition.py`, `gopher.py`, `c4.py`, `fineweb.py`,
`lines.py`). The decision reads nothing but values and limits, so it can be taken again later with
other limits, without the text. Keys in `SHAPING` change the text or what is measured; no recorded
value answers for another setting of those. The order inside a step is that of datatrove 0.10, so
that the first reason given is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .packs import LanguageRules

__all__ = ["RULES", "SHAPING", "Failure", "Rule", "verdict"]


@dataclass(frozen=True)
class Rule:
    """Keep a document if `limit <= value` (side "low") or `value <= limit` (side "high")."""

    step: str
    measure: str
    reason: str
    key: str
    side: str

    def keeps(self, value: float, limit: float) -> bool:
        """Equality keeps."""
        return limit <= value if self.side == "low" else value <= limit


@dataclass(frozen=True)
class Failure:
    """The first rule that a document fails, and its value."""

    rule: Rule
    value: float


def verdict(values: Mapping[str, float], rules: LanguageRules) -> Failure | None:
    """None to keep. `values` are named `step.measure`. Steps that have no rules here are passed."""
    for step in rules.steps:
        for rule in RULES.get(step, ()):
            value = values[f"{step}.{rule.measure}"]
            if not rule.keeps(value, rules.limits[step][rule.key]):
                return Failure(rule, value)
    return None


def _most(step: str, *measures: str) -> tuple[Rule, ...]:
    """Rules whose reason is the measure's name and whose key is `max_` and it."""
    return tuple(Rule(step, m, m, f"max_{m}", "high") for m in measures)


RULES: Mapping[str, tuple[Rule, ...]] = {
    "repetition": _most(
        "repetition",
        "duplicate_paragraphs",
        "duplicate_paragraph_characters",
        "duplicate_lines",
        "duplicate_line_characters",
        *(f"top_{n}_gram" for n in (2, 3, 4)),
        *(f"duplicated_{n}_grams" for n in range(5, 11)),
    ),
    "gopher": (
        Rule("gopher", "words", "too_few_words", "min_words", "low"),
        Rule("gopher", "words", "too_many_words", "max_words", "high"),
        Rule("gopher", "word_length", "words_too_short", "min_word_length", "low"),
        Rule("gopher", "word_length", "words_too_long", "max_word_length", "high"),
        Rule("gopher", "hashes", "too_many_hashes", "max_hashes", "high"),
        Rule("gopher", "ellipses", "too_many_ellipses", "max_ellipses", "high"),
        Rule("gopher", "bullet_lines", "too_many_bullet_lines", "max_bullet_lines", "high"),
        Rule("gopher", "ellipsis_lines", "too_many_ellipsis_lines", "max_ellipsis_lines", "high"),
        Rule("gopher", "letter_words", "too_few_letter_words", "min_letter_words", "low"),
        Rule("gopher", "stop_words", "too_few_stop_words", "min_stop_words", "low"),
    ),
    "c4": (
        *_most("c4", "lorem_ipsum", "curly_brackets"),
        Rule("c4", "sentences", "too_few_sentences", "min_sentences", "low"),
        *_most("c4", "bad_words"),
    ),
    "fineweb": (
        Rule(
            *("fineweb", "punctuated_lines", "too_few_punctuated_lines"),
            *("min_punctuated_lines", "low"),
        ),
        Rule("fineweb", "short_lines", "too_many_short_lines", "max_short_lines", "high"),
        *_most("fineweb", "duplicate_line_characters", "newlines_per_word"),
    ),
    "lines": (
        Rule("lines", "removed_words", "too_many_removed_words", "max_removed_words", "high"),
    ),
}

SHAPING: Mapping[str, frozenset[str]] = {
    "repetition": frozenset(),
    "gopher": frozenset({"stop_words"}),
    "c4": frozenset(
        {
            "terminal_punctuation",
            "min_line_words",
            "max_word_characters",
            "drop_javascript",
            "drop_policy",
            "remove_citations",
            "bad_words",
        }
    ),
    "fineweb": frozenset({"short_line_characters"}),
    "lines": frozenset(
        {"max_uppercase", "drop_numbers", "drop_counters", "min_line_words", "cut_line_words"}
    ),
}
