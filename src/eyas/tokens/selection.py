"""Segments of a data plan, and the samples that a step selects. Pure numbers, no tokens.

Samples are numbered in the order in which they are planned, over the whole plan. Step s of a
segment takes the `batch` numbers from `first_sample + (s - first_step) * batch`, counted without
the ranges that are skipped. The number decides the source and the number within that source
(`mixture.py`); the number within a source decides the place in its tokens (`order.py`).

A segment is what stays the same over its steps. What the mixture needs to go on through a change
of the batch or a skip is kept in it: `origin`, the number of the sample at which its cycles began,
and for each source `first`, how many of its samples came before the origin.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eyas.recipe import UsageError

from .grid import Places
from .mixture import Mixture, mixture

__all__ = [
    "RankRows",
    "Segment",
    "Selection",
    "Source",
    "rank_rows",
    "reading_order",
    "unskipped",
]

Integers = npt.NDArray[np.int64]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Source:
    """A part of the mixture. Its tokens are the source `part` of version `tokens_version` of the
    tokens manifest, of identity `tokens` and CRC32C `tokens_crc32c`, in `store` ("": the store of
    the plan).

    `weight` is the recipe's, `count` what it comes to in a cycle of 2**20 samples: 0 with a weight
    means that the source has reached its `epochs` and is left out. `epoch_tokens` and `samples`
    are those of one epoch; `first` samples (of this segment's sequence) came before the origin.
    """

    name: str
    store: str
    part: str
    tokens: str
    tokens_version: int
    tokens_crc32c: str
    weight: float
    count: int
    epochs: float
    epoch_tokens: int
    samples: int
    first: int = 0


@dataclass(frozen=True)
class Selection:
    """What a step consumes, a row a sample: `samples` its number in the plan, `source` the position
    of its source in `Segment.sources`, `index` its number within that source (the epoch is
    `index // samples` of the source), which `ShuffledOrder.places` takes."""

    samples: Integers
    source: npt.NDArray[np.int16]
    index: Integers


@dataclass(frozen=True)
class Segment:
    """`steps` steps from `first_step`, each of `batch` samples of `sequence` tokens. `tokens_seen`
    is before the segment. `origin` is at most `first_sample`. `skipped` are ranges (first, stop)
    of sample numbers, ascending, apart from each other, none before `first_sample`."""

    first_step: int
    steps: int
    first_sample: int
    tokens_seen: int
    sequence: int
    batch: int
    seed: int
    document_mask: bool
    origin: int
    sources: tuple[Source, ...]
    skipped: Ranges = ()

    @property
    def stop_step(self) -> int:
        """The first step after it."""
        return self.first_step + self.steps

    @property
    def stop_sample(self) -> int:
        """The number after the last sample of its last step."""
        return self.sample_after(self.stop_step)

    @property
    def step_tokens(self) -> int:
        return self.batch * self.sequence

    def tokens_before(self, step: int) -> int:
        """Tokens that the plan has handed out when `step` begins."""
        return self.tokens_seen + (step - self.first_step) * self.step_tokens

    def sample_after(self, step: int) -> int:
        """The number after the last sample of step `step - 1`; `first_sample` before the first."""
        taken = (step - self.first_step) * self.batch
        if not taken:
            return self.first_sample
        return int(unskipped(np.array([self.first_sample + taken - 1]), self.skipped)[0]) + 1

    def numbers(self, step: int) -> Integers:
        """Numbers [batch] of the samples of a step, ascending."""
        first = self.first_sample + (step - self.first_step) * self.batch
        return unskipped(np.arange(first, first + self.batch), self.skipped)

    def selection(self, step: int) -> Selection:
        """The whole batch of a step of this segment, by ascending number."""
        return self.select(self.numbers(step))

    def select(self, numbers: Integers) -> Selection:
        """Source and number within it of samples of this segment."""
        source, index = self._mixture.place(numbers - self.origin)
        return Selection(numbers, source.astype(np.int16), index + self._first[source])

    def taken(self, number: int) -> Integers:
        """Samples [sources] of each source before sample `number` of this segment, from the start
        of its first epoch."""
        return self._first + self._mixture.taken(number - self.origin)

    def number_of(self, source: int, indices: Integers) -> Integers:
        """Numbers of the samples that are these of a source: the inverse of `select`."""
        return self.origin + self._mixture.position(source, indices - self._first[source])

    @property
    def _mixture(self) -> Mixture:
        return mixture(tuple(s.count for s in self.sources), self.seed, self.origin)

    @functools.cached_property
    def _first(self) -> Integers:
        return np.array([s.first for s in self.sources], np.int64)


@dataclass(frozen=True)
class RankRows:
    """Rows `first` to `stop` of a batch are a rank's; every rank's batch has `height` rows, the
    last of which may be padding."""

    first: int
    stop: int
    height: int


def rank_rows(batch: int, rank: int, world: int, ragged: bool = False) -> RankRows:
    """The contiguous part of a batch that is a rank's: equal parts, or with `ragged` parts that
    differ by at most one row, the larger ones first. Raises UsageError."""
    if world < 1 or (batch % world and not ragged):
        legal = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
        raise UsageError(
            f"a batch of {batch} sequences cannot be shared by {world} data-parallel ranks; legal "
            f"worlds are {legal}, or any with data.ragged = true"
        )
    if not 0 <= rank < world:
        raise UsageError(f"rank {rank} is not in a world of {world}")
    each, more = divmod(batch, world)
    first = rank * each + min(rank, more)
    return RankRows(first, first + each + (rank < more), each + (more > 0))


def reading_order(source: npt.NDArray[np.int16], places: Places) -> Integers:
    """The rows of a batch by source, object, block and start: ranks take contiguous parts of the
    batch in this order, so that each reads few blocks."""
    return np.lexsort((places.start, places.block, places.object, source))


def unskipped(numbers: Integers, skipped: Ranges) -> Integers:
    """Numbers counted without the skipped ranges, as numbers of samples."""
    if not skipped:
        return numbers
    ranges = np.array(skipped, np.int64)
    lengths = ranges[:, 1] - ranges[:, 0]
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    jumped = np.searchsorted(ranges[:, 0] - before[:-1], numbers, side="right")
    return numbers + before[jumped]
