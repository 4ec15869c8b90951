"""Rows: the samples of a rank's batch, from verified blocks to arrays, a few microseconds each.

In come places (which tokens of which block are which row) and blocks; out come ids, document
numbers, mask and digest. The work goes some 65,000 tokens at a time, so that what is read several
times stays in the processor's cache, and nothing is done a token or a document at a time: documents
are runs between ends of text, laid out by one `repeat`.

A batch's memory is large, and touching fresh pages costs more than filling them; so it comes from
`BatchMemory`, which takes it back once nobody holds a tensor or array of the batch.

What was consumed can be proved: the digest of samples is the sum, modulo 2^64, of xxh3_64 over
(sample number as 8 bytes little-endian, then its sequence + 1 ids as uint32 little-endian). It adds
over samples, hence over ranks and steps, in any order.
"""

from __future__ import annotations

import bisect
import functools
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from .blocks import Block
from .grid import Places
from .selection import RankRows

__all__ = [
    "MODULUS",
    "BatchMemory",
    "BlockKey",
    "Located",
    "Rows",
    "Run",
    "batch_bytes",
    "fill_rows",
    "locate_rows",
    "samples_digest",
]

MODULUS = 2**64
_TOKENS_AT_A_TIME = 2**16
_SPARE = 2

Integers = npt.NDArray[np.int64]
BlockKey = tuple[int, int, int]
"""Source, object, block."""


@dataclass(frozen=True)
class Run:
    """Rows `first` to `stop` of a batch, which lie in one block."""

    key: BlockKey
    first: int
    stop: int


@dataclass(frozen=True)
class Located:
    """Where a rank's batch lies: `height` rows of `sequence` targets. Row i is sample `samples[i]`:
    tokens `start[i]` to `stop[i]` of the block of its run; rows after the last sample are padding.
    """

    sequence: int
    height: int
    samples: Integers
    start: Integers
    stop: Integers
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Rows:
    """A batch before torch: shapes and meaning as in `Batch`."""

    ids: Integers
    document_ids: Integers
    loss_mask: npt.NDArray[np.bool_]
    samples: tuple[int, ...]
    digest: int


class BatchMemory:
    """Memory for batches, a little of it kept for the next. Safe for several threads: what hands it
    back is the end of the last array, in whichever thread that happens, so there is no lock."""

    def __init__(self) -> None:
        self._spare: deque[npt.NDArray[np.uint8]] = deque(maxlen=_SPARE)

    def take(self, height: int, sequence: int) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
        """Arrays [height, sequence + 1] int64 twice and [height, sequence] bool, not cleared."""
        memory = self._fitting(batch_bytes(height, sequence))
        # Over a buffer that is no array, so that whatever is derived from the root holds the root.
        root = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(root, self._spare.append, memory).atexit = False
        cells = height * (sequence + 1)
        ids, documents = root[: 16 * cells].view(np.int64).reshape(2, height, sequence + 1)
        mask = root[16 * cells :].view(np.bool_).reshape(height, sequence)
        return ids, documents, mask

    def _fitting(self, size: int) -> npt.NDArray[np.uint8]:
        while self._spare:
            try:
                memory = self._spare.pop()
            except IndexError:  # another thread was faster
                break
            if len(memory) == size:
                return memory
        return np.empty(size, np.uint8)


def batch_bytes(height: int, sequence: int) -> int:
    """Bytes of a batch's arrays."""
    return 16 * height * (sequence + 1) + height * sequence


def locate_rows(
    sequence: int,
    part: RankRows,
    samples: Integers,
    source: npt.NDArray[Any],
    places: Places,
) -> list[Located]:
    """A rank's part of one or more steps, from its samples in reading order, row for row; those of
    one block make a run."""
    rows = part.stop - part.first
    if not len(samples):
        return [Located(sequence, part.height, samples, places.start, places.stop, ())]
    parts = (source, places.object, places.block)
    begins = np.ones(len(samples), np.bool_)
    begins[1:] = functools.reduce(np.logical_or, (key[1:] != key[:-1] for key in parts))
    begins[::rows] = True
    edges = np.flatnonzero(begins)
    found = list(zip(*(key[edges].tolist() for key in parts), strict=True))
    bounds = [*edges.tolist(), len(samples)]
    located, at = [], 0
    for first in range(0, len(samples), rows):
        stop = bisect.bisect_left(bounds, min(first + rows, len(samples)), at)
        runs = tuple(
            Run(found[i], bounds[i] - first, bounds[i + 1] - first) for i in range(at, stop)
        )
        own, at = slice(first, first + rows), stop
        located.append(
            Located(sequence, part.height, samples[own], places.start[own], places.stop[own], runs)
        )
    return located


def fill_rows(
    where: Located,
    block: Callable[[BlockKey], Block],
    dtype: np.dtype[Any],
    end_of_text: int,
    memory: BatchMemory,
) -> Rows:
    """The rows of a batch. `dtype` holds the tokens of every block."""
    ids, documents, mask = memory.take(where.height, where.sequence)
    pieces, before, unheld = _pieces(where, block, end_of_text)
    count, width = len(pieces), where.sequence + 1
    at_a_time = max(1, _TOKENS_AT_A_TIME // width)
    tokens = np.empty((min(at_a_time, count), width), dtype)
    words = np.empty((len(tokens), width + 2), "<u4")
    numbers = where.samples.astype("<i8").view("<u4").reshape(count, 2)
    digest = 0
    for first in range(0, count, at_a_time):
        stop = min(first + at_a_time, count)
        part, word = tokens[: stop - first], words[: stop - first]
        np.concatenate(pieces[first:stop], out=part.reshape(-1))
        word[:, :2], word[:, 2:] = numbers[first:stop], part
        digest += sum(map(xxhash.xxh3_64_intdigest, word))
        ids[first:stop] = part
        documents[first:stop] = _numbered(part, before[first:stop], end_of_text)
    _mask(where, ids, documents, mask, end_of_text)
    documents[unheld, 0] = -1
    return Rows(ids, documents, mask, tuple(where.samples.tolist()), digest % MODULUS)


def samples_digest(samples: tuple[int, ...], ids: Integers) -> int:
    """The digest of samples from their ids [rows, sequence + 1]; see the head of this file."""
    words = np.empty((len(samples), ids.shape[1] + 2), "<u4")
    words[:, :2] = np.array(samples, "<i8").view("<u4").reshape(len(samples), 2)
    words[:, 2:] = ids[: len(samples)]
    return sum(map(xxhash.xxh3_64_intdigest, words)) % MODULUS


def _pieces(
    where: Located, block: Callable[[BlockKey], Block], end_of_text: int
) -> tuple[list[npt.NDArray[Any]], Integers, list[int]]:
    """For each row its tokens from the one before it on, filled up, and the document of its first
    target; and the rows that begin an object."""
    starts, stops, width = where.start.tolist(), where.stop.tolist(), where.sequence + 1
    before: list[int] = []
    pieces: list[npt.NDArray[Any]] = []
    unheld = []
    for run in where.runs:
        found = block(run.key)
        tokens, ends, number = found.tokens, found.ends.data, found.documents
        for row in range(run.first, run.stop):
            start = starts[row]
            before.append(number + bisect.bisect_left(ends, start))
            pieces.append(tokens[start : stops[row] + 1])
            if found.first and not start:
                unheld.append(row)
    for row in np.flatnonzero(where.stop - where.start < where.sequence).tolist():
        short, pieces[row] = pieces[row], np.full(width, end_of_text, pieces[row].dtype)
        pieces[row][: len(short)] = short
    return pieces, np.array(before, np.int64), unheld


def _numbered(tokens: npt.NDArray[Any], before: Integers, end_of_text: int) -> Integers:
    """Documents of `tokens` [rows, width], where `before` [rows] is that of the second token of
    each row. A row is cut into runs, one more than it has ends of text (the last token aside)."""
    rows, width = tokens.shape
    ends = np.flatnonzero(tokens[:, :-1] == end_of_text)
    row = ends // (width - 1)
    runs = np.bincount(row, minlength=rows) + 1
    head = np.cumsum(runs) - runs  # the run at which each row begins
    edges = np.empty(rows + len(ends) + 1, np.int64)
    inner = np.ones(len(edges), np.bool_)
    inner[head], inner[-1] = False, False
    edges[head] = np.arange(0, rows * width, width)
    edges[inner] = ends + row + 1
    edges[-1] = rows * width
    lead = before - (tokens[:, 0] == end_of_text) - head
    numbers = np.arange(len(edges) - 1) + np.repeat(lead, runs)
    return np.repeat(numbers, edges[1:] - edges[:-1]).reshape(rows, width)


def _mask(
    where: Located,
    ids: Integers,
    documents: Integers,
    mask: npt.NDArray[np.bool_],
    end_of_text: int,
) -> None:
    """Which targets count; what a short sample lacks is in no document, and so are missing rows."""
    count = len(where.samples)
    mask[:count] = True
    length = where.stop - where.start
    for row in np.flatnonzero(length < where.sequence).tolist():
        documents[row, length[row] + 1 :] = -1
        mask[row, length[row] :] = False
    ids[count:], documents[count:], mask[count:] = end_of_text, -1, False
