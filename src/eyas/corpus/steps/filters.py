"""A text through the word-level steps.

A text and the rules of its language go in; the text that is left, its tokens, every value and the
first rule that fails come out. Each step sees the text as the steps before it left it. Every step
is measured also behind a failure, so that the decision can be taken again from the values with
other limits. Words are split once a line, and again only for a line that a step changed. Pure in
(text, rules).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import c4, fineweb, gopher, lines, repetition
from .rules import RULES, Failure, verdict
from .words import Words, describe, split_words

if TYPE_CHECKING:
    from .packs import LanguageRules

__all__ = ["Filtered", "filter_text"]

_Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class Filtered:
    """`values` are named `step.measure`; `failure` is None for a text to keep."""

    text: str
    tokens: list[str]
    values: dict[str, float]
    failure: Failure | None


def filter_text(text: str, rules: LanguageRules) -> Filtered:
    """What the steps of `rules` make of `text`; steps that are not word-level are passed over."""
    values: dict[str, float] = {}
    split = functools.cache(split_words)  # by line, for this text only
    tokens = _tokens(text, split)
    words: Words | None = None
    for step in rules.steps:
        if step not in RULES:
            continue
        if step in ("c4", "lines"):
            left, measured = _rewritten(step, text, rules, split)
            if left != text:
                text, tokens, words = left, _tokens(left, split), None
        elif step == "fineweb":
            measured = _fineweb(text, len(tokens), rules)
        else:
            words = words or describe(tokens)
            measured = _gopher(step, text, words, rules)
        values |= {f"{step}.{name}": value for name, value in measured.items()}
    return Filtered(text, tokens, values, verdict(values, rules))


def _tokens(text: str, split: _Split) -> list[str]:
    """No token holds white space, so a text is the tokens of its lines."""
    return list(itertools.chain.from_iterable(map(split, map(str.strip, text.splitlines()))))


def _rewritten(
    step: str, text: str, rules: LanguageRules, split: _Split
) -> tuple[str, dict[str, float]]:
    limits, signs = rules.limits[step], rules.limits["punctuation"]
    if step == "lines":
        return lines.rewrite(text, limits, split)
    return c4.rewrite(
        text, limits, line_end=signs["line_end"], terminal=signs["terminal"], split=split
    )


def _gopher(step: str, text: str, words: Words, rules: LanguageRules) -> dict[str, float]:
    if step == "repetition":
        return repetition.measure(text, words, rules.limits["words"]["tokens_per_word"])
    return gopher.measure(text, words, rules.limits["gopher"]["stop_words"])


def _fineweb(text: str, tokens: int, rules: LanguageRules) -> dict[str, float]:
    return fineweb.measure(
        text,
        tokens,
        short_line_characters=rules.limits["fineweb"]["short_line_characters"],
        terminals=frozenset(rules.limits["punctuation"]["terminal"]),
    )
