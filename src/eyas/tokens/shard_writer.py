"""Encoded documents in, the objects of token shards out (format: `token_objects.py`).

Documents come in the order of the input and are written in that of the hash of their names, so the
tokens of a shard are held (as they will be stored, at most `shard_bytes` of them), its text never.
When so much is held it is written as one part of the shard and the next one begins. Tokens are
moved by whole arrays: no Python object is made for a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from eyas.store import ObjectRef, Store, crc32c, put_object, put_object_chunks

from .token_arrays import gather
from .token_objects import BLOCK_RECORD, DOCUMENTS_SCHEMA, object_stem

__all__ = ["EncodedDocuments", "ShardWriter"]

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodedDocuments:
    """Some documents in order: `tokens`, end of text after each; `lengths` [documents] in tokens,
    the end included; `sizes` in bytes of text, 0 where ids came ready. `sources` and `splits` say
    whose each is."""

    tokens: Array
    lengths: Integers
    names: Sequence[str]
    urls: Sequence[str]
    languages: Sequence[str]
    sizes: Sequence[int]
    sources: Sequence[str]
    splits: Sequence[str]


@dataclass
class _Held:
    """The documents of one source and split that are not written yet."""

    tokens: bytearray = field(default_factory=bytearray)
    lengths: list[Integers] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)


class ShardWriter:
    """The shard `number` of each source in the tokens `identity`, made of the input `origin`.
    `tally` counts documents, tokens and bytes of text by source, split and language; `highest` is
    the largest id so far, -1 before the first."""

    def __init__(
        self, store: Store, identity: str, number: int, origin: str, dtype: np.dtype[Any],
        end_of_text: int, block_bytes: int, shard_bytes: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._identity = identity
        self._number = number
        self._origin = origin
        self._dtype = dtype
        self._end_of_text = end_of_text
        self._block = block_bytes // dtype.itemsize
        self._limit = shard_bytes
        self._parts = 0
        self._held: dict[tuple[str, str], _Held] = {}
        self._objects: list[ObjectRef] = []
        self.tally: dict[str, dict[str, dict[str, list[int]]]] = {}
        self.highest = -1

    def add(self, documents: EncodedDocuments) -> None:
        """Take them in; writes a part when enough is held."""
        starts = np.cumsum(documents.lengths) - documents.lengths
        rows: dict[tuple[str, str], list[int]] = {}
        for row, owner in enumerate(zip(documents.sources, documents.splits, strict=True)):
            rows.setdefault(owner, []).append(row)
        for owner, chosen in rows.items():
            lengths = documents.lengths[chosen]
            tokens = documents.tokens
            if len(rows) > 1:
                tokens = gather(tokens, starts[chosen], lengths)
            held = self._held.setdefault(owner, _Held())
            held.tokens += tokens.view(np.uint8).data
            held.lengths.append(lengths)
            held.names += [documents.names[row] for row in chosen]
            held.urls += [documents.urls[row] for row in chosen]
            held.languages += [documents.languages[row] for row in chosen]
            self._count(owner, documents, chosen)
        if sum(len(held.tokens) for held in self._held.values()) >= self._limit:
            self._write_part()

    def finish(self) -> tuple[ObjectRef, ...]:
        """Write the rest; all objects, in the order in which they were written."""
        self._write_part()
        return tuple(self._objects)

    def _count(
        self, owner: tuple[str, str], documents: EncodedDocuments, rows: Sequence[int]
    ) -> None:
        languages = self.tally.setdefault(owner[0], {}).setdefault(owner[1], {})
        for row in rows:
            sums = languages.setdefault(documents.languages[row], [0, 0, 0])
            sums[0] += 1
            sums[1] += int(documents.lengths[row])
            sums[2] += documents.sizes[row]

    def _write_part(self) -> None:
        for (source, split), held in sorted(self._held.items()):
            stem = object_stem(self._identity, source, split, self._number, self._parts)
            self._objects += self._write(stem, held)
        self._held.clear()
        self._parts += 1

    def _write(self, stem: str, held: _Held) -> list[ObjectRef]:
        """The three objects of what is held."""
        hashes = np.array([xxhash.xxh3_64_intdigest(n.encode()) for n in held.names], np.uint64)
        order = np.argsort(hashes, kind="stable")
        lengths = np.concatenate(held.lengths)
        starts = (np.cumsum(lengths) - lengths)[order]
        lengths = lengths[order]
        ends = np.cumsum(lengths)
        records: list[tuple[int, int, int]] = []
        flat = np.frombuffer(held.tokens, self._dtype)
        chunks = self._blocks(flat, starts, ends, records)
        tokens = put_object_chunks(self._store, f"{stem}.tok", chunks, rows=len(flat))
        data = np.array(records, BLOCK_RECORD).tobytes()
        return [
            tokens,
            put_object(self._store, f"{stem}.blocks", data, rows=len(records)),
            self._write_documents(f"{stem}.docs.parquet", held, order, lengths),
        ]

    def _blocks(
        self, flat: Array, starts: Integers, ends: Integers, records: list[tuple[int, int, int]]
    ) -> Iterator[bytes]:
        """The tokens document by document, cut into blocks, each recorded on the way. `starts` are
        where the documents lie in `flat`, `ends` where they will end."""
        previous = self._end_of_text
        begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        for low in range(0, len(flat), self._block):
            high = min(low + self._block, len(flat))
            first = int(np.searchsorted(ends, low, side="right"))
            stop = int(np.searchsorted(ends, high, side="left")) + 1
            inside = np.maximum(begins[first:stop], low)
            lengths = np.minimum(ends[first:stop], high) - inside
            block = gather(flat, starts[first:stop] + inside - begins[first:stop], lengths)
            data = block.tobytes()
            records.append((crc32c(data), previous, first))
            previous = int(block[-1])
            self.highest = max(self.highest, int(block.max()))
            yield data

    def _write_documents(
        self, key: str, held: _Held, order: Integers, lengths: Integers
    ) -> ObjectRef:
        ends = np.cumsum(lengths)
        columns = {
            "document": pa.array(held.names).take(pa.array(order)),
            "url": pa.array(held.urls).take(pa.array(order)),
            "language": pa.array(held.languages).take(pa.array(order)),
            "shard": pa.array([self._origin] * len(order)),
            "start": pa.array(ends - lengths),
            "end": pa.array(ends),
        }
        arrays = [columns[f.name].cast(f.type) for f in DOCUMENTS_SCHEMA]
        table = pa.Table.from_arrays(arrays, schema=DOCUMENTS_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", row_group_size=65_536)
        return put_object(self._store, key, sink.getvalue().to_pybytes(), rows=len(order))
