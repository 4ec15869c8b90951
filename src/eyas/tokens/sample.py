"""Which documents a tokenizer is trained and measured on: a fair, bounded, deterministic sample.

A language's share of the sample is (its share of the text) ** temperature, so that rare languages
are heard; what a small language cannot fill is spread over the others. Within a language documents
are taken by ascending hash of their id, over all sources alike. The first pass reads sizes only,
the second the chosen texts. At most `OBJECTS` corpus objects are looked at, spread by hash over
the whole corpus, so the cost is bounded for any corpus.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from eyas.corpus import read_documents
from eyas.store import Manifest, Store

__all__ = ["Sampled", "quotas", "sample_documents"]

OBJECTS = 64


@dataclass(frozen=True)
class Sampled:
    """A sampled document; `words` is the corpus' own count."""

    language: str
    text: str
    words: int
    url: str = ""


@dataclass
class _Sizes:
    """What one language has: id hash and UTF-8 bytes of each document."""

    hashes: list[int] = dataclasses.field(default_factory=list)
    bytes: list[int] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.bytes)

    def threshold(self, quota: int) -> int:
        """Largest id hash to take so that at most `quota` bytes come, at least one document."""
        hashes = np.array(self.hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")
        filled: npt.NDArray[np.int64] = np.cumsum(np.array(self.bytes, np.int64)[order])
        last = max(int(np.searchsorted(filled, quota, side="right")) - 1, 0)
        return int(hashes[order[last]])


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
    store: Store, corpus: Manifest, split: str, total: int, temperature: float
) -> Iterator[Sampled]:
    """About `total` UTF-8 bytes of `split`, languages spread by `temperature`, verified."""
    part = _looked_at(corpus)
    sizes = _sizes(store, part, split)
    wanted = quotas({name: s.total for name, s in sizes.items()}, total, temperature)
    limits = {name: sizes[name].threshold(quota) for name, quota in wanted.items() if quota}
    columns = ["id", "language", "text", "words", "url"]
    for table in read_documents(store, part, split=split, columns=columns):
        values = (table.column(name).to_pylist() for name in columns)
        for name, language, text, words, url in zip(*values, strict=True):
            if xxhash.xxh3_64_intdigest(name.encode()) <= limits.get(language, -1):
                yield Sampled(language, text, words, url)


def _looked_at(corpus: Manifest) -> Manifest:
    """The corpus, or `OBJECTS` of its objects by hash of their position."""
    objects = corpus.under("corpus/documents/")
    chosen = sorted(range(len(objects)), key=lambda i: xxhash.xxh3_64_intdigest(str(i).encode()))[
        :OBJECTS
    ]
    return dataclasses.replace(corpus, objects=tuple(objects[i] for i in sorted(chosen)))


def _sizes(store: Store, corpus: Manifest, split: str) -> dict[str, _Sizes]:
    found: dict[str, _Sizes] = {}
    columns = ["id", "language", "bytes"]
    for table in read_documents(store, corpus, split=split, columns=columns):
        values = (table.column(name).to_pylist() for name in columns)
        for name, language, size in zip(*values, strict=True):
            entry = found.setdefault(language, _Sizes())
            entry.hashes.append(xxhash.xxh3_64_intdigest(name.encode()))
            entry.bytes.append(size)
    return dict(sorted(found.items()))
