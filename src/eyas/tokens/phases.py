"""From the phases that a recipe asks for to the segments of a plan: caps, skips. Pure.

A phase is what the recipe asks for between two milestones (`eyas.recipe`). Segments are what comes
of it: a phase is cut where a source has reached its epochs (it is left out from that step on and
the others share by their weights) and where an operator's skip begins. So a plan can be laid out
anew from its own phases when it is amended, without the recipe.

Sources go on exactly through any change but one: when `sequence` changes, a source goes on at the
next window of its epoch (`order.carried`). So no token is seen twice in an epoch; what is left of
the window is not seen in that epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eyas.recipe import Phase, UsageError, merged_phases

from .grid import Grid
from .mixture import cycle_counts
from .order import carried
from .selection import Segment, Source

__all__ = [
    "Known",
    "Rules",
    "Skip",
    "lay_out",
    "phases_of",
]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Skip:
    """What an operator has left out from `from_step` on: `samples`, a range (first, stop) of their
    numbers, or all samples of block `block` of the token object `key`."""

    from_step: int
    samples: tuple[int, int] | None = None
    key: str = ""
    block: int = 0


@dataclass(frozen=True)
class Rules:
    """What stays the same over the whole plan."""

    seed: int
    document_mask: bool
    window: int


class Known(Protocol):
    """What is known of the sources: `sources` in their order, `samples`, `count` and `first` of
    which are not filled in."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    def grid(self, source: int, sequence: int) -> Grid:
        """The grid of a source's training split."""
        ...

    def block_samples(self, key: str, block: int, segment: Segment, stop: int) -> Integers:
        """Numbers of the samples that lie in a block, ascending, in every epoch that the segment
        reads before sample `stop`; some may lie before or after that."""
        ...


def phases_of(segments: Iterable[Segment]) -> list[Phase]:
    """The phases that segments were laid out from."""
    return merged_phases(
        Phase(s.first_step, s.steps, s.sequence, s.batch, {x.name: x.weight for x in s.sources})
        for s in segments
    )


def lay_out(
    phases: Sequence[Phase], known: Known, rules: Rules, skips: Sequence[Skip] = ()
) -> tuple[Segment, ...]:
    """The segments. Raises UsageError if no source is left that may be taken from."""
    segments: list[Segment] = []
    for phase in phases:
        try:
            _lay_phase(phase, known, rules, skips, segments)
        except _NothingLeft:
            raise _too_much(phases, known, segments) from None
    return tuple(segments)


def _lay_phase(
    phase: Phase, known: Known, rules: Rules, skips: Sequence[Skip], segments: list[Segment]
) -> None:
    """Add the segments of a phase."""
    step, end = phase.first_step, phase.first_step + phase.steps
    left_out: set[str] = set()
    cuts = [end, *(skip.from_step for skip in skips)]
    while step < end:
        stop = min(cut for cut in cuts if cut > step)
        template = _following(phase, known, rules, left_out, segments, step)
        segment = _with_skips(dataclasses.replace(template, steps=stop - step), known, skips)
        most = _caps(segment)
        fit = _steps_within(segment, most)
        if fit < segment.steps:
            over = segment.taken(segment.sample_after(step + fit + 1)) > most
            left_out |= {
                s.name for s, is_over in zip(segment.sources, over, strict=True) if is_over
            }
            segment = _shortened(segment, fit)
        if fit:
            segments.append(segment)
        step += fit


def _following(
    phase: Phase,
    known: Known,
    rules: Rules,
    left_out: set[str],
    segments: Sequence[Segment],
    step: int,
) -> Segment:
    """The segment that begins at `step`, of no steps yet and without skips."""
    last = segments[-1] if segments else None
    weights = {
        s.name: 0.0 if s.name in left_out else phase.weights.get(s.name, 0.0) for s in known.sources
    }
    if not any(weights.values()):
        raise _NothingLeft
    counts = cycle_counts(weights)
    number = last.stop_sample if last else 0
    grids = [known.grid(i, phase.sequence) for i in range(len(known.sources))]
    goes_on = (
        last is not None
        and last.sequence == phase.sequence
        and [s.count for s in last.sources] == list(counts.values())
    )
    firsts = (
        [s.first for s in last.sources]
        if last and goes_on
        else _firsts(last, number, known, grids, rules)
    )
    sources = tuple(
        dataclasses.replace(
            s,
            weight=phase.weights.get(s.name, 0.0),
            count=counts[s.name],
            epoch_tokens=grid.tokens,
            samples=grid.samples,
            first=first,
        )
        for s, grid, first in zip(known.sources, grids, firsts, strict=True)
    )
    return Segment(
        first_step=step,
        steps=0,
        first_sample=number,
        tokens_seen=last.tokens_before(step) if last else 0,
        sequence=phase.sequence,
        batch=phase.batch,
        seed=rules.seed,
        document_mask=rules.document_mask,
        origin=last.origin if last and goes_on else number,
        sources=sources,
    )


def _firsts(
    last: Segment | None, number: int, known: Known, grids: Sequence[Grid], rules: Rules
) -> list[int]:
    """Samples of each source before sample `number`, in the new sequence."""
    if last is None:
        return [0] * len(grids)
    taken = [int(n) for n in last.taken(number)]
    if last.sequence == grids[0].sequence:
        return taken
    return [
        carried(known.grid(i, last.sequence), grid, taken[i], rules.seed, rules.window)
        for i, grid in enumerate(grids)
    ]


def _caps(segment: Segment) -> Integers:
    """Samples [sources] of each source that its epochs allow."""
    caps = [int(Fraction(repr(float(s.epochs))) * s.samples) for s in segment.sources]
    unused = np.iinfo(np.int64).max
    pairs = zip(segment.sources, caps, strict=True)
    return np.array([cap if s.count else unused for s, cap in pairs], np.int64)


def _steps_within(segment: Segment, most: Integers) -> int:
    """How many steps of a segment stay within the caps."""

    def within(steps: int) -> bool:
        number = segment.sample_after(segment.first_step + steps)
        return bool((segment.taken(number) <= most).all())

    if within(segment.steps):
        return segment.steps
    low, high = 0, segment.steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _with_skips(segment: Segment, known: Known, skips: Sequence[Skip]) -> Segment:
    """With the ranges of all skips that hold by its first step. What is skipped makes the segment
    reach further, where more may be skipped, but never further than its sources do."""
    active = [skip for skip in skips if skip.from_step <= segment.first_step]
    if not active:
        return segment
    unused = [s.count == 0 for s in segment.sources]
    left = np.where(unused, 0, _caps(segment) - segment.taken(segment.first_sample))
    furthest = segment.first_sample + int(np.maximum(left, 0).sum()) + segment.batch
    stop = -1
    while stop != (reach := min(segment.stop_sample, furthest)):
        stop = reach
        found = [r for skip in active for r in _skipped(skip, segment, known, stop)]
        segment = dataclasses.replace(segment, skipped=_joined(found))
    return segment


def _skipped(skip: Skip, segment: Segment, known: Known, stop: int) -> list[tuple[int, int]]:
    """The ranges of a skip in a segment that ends before sample `stop`."""
    if skip.samples is None:
        numbers = known.block_samples(skip.key, skip.block, segment, stop)
        ranges = [(n, n + 1) for n in numbers.tolist()]
    else:
        ranges = [skip.samples]
    cut = [(max(first, segment.first_sample), min(end, stop)) for first, end in ranges]
    return [(first, end) for first, end in cut if first < end]


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ascending, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return tuple(joined)


def _shortened(segment: Segment, steps: int) -> Segment:
    """So many steps of it, with the ranges that lie in them."""
    shorter = dataclasses.replace(segment, steps=steps)
    stop = shorter.stop_sample
    kept = tuple((first, end) for first, end in segment.skipped if first < stop)
    return dataclasses.replace(shorter, skipped=kept)


class _NothingLeft(Exception):
    """Every source has reached its epochs."""


def _too_much(phases: Sequence[Phase], known: Known, segments: Sequence[Segment]) -> UsageError:
    """What a run that wants more than there is may do."""
    wanted = sum(p.steps * p.batch * p.sequence for p in phases)
    seen = segments[-1].tokens_before(segments[-1].stop_step) if segments else 0
    lower = f"set train.tokens to {seen} or less, " if seen else ""
    if len(known.sources) == 1:
        (only,), grid = known.sources, known.grid(0, phases[-1].sequence)
        epochs = wanted / grid.sequence / grid.samples
        return UsageError(
            f"train.tokens = {wanted} needs {epochs:.2f} epochs of the {grid.tokens} training "
            f"tokens, data.epochs (or the source's) allows {only.epochs:g}: {lower}raise it, or "
            "add text"
        )
    return UsageError(
        f"train.tokens = {wanted} is more than the sources of data.sources give: after {seen} "
        f"tokens each has been seen as often as its epochs allow: {lower}raise data.epochs or the "
        "epochs of a source, or add text"
    )
