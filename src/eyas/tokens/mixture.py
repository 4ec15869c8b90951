"""Exact ratios: which source each sample of a mixture comes from, and which of it.

Weights become whole numbers that add up to a cycle of 2**20 samples (largest remainder), so a
weight of .0004 is 419 samples of every cycle and there is no drift, ever. Position p of a cycle has
slot `permute(p, 2**20, "feistel-mixture-1/<seed>/<origin>")` (`order.py`); the slots are given out
to the sources in their order, `count` to each. Hence a sample's number within its source is `count`
for each whole cycle since the origin, plus the earlier positions of the cycle that are the same
source's. Both are looked up in a table of one cycle, made once for a segment (5 to 6 MB).

A mixture of one source needs no table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import UsageError

from .order import permute

__all__ = ["CYCLE", "Mixture", "cycle_counts", "mixture"]

CYCLE = 2**20

Integers = npt.NDArray[np.int64]


def cycle_counts(weights: Mapping[str, float]) -> dict[str, int]:
    """Samples of a cycle for each source. Weights are decimal numbers, taken as they are written.
    Raises UsageError for a weight that comes to no sample at all."""
    exact = {name: Fraction(repr(float(weight))) for name, weight in weights.items()}
    total = sum(exact.values())
    if not total:
        raise UsageError("data.sources: every weight is 0, so no sample can be taken")
    counts = {name: int(weight * CYCLE / total) for name, weight in exact.items()}
    rest = {name: exact[name] * CYCLE / total - count for name, count in counts.items()}
    for name in sorted(rest, key=rest.__getitem__, reverse=True)[: CYCLE - sum(counts.values())]:
        counts[name] += 1
    for name, count in counts.items():
        if exact[name] and not count:
            raise UsageError(
                f'data.sources: the weight {weights[name]:g} of "{name}" is less than one sample '
                f"in {CYCLE:,}; give it {float(total / CYCLE):.3g} or more, or 0"
            )
    return counts


class Mixture:
    """The cycle of a segment; `counts` are the samples of each source in it."""

    def __init__(self, counts: Sequence[int], key: str) -> None:
        self._counts = np.array(counts, np.int64)
        used = np.flatnonzero(self._counts)
        self._only = int(used[0]) if len(used) == 1 else None
        if self._only is None:
            self._source, self._rank = _table(self._counts, key)

    def place(self, positions: Integers) -> tuple[Integers, Integers]:
        """Source, and number within it, of positions counted from the origin."""
        if self._only is not None:
            return np.full(len(positions), self._only, np.int64), positions
        cycle, inside = np.divmod(positions, CYCLE)
        source = self._source[inside].astype(np.int64)
        return source, cycle * self._counts[source] + self._rank[inside]

    def position(self, source: int, ranks: Integers) -> Integers:
        """Positions of samples of a source by their number within it: the inverse of `place`."""
        if self._only is not None:
            return ranks
        cycle, inside = np.divmod(ranks, self._counts[source])
        return cycle * CYCLE + np.flatnonzero(self._source == source)[inside]

    def taken(self, position: int) -> Integers:
        """Samples of each source before a position."""
        if self._only is not None:
            return (self._counts > 0) * np.int64(position)
        cycle, inside = divmod(position, CYCLE)
        part = np.bincount(self._source[:inside], minlength=len(self._counts))
        return cycle * self._counts + part


@functools.lru_cache(maxsize=8)
def mixture(counts: tuple[int, ...], seed: int, origin: int) -> Mixture:
    """The mixture of a segment, kept."""
    return Mixture(counts, f"feistel-mixture-1/{seed}/{origin}")


def _table(counts: Integers, key: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Source (the smallest type that holds it) and number within it of each position of a cycle."""
    smallest = np.uint8 if len(counts) <= 2**8 else np.uint16
    slots = permute(np.arange(CYCLE), CYCLE, key)
    source = np.repeat(np.arange(len(counts)).astype(smallest), counts)[slots]
    by_source = np.argsort(source, kind="stable")
    rank = np.empty(CYCLE, np.int32)
    rank[by_source] = np.arange(CYCLE) - np.repeat(np.cumsum(counts) - counts, counts)
    return source, rank
