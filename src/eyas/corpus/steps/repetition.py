"""Gopher's repetition values (arXiv 2112.11446, table A1), counted as datatrove counts them.

Shares are of all characters of the text. Of lines (between newlines), paragraphs (between empty
lines) and n-grams only later copies count, and a repeated n-gram skips past itself:

    duplicate_lines           = later copies of lines / lines
    duplicate_line_characters = characters in later copies of lines / characters
    top_n_gram                = length of the most frequent n-gram, with spaces, x its copies
                                / characters
    duplicated_n_grams        = characters, without spaces, in later copies of n-grams / characters

The most frequent n-gram is the first among equals. An n-gram is compared by a 64-bit hash of its
characters, rolled over the document with numpy; no n-gram is ever built as a string. In scripts
without spaces an n-gram is of `tokens_per_word` x n tokens and is put together without spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from .words import HASH_BASE, Words

__all__ = ["later_copies", "measure"]

_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_BASE = np.uint64(HASH_BASE)
_SPACE = np.uint64(0x5851F42D4C957F2D)


def measure(text: str, words: Words, tokens_per_word: int) -> dict[str, float]:
    """Every value of the step; 0 where the text has no n tokens."""
    characters = len(text) or 1
    paragraphs, lines = _paragraphs(text.strip()), _lines(text)
    again, again_characters = later_copies(paragraphs)
    lines_again, line_characters = later_copies(lines)
    values = {
        "duplicate_paragraphs": again / len(paragraphs),
        "duplicate_paragraph_characters": again_characters / characters,
        "duplicate_lines": lines_again / len(lines),
        "duplicate_line_characters": line_characters / characters,
    }
    ends = np.concatenate(([0], np.cumsum(words.lengths)))
    space = tokens_per_word == 1
    tops = [n * tokens_per_word for n in (2, 3, 4)]
    for n, (size, hashes) in zip((2, 3, 4), _joined(words, tops, space), strict=True):
        values[f"top_{n}_gram"] = _most_frequent(hashes, ends, size, space) / characters
    sizes = [n * tokens_per_word for n in range(5, 11)]
    for n, (size, hashes) in zip(range(5, 11), _joined(words, sizes, False), strict=True):
        values[f"duplicated_{n}_grams"] = _later_characters(hashes, ends, size) / characters
    return values


def _paragraphs(text: str) -> list[str]:
    """What stands between two newlines or more. (A regular expression takes ten times as long.)"""
    return [part.removeprefix("\n") for part in text.split("\n\n") if part] or [""]


def _lines(text: str) -> list[str]:
    """What stands between newlines; empty ones only at the ends."""
    first, *others = text.split("\n")
    return [first, *filter(None, others[:-1]), *others[-1:]]


def later_copies(items: list[str]) -> tuple[int, int]:
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


def _joined(words: Words, sizes: Iterable[int], space: bool) -> Iterator[tuple[int, _U64]]:
    """For each size, growing: the hash of that many tokens put together, at every place."""
    values, powers = words.hashes, words.powers
    if space:
        values, powers = values + _SPACE * powers, powers * _BASE
    hashes, reached = values, 1
    for size in sizes:
        while reached < size and len(hashes):
            hashes = hashes[:-1] * powers[reached:] + values[reached:]
            reached += 1
        yield size, hashes


def _repeated(hashes: _U64) -> _I64:
    """The places, growing, of the n-grams that occur more than once.

    Every place writes itself into the bucket of its hash; where a later place stands afterwards,
    two share a bucket. Only those are sorted, which are few in most texts."""
    places = np.arange(len(hashes))
    buckets = (hashes >> np.uint64(60 - len(hashes).bit_length())).astype(np.int64)
    last = np.empty(1 << (4 + len(hashes).bit_length()), np.int64)
    last[buckets] = places
    later = last[buckets]
    shared = later != places
    if not shared.any():
        return places[:0]
    shared[later[shared]] = True
    places = places[shared]
    values = hashes[places]
    ordered = np.sort(values)
    return places[_among(values, ordered[1:][ordered[1:] == ordered[:-1]])]


def _among(values: _U64, ordered: _U64) -> npt.NDArray[np.bool_]:
    """Which `values` are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[at] == values


def _most_frequent(hashes: _U64, ends: _I64, size: int, space: bool) -> int:
    """Characters of the most frequent n-gram in all its copies."""
    if not len(hashes):
        return 0
    place, count = 0, 1
    places = _repeated(hashes)
    if len(places):
        values = hashes[places]
        different, counts = np.unique(values, return_counts=True)
        count = int(counts.max())
        place = int(places[_among(values, different[counts == count]).argmax()])
    return (int(ends[place + size] - ends[place]) + (size - 1) * space) * count


def _later_characters(hashes: _U64, ends: _I64, size: int) -> int:
    """Characters of n-grams that stood before, each skipping past itself."""
    places = _repeated(hashes)
    seen: set[int] = set()
    characters = free = 0
    for value, place in zip(hashes[places].tolist(), places.tolist(), strict=True):
        if place < free:
            continue
        if value in seen:
            characters += int(ends[place + size] - ends[place])
            free = place + size
        else:
            seen.add(value)
    return characters
