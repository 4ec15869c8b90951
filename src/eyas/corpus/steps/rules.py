"""Gopher's repetition and quality rules (arXiv 2112.11446, table A1) as pure functions.

`measure` takes a text and its tokens and gives every value, also those after the first that fails,
so that a report can draw them and a threshold can be judged again without reading the page again.
`verdict` holds the values against a language pack, in the published order. Where implementations
differ this follows datatrove: shares are of all characters of the text; of repeated lines,
paragraphs and n-grams only later copies count, and a repeated n-gram skips past itself; the most
frequent n-gram is counted with its spaces, the first one among equals; punctuation is a token but
not a word; stop words are counted distinct and case as written.

An n-gram is compared by a 64-bit hash of its tokens, rolled over the document with numpy: words are
split once and no n-gram is ever built as a string.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .packs import Pack
from .words import is_word

__all__ = ["Failure", "Rule", "measure", "rules_of", "verdict"]

_PARAGRAPHS = re.compile(r"\n{2,}")
_LINES = re.compile(r"\n+")
_BULLETS = ("•", "-")
_ELLIPSES = ("...", "…")
_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rule:
    """Keep a document if `low <= value <= high` of its `measure`."""

    stage: str
    measure: str
    reason: str
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Failure:
    """The first rule that a document fails, and its value."""

    rule: Rule
    value: float


@functools.cache
def rules_of(pack: Pack) -> tuple[Rule, ...]:
    """A pack's rules in the order in which they decide: repetition, then quality."""
    r = functools.partial(Rule, "repetition")
    q = functools.partial(Rule, "quality")
    return (
        r("duplicate_paragraphs", "duplicate_paragraphs", high=pack.max_duplicate_paragraphs),
        r(
            "duplicate_paragraph_characters",
            "duplicate_paragraph_characters",
            high=pack.max_duplicate_paragraph_characters,
        ),
        r("duplicate_lines", "duplicate_lines", high=pack.max_duplicate_lines),
        r(
            "duplicate_line_characters",
            "duplicate_line_characters",
            high=pack.max_duplicate_line_characters,
        ),
        *(r(f"top_{n}_gram", f"top_{n}_gram", high=share) for n, share in pack.top_ngrams),
        *(
            r(f"duplicated_{n}_grams", f"duplicated_{n}_grams", high=share)
            for n, share in pack.duplicated_ngrams
        ),
        q("words", "too_few_words", low=pack.min_words),
        q("words", "too_many_words", high=pack.max_words),
        q("word_length", "words_too_short", low=pack.min_word_length),
        q("word_length", "words_too_long", high=pack.max_word_length),
        q("hashes", "too_many_hashes", high=pack.max_hashes),
        q("ellipses", "too_many_ellipses", high=pack.max_ellipses),
        q("bullet_lines", "too_many_bullet_lines", high=pack.max_bullet_lines),
        q("ellipsis_lines", "too_many_ellipsis_lines", high=pack.max_ellipsis_lines),
        q("letter_words", "too_few_letter_words", low=pack.min_letter_words),
        q("stop_words", "too_few_stop_words", low=pack.min_stop_words),
    )


def verdict(values: Mapping[str, float], pack: Pack) -> Failure | None:
    """None to keep, or the first rule that fails."""
    for rule in rules_of(pack):
        if not rule.low <= values[rule.measure] <= rule.high:
            return Failure(rule, values[rule.measure])
    return None


def measure(text: str, tokens: Sequence[str], pack: Pack) -> dict[str, float]:
    """Every value that the rules of `pack` read. `tokens` are `split_words(text)`."""
    index = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    ids = np.fromiter(map(index.__getitem__, tokens), np.int64, len(tokens))
    values = _lines(text) | _words(text, ids, index, pack)
    return values | _ngrams(len(text), ids, index, pack)


def _lines(text: str) -> dict[str, float]:
    paragraphs = _PARAGRAPHS.split(text.strip())
    lines = _LINES.split(text)
    shown = text.splitlines() or [""]
    characters = len(text) or 1
    again, again_characters = _later_copies(paragraphs)
    lines_again, line_characters = _later_copies(lines)
    return {
        "duplicate_paragraphs": again / len(paragraphs),
        "duplicate_paragraph_characters": again_characters / characters,
        "duplicate_lines": lines_again / len(lines),
        "duplicate_line_characters": line_characters / characters,
        "bullet_lines": sum(s.lstrip().startswith(_BULLETS) for s in shown) / len(shown),
        "ellipsis_lines": sum(s.rstrip().endswith(_ELLIPSES) for s in shown) / len(shown),
    }


def _later_copies(items: Sequence[str]) -> tuple[int, int]:
    """How many items stood before, and their characters."""
    if len(set(items)) == len(items):
        return 0, 0
    seen: set[str] = set()
    count = characters = 0
    for item in items:
        if item in seen:
            count += 1
            characters += len(item)
        seen.add(item)
    return count, characters


def _words(text: str, ids: _I64, index: Mapping[str, int], pack: Pack) -> dict[str, float]:
    real = np.array([is_word(t) for t in index], dtype=bool)
    letters = np.array([_has_letter(t) for t in index], dtype=bool)
    lengths = _lengths(index)
    n_tokens = len(ids) or 1
    n_words = int(real[ids].sum()) if len(ids) else 0
    characters = int((lengths * real)[ids].sum()) if n_words else 0
    return {
        "words": n_words,
        "word_length": characters / n_words if n_words else 0.0,
        "hashes": text.count("#") / n_tokens,
        "ellipses": (text.count("...") + text.count("…")) / n_tokens,
        "letter_words": int(letters[ids].sum()) / n_tokens if len(ids) else 0.0,
        "stop_words": sum(word in index for word in pack.stop_words),
    }


def _has_letter(token: str) -> bool:
    return token[0].isalpha() or any(map(str.isalpha, token))


def _lengths(index: Mapping[str, int]) -> _I64:
    return np.array([len(t) for t in index], dtype=np.int64)


def _ngrams(n_characters: int, ids: _I64, index: Mapping[str, int], pack: Pack) -> dict[str, float]:
    """Shares of the most frequent and of the repeated n-grams; 0 where the text has no n tokens.

    An n-gram can only be repeated where the n-1-gram at its place is, so each round looks at fewer
    places."""
    tops, copies = dict(pack.top_ngrams), dict(pack.duplicated_ngrams)
    values = {f"top_{n}_gram": 0.0 for n in tops} | {f"duplicated_{n}_grams": 0.0 for n in copies}
    if not len(ids):
        return values
    tokens = _mix(np.arange(1, len(index) + 1, dtype=np.uint64))[ids]
    ends = np.concatenate(([0], np.cumsum(_lengths(index)[ids])))
    space = 1 if pack.tokens_per_word == 1 else 0
    hashes, places = tokens, np.arange(len(tokens))
    for n in range(2, min(max([*tops, *copies]), len(ids)) + 1):
        hashes = hashes[:-1] * _ROLL + tokens[n - 1 :]
        places, first, count = _repeats(hashes, places[places < len(hashes)])
        if n in tops:
            length = int(ends[first + n] - ends[first]) + space * (n - 1)
            values[f"top_{n}_gram"] = length * count / n_characters
        if n in copies:
            repeated = _later_characters(hashes[places].tolist(), places.tolist(), ends, n)
            values[f"duplicated_{n}_grams"] = repeated / n_characters
    return values


_ROLL = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: _U64) -> _U64:
    """splitmix64: spreads small numbers over 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _repeats(hashes: _U64, places: _I64) -> tuple[_I64, int, int]:
    """Which places hold an n-gram that occurs more than once; where the first of the most frequent
    ones is, and how often it occurs (the very first n-gram, once, if none is repeated)."""
    order = np.argsort(hashes[places], kind="stable")
    ordered = hashes[places][order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(ordered)]
    counts = np.diff(np.append(starts, len(ordered)))
    if not len(counts) or counts.max() == 1:
        return places[:0], 0, 1
    first = int(places[np.minimum.reduceat(order, starts)[counts == counts.max()].min()])
    kept = np.sort(order[np.repeat(counts > 1, counts)])
    return places[kept], first, int(counts.max())


def _later_characters(hashes: list[int], places: list[int], ends: _I64, n: int) -> int:
    """Characters of n-grams that stood before, each skipping past itself."""
    seen: set[int] = set()
    characters = free = 0
    for value, place in zip(hashes, places, strict=True):
        if place < free:
            continue
        if value in seen:
            characters += int(ends[place + n] - ends[place])
            free = place + n
        seen.add(value)
    return characters
