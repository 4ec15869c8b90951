"""Compressed content as streams that give all that can be read before they say what is wrong.

Python's own GzipFile throws away what it has when the end is missing, and other readers end without
a word; here the sound part comes first and the next read raises. `Content` makes such a stream
seekable: what was read last is kept, so that going back a little costs nothing; going back further
begins again from the front.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

__all__ = ["FAULTS", "Content", "Inflated", "ends_early", "raise_of_system", "zstd_frame_end"]

# What reading raises at damage; see `raise_of_system` for what else an OSError may be.
FAULTS = (OSError, ValueError, EOFError, zlib.error)

_CHUNK = 1 << 16
_KEPT = 8 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_DICTIONARY_SIZES = (0, 1, 2, 4)


class _Reads(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Inflated(io.RawIOBase):
    """The content of a gzip stream from where it stands: of all members, or of those up to the
    first where `goes_on` says of the place behind it that the next is not wanted. Reading raises
    EOFError past the sound part of a stream that ends early, zlib.error at damage. `end` is then
    the place behind the last of the `members`, once it was read, else -1."""

    def __init__(self, stream: IO[bytes], goes_on: Callable[[int], bool] | None = None) -> None:
        self.end = -1
        self.members = 1
        self._stream = stream
        self._goes_on = goes_on
        self._inflater = zlib.decompressobj(31)
        self._input = b""
        self._ready = memoryview(b"")
        self._inside = False
        self._error: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return _gather(super().read, size)

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._error and self._more():
            pass
        if not self._ready and self._error:
            raise self._error
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        return len(part)

    def _more(self) -> bool:
        """Decompress one more piece; False at the end of the stream."""
        if self.end >= 0:
            return False
        self._input = self._input or self._stream.read(_CHUNK)
        if not self._inside:
            self._input = self._input.lstrip(b"\0")
        if not self._input:
            if self._inside:
                self._error = EOFError("the gzip stream ends early")
            return False
        self._inside = True
        try:
            self._ready = memoryview(self._inflater.decompress(self._input, 4 * _CHUNK))
        except zlib.error as error:
            self._error = error
            return False
        self._input = self._inflater.unconsumed_tail
        if self._inflater.eof:
            self._next_member()
        return True

    def _next_member(self) -> None:
        self._input = self._inflater.unused_data
        self._inside = False
        if self._goes_on:
            here = self._stream.tell()
            end = here - len(self._input)
            goes_on = self._goes_on(end)
            self._stream.seek(here)
            if not goes_on:
                self.end = end
                return
        self.members += 1
        self._inflater = zlib.decompressobj(31)


class Content(io.RawIOBase):
    """A stream that can only be read forward, made seekable. `start` opens it at its front."""

    def __init__(self, start: Callable[[], _Reads]) -> None:
        self._start = start
        self._inner = start()
        self._error: Exception | None = None
        self._window = bytearray()
        self._window_start = 0
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """To an offset past the end: the position is the end."""
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end of compressed content is not known")
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        if target < self._window_start:
            self._inner, self._error = self._start(), None
            self._window.clear()
            self._window_start = self._position = 0
        self._position = min(target, self._window_start + len(self._window))
        while self._position < target and self.read(min(_CHUNK, target - self._position)):
            pass
        return self._position

    def read(self, size: int = -1) -> bytes:
        return _gather(self._piece, size)

    def readinto(self, buffer: Any) -> int:
        piece = self._piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _piece(self, size: int) -> bytes:
        offset = self._position - self._window_start
        if offset == len(self._window):
            more = self._more()
            if len(self._window) >= 2 * _KEPT:
                del self._window[:_KEPT]
                self._window_start += _KEPT
                offset -= _KEPT
            self._window += more
        piece = bytes(memoryview(self._window)[offset : offset + size])
        self._position += len(piece)
        return piece

    def _more(self) -> bytes:
        """The next bytes; behind damage always the same error."""
        if self._error:
            raise self._error
        try:
            return self._inner.read(_CHUNK)
        except FAULTS as error:
            self._error = error
            raise


def _gather(read: Callable[[int], bytes], size: int) -> bytes:
    """As many bytes as asked for (all, if less than 0), fewer only at the end or before damage:
    what stands before it comes first, and the next call raises."""
    out = bytearray()
    while size < 0 or len(out) < size:
        try:
            piece = read(_CHUNK if size < 0 else size - len(out))
        except FAULTS as error:
            raise_of_system(error)
            if out:
                break
            raise
        if not piece:
            break
        out += piece
    return bytes(out)


def raise_of_system(error: BaseException) -> None:
    """Raise an error of the disk, which is no damage of the file: those have no number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def ends_early(error: BaseException) -> bool:
    """Whether this is what reading raises where the end is missing."""
    return isinstance(error, EOFError) or "incomplete frame" in str(error)


def zstd_frame_end(stream: IO[bytes], start: int) -> int:
    """Where the zstd frame at `start` ends, by its block headers (RFC 8878); nothing is
    decompressed.

    Raises EOFError if the stream ends before the frame, ValueError if there is no legal frame.
    """
    stream.seek(start)
    magic = _exactly(stream, 4)
    if magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F:  # a frame to be skipped
        end = start + 8 + int.from_bytes(_exactly(stream, 4), "little")
        return _inside(stream, end)
    if magic != _ZSTD:
        raise ValueError("no zstd frame")
    flags = _exactly(stream, 1)[0]
    single, checksum = flags >> 5 & 1, flags >> 2 & 1
    size_bytes = (single, 2, 4, 8)[flags >> 6]
    _exactly(stream, (0 if single else 1) + _DICTIONARY_SIZES[flags & 3] + size_bytes)
    last = 0
    while not last:
        block = int.from_bytes(_exactly(stream, 3), "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == 3:
            raise ValueError("no legal zstd block")
        stream.seek(1 if kind == 1 else size, io.SEEK_CUR)
    return _inside(stream, stream.tell() + 4 * checksum)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the zstd stream ends early")
    return data


def _inside(stream: IO[bytes], end: int) -> int:
    stream.seek(end - 1)
    _exactly(stream, 1)
    return end
