"""Verified blocks of token objects: read into memory that is given, checked, kept within a bound.

Each block has its own CRC32C in the object's `.blocks` sidecar, which the manifest vouches for.
What does not match is read once more on a fresh connection, since the wire or a proxy may have been
at fault and not the object; if it still differs the error names object and block, and nobody trains
on it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from eyas.store import Corrupt, Store, crc32c, read_object

from .token_objects import BLOCK_RECORD, TokenObject

__all__ = ["Block", "BlockReader", "ByteCache"]

K = TypeVar("K")
V = TypeVar("V")
SIDECAR_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Block:
    """`tokens` [n + 1] are the token before the block and its own n; `ends` the positions of end of
    text among its own, from 0; `documents` the number of the document that its first token belongs
    to. `first` says that it begins an object, so that no document holds the token before it."""

    tokens: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]
    documents: int
    first: bool

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + self.ends.nbytes


class ByteCache(Generic[K, V]):
    """The values used last, at most `limit` bytes of them (the newest is always kept). Safe for
    several threads; two that miss the same value both make it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], tuple[V, int]]) -> V:
        """The value of `key`; `make` returns it with its bytes."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value, size = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = (value, size)
                self._held += size
            while self._held > self._limit and len(self._values) > 1:
                self._held -= self._values.popitem(last=False)[1][1]
        return value


class BlockReader:
    """Reads blocks of a source, by object and block number, without keeping them. `facts` are the
    tokens manifest's, `first_document` [objects] the number of each object's first document. Safe
    for several threads."""

    def __init__(
        self,
        store: Store,
        objects: Sequence[TokenObject],
        facts: Mapping[str, Any],
        first_document: npt.NDArray[np.int64],
    ) -> None:
        self._store = store
        self._objects = objects
        self._first_document = first_document
        self.dtype = np.dtype(facts["dtype"]).newbyteorder("<")
        self._end_of_text = facts["end_of_text"]
        self._block_bytes = int(facts["block_bytes"])
        self._sidecars: ByteCache[int, npt.NDArray[Any]] = ByteCache(SIDECAR_BYTES)

    @property
    def memory_bytes(self) -> int:
        """Memory for any block: a whole one and the token before it."""
        return self._block_bytes + self.dtype.itemsize

    def read(self, number: int, index: int, memory: npt.NDArray[np.uint8] | None = None) -> Block:
        """Block `index` of object `number`, in `memory` (at least `memory_bytes`) or in memory of
        its own. Raises Corrupt naming both if it is damaged."""
        record = self._sidecar(number)[index]
        length = self._length(number, index)
        size = self.dtype.itemsize + length
        memory = np.empty(size, np.uint8) if memory is None else memory[:size]
        self._verified(number, index, memory[self.dtype.itemsize :], int(record["crc32c"]))
        tokens = memory.view(self.dtype)
        tokens[0] = record["previous"]
        ends = np.flatnonzero(tokens[1:] == self._end_of_text)
        documents = int(self._first_document[number]) + int(record["documents"])
        return Block(tokens, ends, documents, index == 0)

    def _length(self, number: int, index: int) -> int:
        size = self._objects[number].tokens.size
        return min(self._block_bytes, size - index * self._block_bytes)

    def _verified(
        self, number: int, index: int, memory: npt.NDArray[np.uint8], expected: int
    ) -> None:
        key, start = self._objects[number].tokens.key, index * self._block_bytes
        found = []
        for fresh in (False, True):
            self._store.read_into(key, start, memory.data, fresh)
            found.append(crc32c(memory.data))
            if found[-1] == expected:
                return
        raise Corrupt(
            f"{self._store.url}: {key} is damaged in block {index} (bytes {start} to "
            f"{start + len(memory)}): CRC32C {found[0]:08x}, then {found[1]:08x} on a fresh "
            f"connection, written {expected:08x}; restore the object, or plan around this block"
        )

    def _sidecar(self, number: int) -> npt.NDArray[Any]:
        def make() -> tuple[npt.NDArray[Any], int]:
            data = read_object(self._store, self._objects[number].blocks)
            return np.frombuffer(data, BLOCK_RECORD), len(data)

        return self._sidecars.get(number, make)
