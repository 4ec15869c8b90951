"""A text through the word-level steps.

A text and the rules of its language go in; the text that is left, how many words it has, every
value and the first rule that fails come out. Each step sees the text as the steps before it left
it. Every step is measured also behind a failure, so that the decision can be taken again from the
values with other limits. A text is cut into lines and words once; what a step leaves of its lines
is known by their words already. Pure in (text, rules).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import c4, fineweb, gopher, lines, repetition
from .rules import RULES, Failure, verdict
from .words import WORD, Style, Words, count_words, describe_pieces

if TYPE_CHECKING:
    from .packs import LanguageRules

__all__ = ["Filtered", "filter_text"]


@dataclass(frozen=True)
class Filtered:
    """`words` are the tokens of `text` that are not punctuation only, `values` are named
    `step.measure`; `failure` is None for a text to keep."""

    text: str
    words: int
    values: dict[str, float]
    failure: Failure | None


@dataclass(frozen=True)
class _Passage:
    """A text, its lines without white space at their ends, what stands between white space in each,
    the tokens of all, and how many each line has."""

    text: str
    lines: list[str]
    pieces: list[list[str]]
    words: Words
    counts: npt.NDArray[np.int64]


def filter_text(text: str, rules: LanguageRules) -> Filtered:
    """What the steps of `rules` make of `text`; steps that are not word-level are passed over."""
    values: dict[str, float] = {}
    style = _style(rules)
    passage = _passage(text, style)
    for step in rules.steps:
        if step not in RULES:
            continue
        if step == "c4":
            passage, measured = _c4(passage, rules)
        elif step == "lines":
            count = functools.partial(count_words, style=style)
            left, measured = lines.rewrite(passage.text, rules.limits["lines"], count)
            if left != passage.text:
                passage = _passage(left, style)
        elif step == "repetition":
            per_word = rules.limits["words"]["tokens_per_word"]
            measured = repetition.measure(passage.text, passage.words, per_word)
        elif step == "gopher":
            stop_words = rules.limits["gopher"]["stop_words"]
            measured = gopher.measure(passage.text, passage.lines, passage.words, stop_words)
        else:
            measured = _fineweb(passage, rules)
        values |= {f"{step}.{name}": value for name, value in measured.items()}
    words = int(np.count_nonzero(passage.words.flags & WORD))
    return Filtered(passage.text, words, values, verdict(values, rules))


def _style(rules: LanguageRules) -> Style:
    keys = rules.limits["words"]
    return Style(keys["keep_hyphens"], keys["keep_ordinals"], tuple(keys["whole_words"]))


def _passage(text: str, style: Style) -> _Passage:
    found = list(map(str.strip, text.splitlines()))
    pieces = list(map(str.split, found))
    return _Passage(text, found, pieces, *describe_pieces(pieces, style))


def _c4(passage: _Passage, rules: LanguageRules) -> tuple[_Passage, dict[str, float]]:
    limits, signs = rules.limits["c4"], rules.limits["punctuation"]
    pieces, style = passage.pieces, _style(rules)
    kept = c4.kept_lines(
        passage.text, passage.lines, list(map(len, pieces)), limits, signs["line_end"]
    )
    left = "\n".join(kept.lines).strip()
    if kept.cut:
        pieces = list(map(str.split, kept.lines))
        words, counts = describe_pieces(pieces, style)
    elif len(kept.lines) < len(passage.lines):
        pieces = [pieces[number] for number in kept.numbers]
        there = np.zeros(len(passage.lines), np.bool_)
        there[kept.numbers] = True
        counts = passage.counts[there]
        words = Words(passage.words.table, passage.words.rows[np.repeat(there, passage.counts)])
    else:
        words, counts = passage.words, passage.counts
    values = kept.values | {
        "sentences": c4.count_sentences(kept.lines, words, counts, frozenset(signs["terminal"])),
        "bad_words": c4.count_bad_words(left, tuple(limits["bad_words"])),
    }
    found = list(map(str.strip, kept.lines)) if kept.cut else kept.lines
    if "" in found:
        return _passage(left, style), values
    return _Passage(left, found, pieces, words, counts), values


def _fineweb(passage: _Passage, rules: LanguageRules) -> dict[str, float]:
    return fineweb.measure(
        passage.text,
        len(passage.words),
        short_line_characters=rules.limits["fineweb"]["short_line_characters"],
        terminals=frozenset(rules.limits["punctuation"]["terminal"]),
    )
