"""MinHash signatures and their LSH bands (Broder 1997; bands as in FineWeb, 14 x 8).

A document's shingles are runs of n words in their matching form. Each of bands x rows permutations
of the 64-bit shingle hashes is a multiply-shift by constants from splitmix64 (fixed here for good:
a signature must never depend on the version of a library), and its minimum over the shingles is one
row; a band's rows are hashed to one 64-bit number. Documents that share a number are a candidate
pair, with probability 1 - (1 - J**rows)**bands at Jaccard similarity J. A document with fewer words
than a shingle has one number, of its exact words. Shingles are taken in chunks, so one huge
document costs no more memory than a small one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from eyas.corpus.steps.words import matching_form

__all__ = ["band_hashes", "match_probability", "matching_words"]

_U64 = npt.NDArray[np.uint64]
_U32 = npt.NDArray[np.uint32]
_ROLL = np.uint64(0xD6E8FEB86659FD93)
_CELLS = 1 << 18  # shingles x permutations held at once: 2 MiB


def match_probability(similarity: float, bands: int, rows: int) -> float:
    """That a pair of this Jaccard similarity shares a band."""
    return float(1 - (1 - similarity**rows) ** bands)


def matching_words(tokens: Sequence[str]) -> _U64:
    """64-bit hashes of the tokens' matching forms, in order; what matching ignores is left out."""
    seen: dict[str, int] = {}
    out: list[int] = []
    for token in tokens:
        value = seen.get(token)
        if value is None:
            form = matching_form(token)
            value = xxhash.xxh3_64_intdigest(form.encode("utf-8", "replace")) if form else 0
            seen[token] = value
        if value:
            out.append(value)
    return np.array(out, dtype=np.uint64)


def band_hashes(words: _U64, bands: int, rows: int, shingle: int) -> _U64:
    """What a document is matched by: `bands` hashes, or one if it is shorter than a shingle."""
    if len(words) < shingle:
        return np.array([xxhash.xxh3_64_intdigest(words.tobytes(), seed=1)], dtype=np.uint64)
    signature = _signature(words, bands * rows, shingle).reshape(bands, rows)
    numbers = [
        xxhash.xxh3_64_intdigest(row.tobytes(), seed=2 + b) for b, row in enumerate(signature)
    ]
    return np.array(numbers, dtype=np.uint64)


def _signature(words: _U64, permutations: int, shingle: int) -> _U32:
    a, b = _permutations(permutations)
    lowest = np.full(permutations, 2**64 - 1, dtype=np.uint64)
    chunk = max(1, _CELLS // permutations)
    for start in range(0, len(words) - shingle + 1, chunk):
        hashes = _shingles(words[start : start + chunk + shingle - 1], shingle)
        np.minimum(lowest, (hashes[:, None] * a + b).min(axis=0), out=lowest)
    return (lowest >> np.uint64(32)).astype("<u4")


def _shingles(words: _U64, n: int) -> _U64:
    hashes = words[: len(words) - n + 1].copy()
    for i in range(1, n):
        hashes = hashes * _ROLL + words[i : len(words) - n + 1 + i]
    return _mix(hashes)


@functools.cache
def _permutations(count: int) -> tuple[_U64, _U64]:
    numbers = _mix(np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return numbers[:count] | np.uint64(1), numbers[count:]


def _mix(values: _U64) -> _U64:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
