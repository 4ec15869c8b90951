"""Verified blocks of token objects: read whole, checked, kept for a while within a bound of bytes.

Each block has its own CRC32C in the object's `.blocks` sidecar, which the manifest vouches for.
What does not match is read once more, since the wire may have been at fault and not the object; if
it still differs the error names object and block, and nobody trains on it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from eyas.store import Corrupt, ObjectRef, Store, crc32c, read_object

from .token_objects import BLOCK_RECORD, TokenObject

__all__ = ["Block", "BlockReader", "ByteCache"]

K = TypeVar("K")
V = TypeVar("V")
SIDECAR_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Block:
    """`tokens` [n]; `ends` are the positions of its end-of-text tokens; `previous` is the token
    before the block, `documents` how many documents of the object end before it."""

    tokens: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]
    previous: int
    documents: int


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
    """Blocks of a split, by object and block number; `facts` are the tokens manifest's."""

    def __init__(
        self,
        store: Store,
        objects: Sequence[TokenObject],
        facts: Mapping[str, Any],
        cache_bytes: int,
    ) -> None:
        self._store = store
        self._objects = objects
        self._dtype = np.dtype(facts["dtype"]).newbyteorder("<")
        self._end_of_text = facts["end_of_text"]
        self._block_bytes = int(facts["block_bytes"])
        self._blocks: ByteCache[tuple[int, int], Block] = ByteCache(cache_bytes)
        self._sidecars: ByteCache[int, npt.NDArray[Any]] = ByteCache(SIDECAR_BYTES)

    def block(self, number: int, index: int) -> Block:
        """Block `index` of object `number`. Raises Corrupt naming both if it is damaged."""
        return self._blocks.get((number, index), lambda: self._read(number, index))

    def _read(self, number: int, index: int) -> tuple[Block, int]:
        record = self._sidecar(number)[index]
        data = self._verified(self._objects[number].tokens, index, int(record["crc32c"]))
        tokens = np.frombuffer(data, self._dtype)
        ends = np.flatnonzero(tokens == self._end_of_text)
        block = Block(tokens, ends, int(record["previous"]), int(record["documents"]))
        return block, len(data) + ends.nbytes

    def _verified(self, reference: ObjectRef, index: int, expected: int) -> bytes:
        start = index * self._block_bytes
        length = min(self._block_bytes, reference.size - start)
        found = []
        for _ in range(2):
            data = self._store.get_range(reference.key, start, length)
            found.append(crc32c(data))
            if found[-1] == expected:
                return data
        raise Corrupt(
            f"{self._store.url}: {reference.key} is damaged in block {index} (bytes {start} to "
            f"{start + length}): CRC32C {found[0]:08x}, then {found[1]:08x}, written "
            f"{expected:08x}; restore the object, or plan around this block"
        )

    def _sidecar(self, number: int) -> npt.NDArray[Any]:
        def make() -> tuple[npt.NDArray[Any], int]:
            data = read_object(self._store, self._objects[number].blocks)
            return np.frombuffer(data, BLOCK_RECORD), len(data)

        return self._sidecars.get(number, make)
