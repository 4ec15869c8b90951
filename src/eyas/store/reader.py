"""An object as a file, for libraries that want one (pyarrow, fastwarc, zipfile).

One block is held, of 8 MiB, aligned to its size; reads of a block or more go straight to the
store. Given the object's CRC32C, a read from front to back is verified: the last read raises
Corrupt rather than return the end of a damaged object. Reads in another order cannot be verified
here.
"""

from __future__ import annotations

import io
from typing import Any

from .base import Corrupt, NotFound, Store
from .sealed import crc32c

__all__ = ["ObjectReader"]


class ObjectReader(io.RawIOBase):
    """A seekable, read-only binary file over `store.get_range`, for one thread at a time.

    `size` is asked of the store if not given (raises NotFound). `crc32c` is 8 hex digits of the
    whole content, as in an ObjectRef. Wrap it in `io.BufferedReader` where small reads are many.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        size: int | None = None,
        block: int = 8 << 20,
        crc32c: str | None = None,
    ) -> None:
        if size is None:
            info = store.stat(key)
            if info is None:
                raise NotFound(store.url, key)
            size = info.size
        self._store = store
        self._key = key
        self._size = size
        self._block = block
        self._expected = crc32c
        self._position = 0
        self._held = b""
        self._held_start = 0
        self._checked = 0  # bytes from the front that `_value` covers
        self._value = 0

    @property
    def name(self) -> str:
        """The object's key."""
        return self._key

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self._key}: cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`; short only at the end of the object."""
        self._check_open()
        with memoryview(buffer).cast("B") as view:
            wanted = max(0, min(len(view), self._size - self._position))
            done = 0
            while done < wanted:
                piece = self._piece(self._position, wanted - done)
                view[done : done + len(piece)] = piece
                done += len(piece)
                self._position += len(piece)
        return done

    def _piece(self, start: int, wanted: int) -> memoryview:
        """Up to `wanted` bytes from `start`, from the held block where it has them."""
        offset = start - self._held_start
        if not 0 <= offset < len(self._held):
            if wanted >= self._block:
                return memoryview(self._fetch(start, wanted))
            self._held_start = start - start % self._block
            self._held = b""  # two blocks are never held
            self._held = self._fetch(
                self._held_start, min(self._block, self._size - self._held_start)
            )
            offset = start - self._held_start
        return memoryview(self._held)[offset : offset + wanted]

    def _fetch(self, start: int, length: int) -> bytes:
        data = self._store.get_range(self._key, start, length)
        end = start + length
        if self._expected is not None and start <= self._checked < end:
            self._value = crc32c(memoryview(data)[self._checked - start :], self._value)
            self._checked = end
            if end == self._size and f"{self._value:08x}" != self._expected:
                raise Corrupt(
                    f"{self._store.url}: {self._key} is damaged: its CRC32C is {self._value:08x}, "
                    f"{self._expected} was written; run `eyas verify`"
                )
        return data

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self._key} is closed")
