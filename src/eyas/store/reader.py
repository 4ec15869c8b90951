"""An object as a file, for libraries that want one (pyarrow, fastwarc, zipfile).

One block is held, of 8 MiB, aligned to its size; reads of a block or more go straight from the
store into the caller's buffer. Given the object's CRC32C, a read from front to back is verified:
the last read raises Corrupt rather than return the end of a damaged object. Reads in another order
cannot be verified here.
"""

from __future__ import annotations

import io
from typing import Any

from .base import Corrupt, NotFound, Store
from .sealed import crc32c

__all__ = ["ObjectReader"]


class ObjectReader(io.RawIOBase):
    """A seekable, read-only binary file over `store.read_into`, for one thread at a time.

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
        self._memory = bytearray()  # of the held block, made once
        self._held = memoryview(self._memory)
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
                got = self._fill(view[done:wanted])
                done += got
                self._position += got
        return done

    def _fill(self, view: memoryview) -> int:
        """Bytes from the position on into `view`, from the held block where it has them."""
        offset = self._position - self._held_start
        if not 0 <= offset < len(self._held):
            if len(view) >= self._block:
                self._fetch(self._position, view)
                return len(view)
            self._hold(self._position - self._position % self._block)
            offset = self._position - self._held_start
        piece = self._held[offset : offset + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def _hold(self, start: int) -> None:
        """The block from `start` on; none if it cannot be read."""
        length = min(self._block, self._size - start)
        if len(self._memory) < length:
            self._memory = bytearray(length)
        self._held = memoryview(self._memory)[:0]
        block = memoryview(self._memory)[:length]
        self._fetch(start, block)
        self._held, self._held_start = block, start

    def _fetch(self, start: int, view: memoryview) -> None:
        self._store.read_into(self._key, start, view)
        end = start + len(view)
        if self._expected is not None and start <= self._checked < end:
            self._value = crc32c(view[self._checked - start :], self._value)
            self._checked = end
            if end == self._size and f"{self._value:08x}" != self._expected:
                raise Corrupt(
                    f"{self._store.url}: {self._key} is damaged: its CRC32C is {self._value:08x}, "
                    f"{self._expected} was written; run `eyas verify`"
                )

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self._key} is closed")
