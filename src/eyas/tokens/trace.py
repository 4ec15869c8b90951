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
from .grid import Places
from .token_objects import TokenObject

__all__ = ["DocumentTable", "TraceRow", "trace_rows"]

TABLE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TraceRow:
    """The targets of sample number `sample` that are tokens `start` to `end` (exclusive) of a
    document, counted in its own tokens with the end of text after them. `shard` is the corpus
    object. `text` only if asked for."""

    sample: int
    document: str
    url: str
    language: str
    shard: str
    start: int
    end: int
    text: str | None = None


@dataclass(frozen=True)
class _Documents:
    """The table of one object, `start` and `end` [documents] as arrays."""

    table: pa.Table
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


class DocumentTable:
    """The document tables of a split, read when needed, verified, a bounded number kept."""

    def __init__(self, store: Store, objects: Sequence[TokenObject]) -> None:
        self._store = store
        self._objects = objects
        self._tables: ByteCache[int, _Documents] = ByteCache(TABLE_BYTES)

    def of(self, number: int) -> _Documents:
        """The table of object `number`."""
        return self._tables.get(number, lambda: self._read(number))

    def _read(self, number: int) -> tuple[_Documents, int]:
        table = pq.read_table(io.BytesIO(read_object(self._store, self._objects[number].documents)))
        start, end = (table.column(name).to_numpy() for name in ("start", "end"))
        return _Documents(table, start, end), table.nbytes + start.nbytes + end.nbytes


def trace_rows(
    tables: DocumentTable,
    samples: Sequence[int],
    places: Places,
    block_tokens: int,
    text: Callable[[int, int, int, int], str] | None,
) -> list[TraceRow]:
    """Rows of each sample in order. `text(object, block, start, stop)` gives tokens of a block as
    text."""
    found = []
    for i in range(len(places.object)):
        number, block = int(places.object[i]), int(places.block[i])
        documents = tables.of(number)
        base = block * block_tokens
        first, stop = base + int(places.start[i]), base + int(places.stop[i])
        low = int(np.searchsorted(documents.end, first, side="right"))
        high = int(np.searchsorted(documents.start, stop, side="left"))
        for row, known in enumerate(documents.table.slice(low, high - low).to_pylist(), low):
            begin = max(first, int(documents.start[row]))
            end = min(stop, int(documents.end[row]))
            found.append(
                TraceRow(
                    sample=samples[i],
                    document=known["document"],
                    url=known["url"],
                    language=known["language"],
                    shard=known["shard"],
                    start=begin - int(documents.start[row]),
                    end=end - int(documents.start[row]),
                    text=text(number, block, begin - base, end - base) if text else None,
                )
            )
    return found
