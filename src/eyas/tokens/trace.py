"""From samples back to documents: whose text, from where on the web, was in a training step.

In come the places of samples; out come rows, found by binary search in the document tables of the
objects concerned. Tokens are not read: places and tables suffice.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from eyas.store import Store, read_object

from .blocks import ByteCache
from .rows import Located, Run
from .token_objects import TokenObject

__all__ = ["DocumentTable", "Documents", "TraceRow", "trace_run"]

TABLE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TraceRow:
    """The targets of sample number `sample` that are tokens `start` to `end` (exclusive) of a
    document of `source`, counted in its own tokens with the end of text after them. `shard` is the
    corpus object or input file. `text` only if asked for."""

    sample: int
    source: str
    document: str
    url: str
    language: str
    shard: str
    start: int
    end: int
    text: str | None = None


@dataclass(frozen=True)
class Documents:
    """The table of one object, `start` and `end` [documents] as arrays."""

    table: pa.Table
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


class DocumentTable:
    """The document tables of a split of a source, read when needed, verified, a few kept."""

    def __init__(self, store: Store, objects: Sequence[TokenObject]) -> None:
        self._store = store
        self._objects = objects
        self._tables: ByteCache[int, Documents] = ByteCache(TABLE_BYTES)

    def of(self, number: int) -> Documents:
        """The table of object `number`."""
        return self._tables.get(number, lambda: self._read(number))

    def _read(self, number: int) -> tuple[Documents, int]:
        data = io.BytesIO(read_object(self._store, self._objects[number].documents))
        table = pq.ParquetFile(data, pre_buffer=False).read(use_threads=False)
        start, end = (table.column(name).to_numpy() for name in ("start", "end"))
        return Documents(table, start, end), table.nbytes + start.nbytes + end.nbytes


def trace_run(
    source: str,
    documents: Documents,
    where: Located,
    run: Run,
    base: int,
    text: Callable[[int, int], str] | None,
) -> list[TraceRow]:
    """Rows of the samples of a run, in order. `base` is the first token of its block in the object;
    `text(start, stop)` gives tokens of the block as text."""
    found = []
    for row in range(run.first, run.stop):
        first, stop = base + int(where.start[row]), base + int(where.stop[row])
        low = int(np.searchsorted(documents.end, first, side="right"))
        high = int(np.searchsorted(documents.start, stop, side="left"))
        for i, known in enumerate(documents.table.slice(low, high - low).to_pylist(), low):
            start = int(documents.start[i])
            begin, end = max(first, start), min(stop, int(documents.end[i]))
            found.append(
                TraceRow(
                    sample=int(where.samples[row]),
                    source=source,
                    document=known["document"],
                    url=known["url"],
                    language=known["language"],
                    shard=known["shard"],
                    start=begin - start,
                    end=end - start,
                    text=text(begin - base, end - base) if text else None,
                )
            )
    return found
