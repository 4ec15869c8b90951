"""Gzip content as a stream that gives all that can be read before it says what is wrong.

Python's own GzipFile throws away what it has when the end is missing, and other readers end without
a word; here the sound part comes first and the next read raises.
"""

from __future__ import annotations

import io
import zlib
from typing import IO, Any

__all__ = ["Inflated"]

_CHUNK = 1 << 16


class Inflated(io.RawIOBase):
    """The content of a gzip stream of one or many members. Seeks forward only. Reading raises
    EOFError past the sound part of a stream that ends early, zlib.error at damage."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._inflater = zlib.decompressobj(31)
        self._input = b""
        self._ready = b""
        self._position = 0
        self._inside = False
        self._error: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        if whence == io.SEEK_END or target < self._position:
            raise io.UnsupportedOperation("gzip content is read from front to back")
        while self._position < target and self.read(min(_CHUNK, target - self._position)):
            pass
        return self._position

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for, fewer only at the end or before damage."""
        out = bytearray()
        while size < 0 or len(out) < size:
            try:
                piece = super().read(_CHUNK if size < 0 else size - len(out))
            except (EOFError, zlib.error):
                if out:
                    break
                raise
            if not piece:
                break
            out += piece
        return bytes(out)

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._error and self._more():
            pass
        if not self._ready and self._error:
            raise self._error
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _more(self) -> bool:
        """Decompress one more piece; False at the end of the stream."""
        self._input = self._input or self._stream.read(_CHUNK)
        if not self._inside:
            self._input = self._input.lstrip(b"\0")
        if not self._input:
            if self._inside:
                self._error = EOFError("the gzip stream ends early")
            return False
        self._inside = True
        try:
            self._ready = self._inflater.decompress(self._input, 4 * _CHUNK)
        except zlib.error as error:
            self._error = error
            return False
        self._input = self._inflater.unconsumed_tail
        if self._inflater.eof:
            self._input = self._inflater.unused_data
            self._inflater = zlib.decompressobj(31)
            self._inside = False
        return True
