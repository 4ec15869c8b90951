"""Rows: the samples of a rank's batch, from verified blocks to arrays, a nanosecond or two a token.

In come places (which tokens of which block are which row) and blocks; out come ids, mask, digest
and what is needed to number the documents. A row's tokens are hashed where they lie and copied
once. Document numbers are worked out from the ids when somebody asks for them (attention inside
documents does): documents are runs between ends of text, laid out by one `repeat`.

A batch's memory is large, and touching fresh pages costs more than filling them; so it comes from
`BatchMemory`, which takes it back once nobody holds a tensor or array of the batch.

What was consumed can be proved: the digest of samples is the sum, modulo 2^64, of xxh3_64 over the
sequence + 1 ids of a sample, little-endian as wide as the tokens are stored, seeded with the
sample's number. It adds over samples, hence over ranks and steps, in any order.
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
    "FirstDocuments",
    "Located",
    "Rows",
    "Run",
    "batch_bytes",
    "fill_rows",
    "locate_rows",
    "samples_digest",
]

MODULUS = 2**64
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
    """A batch before torch: `ids` [B, T + 1] int64, `loss_mask` [B, T], and the `samples` that are
    its first rows."""

    ids: Integers
    loss_mask: npt.NDArray[np.bool_]
    samples: tuple[int, ...]
    digest: int
    documents: FirstDocuments


@dataclass(frozen=True)
class FirstDocuments:
    """For each sample of a batch: `number` of the document that holds its first target, and whether
    it `begins` an object, so that no document holds its first id."""

    number: Integers
    begins: npt.NDArray[np.bool_]
    end_of_text: int

    def numbers(self, ids: Integers, loss_mask: npt.NDArray[np.bool_]) -> Integers:
        """The document [B, T + 1] of each id; -1 in padding and where no document holds it."""
        found = np.full(ids.shape, -1, np.int64)
        if count := len(self.number):
            found[:count] = _numbered(ids[:count], self.number, self.end_of_text)
            found[:count, 1:][~loss_mask[:count]] = -1
            found[:count, 0][self.begins] = -1
        return found


class BatchMemory:
    """Memory for batches, a little of it kept for the next. Safe for several threads: what hands it
    back is the end of the last array, in whichever thread that happens, so there is no lock."""

    def __init__(self) -> None:
        self._spare: deque[npt.NDArray[np.uint8]] = deque(maxlen=_SPARE)

    def take(self, height: int, sequence: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Arrays [height, sequence + 1] int64 and [height, sequence] bool, not cleared."""
        memory = self._fitting(batch_bytes(height, sequence))
        # Over a buffer that is no array, so that whatever is derived from the root holds the root.
        root = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(root, self._spare.append, memory).atexit = False
        cells = height * (sequence + 1)
        ids = root[: 8 * cells].view(np.int64).reshape(height, sequence + 1)
        mask = root[8 * cells :].view(np.bool_).reshape(height, sequence)
        return ids, mask

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
    return 8 * height * (sequence + 1) + height * sequence


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
    where: Located, block: Callable[[BlockKey], Block], end_of_text: int, memory: BatchMemory
) -> Rows:
    """The rows of a batch."""
    ids, mask = memory.take(where.height, where.sequence)
    pieces, documents = _pieces(where, block, end_of_text)
    numbers, count = where.samples.tolist(), len(pieces)
    digest = sum(map(_hashed, pieces, numbers)) % MODULUS
    if pieces:
        np.concatenate(pieces, out=ids[:count].reshape(-1))
    mask[:count] = True
    length = where.stop - where.start
    for row in np.flatnonzero(length < where.sequence).tolist():
        mask[row, length[row] :] = False
    ids[count:], mask[count:] = end_of_text, False
    return Rows(ids, mask, tuple(numbers), digest, documents)


def samples_digest(samples: tuple[int, ...], ids: Integers, dtype: np.dtype[Any]) -> int:
    """The digest of samples from their ids [rows, sequence + 1], stored as `dtype`; see the head of
    this file."""
    return sum(map(_hashed, ids[: len(samples)].astype(dtype), samples)) % MODULUS


def _hashed(ids: npt.NDArray[Any], number: int) -> int:
    return xxhash.xxh3_64_intdigest(ids.data, seed=number)


def _pieces(
    where: Located, block: Callable[[BlockKey], Block], end_of_text: int
) -> tuple[list[npt.NDArray[Any]], FirstDocuments]:
    """For each row its tokens from the one before it on, filled up; and their documents."""
    starts, stops, width = where.start.tolist(), where.stop.tolist(), where.sequence + 1
    documents: list[int] = []
    pieces: list[npt.NDArray[Any]] = []
    begins = np.zeros(len(starts), np.bool_)
    for run in where.runs:
        found = block(run.key)
        tokens, ends, number = found.tokens, found.ends.data, found.documents
        for row in range(run.first, run.stop):
            start = starts[row]
            documents.append(number + bisect.bisect_left(ends, start))
            pieces.append(tokens[start : stops[row] + 1])
            begins[row] = found.first and not start
    for row in np.flatnonzero(where.stop - where.start < where.sequence).tolist():
        short, pieces[row] = pieces[row], np.full(width, end_of_text, pieces[row].dtype)
        pieces[row][: len(short)] = short
    return pieces, FirstDocuments(np.array(documents, np.int64), begins, end_of_text)


def _numbered(ids: Integers, before: Integers, end_of_text: int) -> Integers:
    """Documents of `ids` [rows, width], where `before` [rows] is that of the second id of each row.
    A row is cut into runs, one more than it has ends of text (the last id aside)."""
    rows, width = ids.shape
    ends = np.flatnonzero(ids[:, :-1] == end_of_text)
    row = ends // (width - 1)
    runs = np.bincount(row, minlength=rows) + 1
    head = np.cumsum(runs) - runs  # the run at which each row begins
    edges = np.empty(rows + len(ends) + 1, np.int64)
    inner = np.ones(len(edges), np.bool_)
    inner[head], inner[-1] = False, False
    edges[head] = np.arange(0, rows * width, width)
    edges[inner] = ends + row + 1
    edges[-1] = rows * width
    lead = before - (ids[:, 0] == end_of_text) - head
    numbers = np.arange(len(edges) - 1) + np.repeat(lead, runs)
    return np.repeat(numbers, edges[1:] - edges[:-1]).reshape(rows, width)
