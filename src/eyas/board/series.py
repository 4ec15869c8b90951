"""The pure arithmetic behind the curves: replayed steps, down-sampling, ticks.

A killed run loses the steps after its last commit and does them again in its next attempt. The
history that led to the model is therefore: of every attempt, the steps before the first step of any
later attempt. The rest happened, was thrown away, and is shown pale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Point", "downsample", "resolve", "smooth", "ticks"]


@dataclass(frozen=True)
class Point:
    """One value of a series at a step of an attempt."""

    attempt: int
    step: int
    value: float


def resolve(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """(the history, what was replayed), each by step. A step written twice by one attempt counts
    once, as last written."""
    written: dict[int, dict[int, Point]] = {}
    for point in points:
        written.setdefault(point.attempt, {})[point.step] = point
    history: list[Point] = []
    replayed: list[Point] = []
    limit: float = math.inf
    for attempt in sorted(written, reverse=True):
        own = written[attempt]
        for step, point in own.items():
            (history if step < limit else replayed).append(point)
        limit = min(limit, *own)
    by_step = lambda p: (p.step, p.attempt)  # noqa: E731
    return sorted(history, key=by_step), sorted(replayed, key=by_step)


def downsample(points: Sequence[Point], most: int = 2000) -> list[Point]:
    """At most `most` points: first, last, and of every bucket between the lowest and the highest,
    so that no spike is lost. Fewer points than that pass as they are."""
    if len(points) <= most:
        return list(points)
    middle = points[1:-1]
    buckets = max(1, (most - 2) // 2)
    kept = [points[0]]
    for number in range(buckets):
        start = number * len(middle) // buckets
        bucket = range(start, (number + 1) * len(middle) // buckets)
        low = min(bucket, key=lambda i: middle[i].value)
        high = max(bucket, key=lambda i: middle[i].value)
        kept.extend(middle[i] for i in sorted({low, high}))
    kept.append(points[-1])
    return kept


def smooth(points: Sequence[Point], reach: int) -> list[Point]:
    """Mean over each point and up to `reach` on either side."""
    sums = [0.0, *itertools.accumulate(p.value for p in points)]
    result = []
    for number, point in enumerate(points):
        first, end = max(0, number - reach), min(len(points), number + reach + 1)
        result.append(Point(point.attempt, point.step, (sums[end] - sums[first]) / (end - first)))
    return result


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten) from `low` to `high`: at least one and at
    most `most` + 1, where `most` is 3 or more."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]
