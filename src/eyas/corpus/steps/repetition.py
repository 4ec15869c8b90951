"""Gopher's repetition values (arXiv 2112.11446, table A1), counted as datatrove counts them.

Shares are of all characters of the text. Of lines (between newlines), paragraphs (between empty
lines) and n-grams only later copies count, and a repeated n-gram skips past itself:

    duplicate_lines           = later copies of lines / lines
    duplicate_line_characters = characters in later copies of lines / characters
    top_n_gram                = length of the most frequent n-gram, with spaces, x its copies
                                / characters
    duplicated_n_grams        = characters, without spaces, in later copies of n-grams / characters

The most frequent n-gram is the first among equals. In scripts without spaces an n-gram is of
`tokens_per_word` x n tokens and is put together without spaces.

No n-gram is ever built as a string. One is compared by a 64-bit hash of its tokens where spaces
stand between them, and of its bytes where none do ("a bc" is "ab c" then): a polynomial, taken for
any stretch from sums over the whole text. Most places repeat nothing, so the longer n-grams are
looked at only where their first bytes occur twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .words import Words

__all__ = ["later_copies", "measure"]

_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_FIRST_BYTES = 16


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
    ends = _ends(words.lengths)
    stretches = _Stretches("".join(text.replace(" ", "").split()), _ends(words.sizes))
    spaced = tokens_per_word == 1
    tops = _spaced_grams(words) if spaced else _grams(stretches, tokens_per_word)
    for n, hashes in zip((2, 3, 4), tops, strict=True):
        most = _most_frequent(hashes, ends, n * tokens_per_word, n - 1 if spaced else 0)
        values[f"top_{n}_gram"] = most / characters
    sizes = [n * tokens_per_word for n in range(5, 11)]
    for n, again in zip(range(5, 11), _later_characters(stretches, ends, sizes), strict=True):
        values[f"duplicated_{n}_grams"] = again / characters
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


class _Stretches:
    """Hashes of the bytes between two tokens, from sums over all bytes before each."""

    def __init__(self, joined: str, ends: _I64) -> None:
        data = np.frombuffer(joined.encode(errors="surrogatepass"), np.uint8)
        powers = _powers(len(data) + 1)
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum(_BYTE_VALUES[data] * powers[1, :-1], out=sums[1:])
        self._sums, self._powers, self._ends = sums, powers[0], ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def hashes(self, places: _I64, size: int) -> _U64:
        """Of the `size` tokens at each place."""
        start = self._ends[places]
        return (self._sums[self._ends[places + size]] - self._sums[start]) * self._powers[start]

    def maybe_repeated(self, size: int) -> _I64:
        """The places at which `size` tokens or more may occur twice: those whose first bytes do,
        and those of fewer bytes."""
        start = self._ends[: max(0, len(self) - size + 1)]
        maybe = self._ends[size:] - start < _FIRST_BYTES
        start = start[: np.searchsorted(start, self._ends[-1] - _FIRST_BYTES, "right")]
        first = (self._sums[start + _FIRST_BYTES] - self._sums[start]) * self._powers[start]
        maybe[: len(first)] |= _repeated(first)
        return maybe.nonzero()[0]


def _powers(length: int) -> _U64:
    """Two rows: the base to each power, and its inverse."""
    global _known_powers
    while _known_powers.shape[1] < length:
        high = _known_powers[:, -1:] * _known_powers[:, 1:2]
        _known_powers = np.hstack((_known_powers, _known_powers * high))
    if length <= _KEPT_POWERS < _known_powers.shape[1]:
        _known_powers = _known_powers[:, :_KEPT_POWERS].copy()
    return _known_powers[:, :length]


_KEPT_POWERS = 1 << 16
_known_powers = np.array([[1, _BASE], [1, _INVERSE]], np.uint64)
_BYTE_VALUES = np.random.default_rng(0).integers(0, 1 << 64, 256, np.uint64)


def _ends(sizes: _I64) -> _I64:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _repeated(hashes: _U64) -> npt.NDArray[np.bool_]:
    """Which of `hashes` occur more than once, and a few more: those that share one of at least
    eight bins for each hash. (The first bits of a product depend on all bits.)"""
    bits = max(1, (8 * len(hashes)).bit_length())
    bins = (hashes * np.uint64(_BASE) >> np.uint64(64 - bits)).view(np.int64)
    return (np.bincount(bins) > 1)[bins]


def _spaced_grams(words: Words) -> Iterator[_U64]:
    """Hashes of all 2-, 3- and 4-grams with spaces between their tokens."""
    tokens = (words.rows + 1).astype(np.uint64)
    hashes = tokens
    for n in (2, 3, 4):
        hashes = hashes[:-1] * np.uint64(_BASE) + tokens[n - 1 :]
        yield hashes


def _grams(stretches: _Stretches, tokens_per_word: int) -> Iterator[_U64]:
    """The same without spaces, where a word is several tokens."""
    for size in (2 * tokens_per_word, 3 * tokens_per_word, 4 * tokens_per_word):
        yield stretches.hashes(np.arange(max(0, len(stretches) - size + 1)), size)


def _most_frequent(hashes: _U64, ends: _I64, size: int, spaces: int) -> int:
    """Characters of the most frequent n-gram, the first among equals, in all its copies."""
    if not len(hashes):
        return 0
    count, place = 1, 0
    places = _repeated(hashes).nonzero()[0]
    if len(places):
        maybe = hashes[places]
        ordered = np.sort(maybe)
        bounds = np.append((ordered[1:] != ordered[:-1]).nonzero()[0], len(ordered) - 1)
        counts = np.ediff1d(bounds, to_begin=bounds[0] + 1)
        count = int(counts.max())
        if count > 1:
            most = ordered[bounds[counts == count]]
            place = int(places[(most[np.searchsorted(most[:-1], maybe)] == maybe).argmax()])
    return (int(ends[place + size] - ends[place]) + spaces) * count


def _later_characters(stretches: _Stretches, ends: _I64, sizes: Sequence[int]) -> Iterator[int]:
    """Of each size, growing: characters of n-grams that stood before, each skipping past itself."""
    places = stretches.maybe_repeated(sizes[0])
    for size in sizes:
        places = places[: np.searchsorted(places, len(stretches) - size, "right")]
        hashes = stretches.hashes(places, size)
        again = _repeated(hashes)
        yield _skipping(hashes[again].tolist(), places[again], ends, size)


def _skipping(hashes: list[int], places: _I64, ends: _I64, size: int) -> int:
    seen: set[int] = set()
    characters = free = 0
    lengths = (ends[places + size] - ends[places]).tolist()
    for value, place, length in zip(hashes, places.tolist(), lengths, strict=True):
        if place < free:
            continue
        if value in seen:
            characters += length
            free = place + size
        else:
            seen.add(value)
    return characters
