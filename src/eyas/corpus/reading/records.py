"""Records of a crawl file (WARC, WET, ARC; plain, gzip, zstd), with nothing lost in silence.

A file is a row of frames: gzip members, zstd frames, or plain records. A member that does not begin
as a record goes on with what stands before it, and is of one frame with that: some tools pack in
blocks of a size.

Of gzip, which crawls come in, fastwarc reads ahead through sound members. Whatever makes it stop,
an error or the end (which it also sees where there is none: behind headers with bare newlines it
ends without a word, and a length whose name is in lower case it takes for 0), the last record is
read again by the careful way, which believes a record only if its frame holds (see
parse_record.py). What does not hold is one `Broken`, and reading goes on at the next frame that
begins as one.

Everything else (plain files, zstd, members with many records, ARC) is read by the careful way only.

The offset of a record is that of its frame, plus its number where it is not the first one in it.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Protocol, TypeAlias, cast

from fastwarc.stream_io import ZstdReader
from fastwarc.warc import ArchiveIterator, WarcRecord

from .inflate import FAULTS, Content, Inflated, ends_early, raise_of_system, zstd_frame_end
from .parse_record import (
    AHEAD,
    PAGE_KINDS,
    RECORD_LINE,
    Record,
    Unfit,
    begins_record,
    parse_record,
)

__all__ = ["Broken", "walk_records"]

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # behind 0x50 to 0x5f: a zstd frame of something else
_DICTIONARY = b"\x5d" + _SKIPPED
_FRAME = {
    _GZIP: re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
    _ZSTD: re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_DICTIONARY_BYTES = 16 << 20
_CHUNK = 1 << 18
_STRAY = "no record begins here"


@dataclass(frozen=True)
class Broken:
    """A damaged stretch: one record, or bytes that are none. `reason` is "truncated" or
    "broken"."""

    offset: int
    url: str
    reason: str
    detail: str


_Items: TypeAlias = Iterator[Record | Broken]
_Reading: TypeAlias = Generator[Record | Broken, None, "_End"]


@dataclass(frozen=True)
class _End:
    """What was learnt from reading a frame: where to go on; whether the bytes from there to the
    next frame belong to something damaged that was counted; whether it held one record."""

    position: int
    counted: bool = False
    single: bool = False


class _Doubt(Exception):
    """The quick way cannot tell whether what it sees is sound."""


class _Source(Protocol):
    """A row of frames."""

    stream: IO[bytes]
    quick: bool

    def begins(self, start: int) -> bool: ...
    def search(self, start: int) -> int: ...
    def read(self, start: int, limit: int) -> _Reading: ...


def walk_records(stream: IO[bytes], limit: int) -> _Items:
    """Every record of a seekable file in order; blocks are cut at `limit` bytes, and offsets are
    unique."""
    source = _source(stream)
    last = -1
    for item in _walk(source, limit):
        last = max(item.offset, last + 1)
        yield item if item.offset == last else replace(item, offset=last)


def _source(stream: IO[bytes]) -> _Source:
    """The kind of frames that the file begins with or, if its first bytes are damaged, that come
    first in it."""
    kinds: list[_Source] = [_Gzip(stream), _Zstd(stream), _Plain(stream)]
    for source in kinds:
        if source.begins(0):
            return source
    found = [(position, n) for n, s in enumerate(kinds) if (position := s.search(0)) >= 0]
    return kinds[min(found)[1]] if found else kinds[-1]


def _walk(source: _Source, limit: int) -> _Items:
    at = _End(0)
    while True:
        found = (source.search if at.counted else partial(_padding_end, source.stream))(at.position)
        if not at.counted and (found < 0 or not source.begins(found)):
            if found >= 0 or (at.position == 0 and source.stream.tell()):
                yield Broken(max(0, found), "", "broken", _STRAY)
            found = source.search(found + 1) if found >= 0 else found
        if found < 0:
            return
        at = yield from source.read(found, limit)
        if source.quick and at.single:
            at = yield from _read_ahead(source, found, at, limit)


def _read_ahead(source: _Source, first: int, at: _End, limit: int) -> _Reading:
    """The records behind the one at `first`, which ends at `at`, the quick way; the last of them
    again the careful way. fastwarc places records wrongly if the frame that it begins with holds
    several, so it begins with one that is known to hold one."""
    held: Record | None = None
    following = _padding_end(source.stream, at.position)
    try:
        for number, record in enumerate(_quick(source, first, limit)):
            if number == 1 and record.offset != following:
                raise _Doubt
            if held:
                yield held
            held = record if number else None
    except (_Doubt, *FAULTS) as error:
        raise_of_system(error)
    return (yield from source.read(held.offset, limit)) if held else at


def _padding_end(stream: IO[bytes], start: int) -> int:
    """The first byte at or after `start` that is no newline; -1 if only padding follows."""
    stream.seek(start)
    first, base = -1, start
    while chunk := stream.read(AHEAD):
        if first < 0 and (rest := chunk.lstrip(b"\r\n")):
            first = base + len(chunk) - len(rest)
        if chunk.strip(b"\r\n\0 "):
            return first
        base += len(chunk)
    return -1


def _search(stream: IO[bytes], start: int, mark: re.Pattern[bytes], legal: _Legal) -> int:
    """Where the first legal match of `mark` begins at or after `start`, or -1."""
    stream.seek(max(0, start - 1))
    window = stream.read(min(1, start))  # `mark` may look back
    base, size = start - len(window), 2 * AHEAD
    while True:
        chunk = stream.read(size)
        window += chunk
        size = min(2 * size, _CHUNK)
        for match in mark.finditer(window, min(1, start - base) if base < start else 0):
            at = match.start()
            if chunk and at > len(window) - AHEAD:
                break
            if base + at >= start and legal(window[at : at + AHEAD], base + at):
                return base + at
        if not chunk:
            return -1
        kept = window[-AHEAD:]
        base, window = base + len(window) - len(kept), kept


_Legal: TypeAlias = Callable[[bytes, int], bool]


# The quick way


def _quick(source: _Source, start: int, limit: int) -> Iterator[Record]:
    stream, last = source.stream, -1
    stream.seek(start)
    for raw in ArchiveIterator(stream, parse_http=False):
        offset = raw.stream_pos
        if offset <= last:
            raise _Doubt
        last = offset
        yield _whole(raw, offset, limit)


def _whole(raw: WarcRecord, offset: int, limit: int) -> Record:
    length = raw.content_length
    said = raw.headers.get_bytes(b"Content-Length") or b""
    kind = _header(raw, b"WARC-Type").lower()
    if not kind or not said.isdigit() or int(said) != length:
        raise _Doubt
    block = b""
    if kind in PAGE_KINDS:
        block = raw.reader.read(min(length, limit))
        while len(block) < min(length, limit) and (more := raw.reader.read(limit - len(block))):
            block += more
    if len(block) + raw.reader.consume() < length:
        raise _Doubt
    return Record(
        offset,
        kind,
        _header(raw, b"WARC-Target-URI").strip("<>"),
        _header(raw, b"WARC-Date"),
        _header(raw, b"Content-Type"),
        length,
        block,
    )


def _header(raw: WarcRecord, name: bytes) -> str:
    return (raw.headers.get_bytes(name) or b"").decode("utf-8", "replace").strip()


# The careful way


class _Plain:
    """Records one behind the other, in a file or in the content of a frame."""

    quick = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def begins(self, start: int) -> bool:
        self.stream.seek(start)
        return begins_record(self.stream.read(AHEAD))

    def search(self, start: int) -> int:
        return _search(self.stream, start, RECORD_LINE, lambda _window, _at: True)

    def read(self, start: int, limit: int) -> _Reading:
        try:
            record, end = parse_record(self.stream, start, limit)
        except Unfit as unfit:
            yield Broken(start, unfit.url, unfit.reason, str(unfit))
            return _End(unfit.following or start + 1, counted=not unfit.following)
        if record.kind != "arc_header":
            yield record
        return _End(end, single=True)


def _frame(content: Content, start: int, limit: int) -> Generator[Record | Broken, None, int]:
    """The records of one frame's content, numbered from its offset; returns how many items there
    were, or -1 if its compression is damaged. Then the first record is not believed if bytes that
    are none stand behind it: the damage is in it, and only by chance is its length as said."""
    number, counted = 0, False
    held: list[Record | Broken] = []
    try:
        for item in _walk(_Plain(cast(IO[bytes], content)), limit):
            counted = isinstance(item, Broken)
            stray = isinstance(item, Broken) and item.detail == _STRAY
            if held and not stray:
                yield from held
                held = []
            item = replace(item, offset=start + number)
            number += 1
            if held or number == 1:
                held.append(item)
            else:
                yield item
    except FAULTS as error:
        raise_of_system(error)
        reason = "truncated" if ends_early(error) else "broken"
        if len(held) > 1 and isinstance(held[0], Record):
            held = [Broken(start, held[0].url, reason, str(error))]
        yield from held
        if not counted:
            yield Broken(start + number, "", reason, str(error))
        return -1
    yield from held
    return number


def _is_sound(content: Inflated | ZstdReader) -> bool:
    """Whether it can be read to its end."""
    try:
        while content.read(_CHUNK):
            pass
    except FAULTS as error:
        raise_of_system(error)
        return False
    return True


class _Gzip:
    """Gzip members."""

    quick = True

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def begins(self, start: int) -> bool:
        self.stream.seek(start)
        return self._legal(self.stream.read(AHEAD), start)

    def search(self, start: int) -> int:
        return _search(self.stream, start, _FRAME[_GZIP], self._legal)

    def read(self, start: int, limit: int) -> _Reading:
        member = self._member(start)

        def again() -> Inflated:
            nonlocal member
            member = self._member(start)
            return member

        items = yield from _frame(Content(again), start, limit)
        if items < 0 or member.end < 0:
            return _End(start + 1, counted=True)
        return _End(member.end, single=items == member.members == 1)

    def _member(self, start: int) -> Inflated:
        self.stream.seek(start)
        return Inflated(self.stream, self._goes_on)

    def _goes_on(self, at: int) -> bool:
        """Whether a sound member is there that goes on with what stands before it, or is empty."""
        self.stream.seek(at)
        content = self._begin_of(self.stream.read(AHEAD))
        if content is None or begins_record(content):
            return False
        self.stream.seek(at)
        return _is_sound(Inflated(self.stream, lambda _at: False))

    def _legal(self, head: bytes, _at: int) -> bool:
        content = self._begin_of(head)
        return content is not None and begins_record(content)

    def _begin_of(self, head: bytes) -> bytes | None:
        """What a member begins with, None for no sound one."""
        if not _FRAME[_GZIP].match(head):
            return None
        try:
            return zlib.decompressobj(31).decompress(head, AHEAD)
        except zlib.error:
            return None


class _Zstd:
    """Zstd frames; a dictionary for all may stand before them."""

    quick = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self._dictionary = _dictionary(stream)

    def begins(self, start: int) -> bool:
        self.stream.seek(start)
        return self._legal(self.stream.read(4), start)

    def search(self, start: int) -> int:
        return _search(self.stream, start, _FRAME[_ZSTD], self._legal)

    def read(self, start: int, limit: int) -> _Reading:
        try:
            end = zstd_frame_end(self.stream, start)
        except EOFError:
            end = -1
        self.stream.seek(start)
        if not self.stream.read(4).startswith(_ZSTD):
            return _End(end) if end >= 0 else _End(start + 1, counted=True)
        while end >= 0 and (more := self._goes_on(end)) > 0:
            end = more

        def open_frame() -> ZstdReader:
            return self._open(start, end)

        items = yield from _frame(Content(open_frame), start, limit)
        return _End(end) if items >= 0 and end >= 0 else _End(start + 1, counted=True)

    def _open(self, start: int, end: int) -> ZstdReader:
        return ZstdReader(_Part(self.stream, start, end), dictionary=self._dictionary)

    def _goes_on(self, start: int) -> int:
        """The end of a sound frame that goes on with what stands before it, or is empty; else
        -1."""
        self.stream.seek(start)
        if self.stream.read(4) != _ZSTD:
            return -1
        try:
            end = zstd_frame_end(self.stream, start)
            begin = self._open(start, end).read(AHEAD)
        except FAULTS as error:
            raise_of_system(error)
            return -1
        return -1 if begins_record(begin) or not _is_sound(self._open(start, end)) else end

    def _legal(self, head: bytes, at: int) -> bool:
        if not _FRAME[_ZSTD].match(head):
            return False
        here = self.stream.tell()
        try:
            zstd_frame_end(self.stream, at)
        except EOFError:
            pass
        except ValueError:
            return False
        finally:
            self.stream.seek(here)
        return True


def _dictionary(stream: IO[bytes]) -> bytes | None:
    """The dictionary in the file's first frame, itself perhaps compressed (the .warc.zst format of
    the Archive Team)."""
    stream.seek(0)
    head = stream.read(8)
    size = int.from_bytes(head[4:], "little")
    if not head.startswith(_DICTIONARY) or size > _DICTIONARY_BYTES:
        return None
    data = stream.read(size)
    if not data.startswith(_ZSTD):
        return data
    try:
        plain: bytes = ZstdReader(io.BytesIO(data)).read(_DICTIONARY_BYTES)
    except (OSError, ValueError):
        return None
    return plain


class _Part(io.RawIOBase):
    """The bytes of a stream from `start` to `end` (-1: all that follow)."""

    def __init__(self, stream: IO[bytes], start: int, end: int) -> None:
        self._stream, self._end = stream, end
        self._start = self._position = start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end of a part is not asked for")
        self._position = offset + (self._start if whence == io.SEEK_SET else self._position)
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._position if self._end >= 0 else _CHUNK
        self._stream.seek(self._position)
        data = self._stream.read(left if size < 0 else min(size, left))
        self._position += len(data)
        return data
