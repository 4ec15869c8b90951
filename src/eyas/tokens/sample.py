"""Which documents a tokenizer is trained and measured on: a fair, bounded, deterministic sample.

A language's share of the sample is (its share of the text) ** temperature, so that rare languages
are heard; what a small language cannot fill is spread over the others. Within a language documents
are taken by ascending hash of their name, over all sources alike. The first pass asks for sizes
only and keeps no more of them than the sample could take; the second brings the chosen texts one by
one. How much the sources look at is theirs to bound (`texts.py`).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import xxhash

__all__ = ["Sampled", "Texts", "quotas", "sample_documents"]


@dataclass(frozen=True)
class Sampled:
    """A sampled document; `words` is the corpus' own count."""

    language: str
    text: str
    words: int
    url: str = ""


class Texts(Protocol):
    """Documents with names and languages, the same ones every time they are asked for."""

    def sizes(self, split: str) -> Iterator[tuple[str, str, int]]:
        """Name, language and UTF-8 bytes of each document of a split."""

    def documents(self, split: str, chosen: Callable[[str, str], bool]) -> Iterator[Sampled]:
        """Those of which `chosen` says so by name and language."""


@dataclass
class _Sizes:
    """What one language has: its UTF-8 bytes `total`, and hash and bytes of those documents that a
    sample of `most` bytes could take."""

    most: int
    total: int = 0
    held: int = 0
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, hash_: int, size: int) -> None:
        self.hashes.append(hash_)
        self.bytes.append(size)
        self.total += size
        self.held += size
        if self.held > 2 * self.most and len(self.bytes) > 1:
            self._forget()

    def threshold(self, quota: int) -> int:
        """Largest hash to take so that at most `quota` bytes come, at least one document."""
        hashes, filled, _ = self._sorted()
        return int(hashes[self._last(filled, quota)])

    def _forget(self) -> None:
        """What comes after `most` bytes by hash."""
        hashes, filled, sizes = self._sorted()
        kept = self._last(filled, self.most) + 1
        self.hashes = array("Q", hashes[:kept].tobytes())
        self.bytes = array("q", sizes[:kept].tobytes())
        self.held = int(filled[kept - 1])

    def _sorted(
        self,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """By hash: hashes, running sum of bytes, bytes."""
        hashes, sizes = np.array(self.hashes, np.uint64), np.array(self.bytes, np.int64)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], np.cumsum(sizes[order]), sizes[order]

    @staticmethod
    def _last(filled: npt.NDArray[np.int64], quota: int) -> int:
        return max(int(np.searchsorted(filled, quota, side="right")) - 1, 0)


def quotas(available: Mapping[str, int], total: int, temperature: float) -> dict[str, int]:
    """Bytes to take of each language: `total` in all, or everything there is."""
    everything = sum(available.values())
    if everything <= total:
        return dict(available)
    weights = {name: (size / everything) ** temperature for name, size in available.items() if size}
    result: dict[str, int] = {}
    left = total
    while weights:
        scale = left / sum(weights.values())
        full = [name for name, weight in weights.items() if available[name] <= weight * scale]
        if not full:
            return result | {name: int(weight * scale) for name, weight in weights.items()}
        for name in full:
            result[name] = available[name]
            left -= available[name]
            del weights[name]
    return result


def sample_documents(
    texts: Sequence[Texts], split: str, total: int, temperature: float
) -> Iterator[Sampled]:
    """About `total` UTF-8 bytes of `split` of all `texts`, languages spread by `temperature`."""
    sizes = _sizes(texts, split, total)
    wanted = quotas({name: s.total for name, s in sizes.items()}, total, temperature)
    limits = {name: sizes[name].threshold(quota) for name, quota in wanted.items() if quota}

    def chosen(name: str, language: str) -> bool:
        return _hash(name) <= limits.get(language, -1)

    for source in texts:
        yield from source.documents(split, chosen)


def _sizes(texts: Sequence[Texts], split: str, total: int) -> dict[str, _Sizes]:
    found: dict[str, _Sizes] = {}
    for name, language, size in itertools.chain.from_iterable(t.sizes(split) for t in texts):
        found.setdefault(language, _Sizes(total)).add(_hash(name), size)
    return dict(sorted(found.items()))


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode())
