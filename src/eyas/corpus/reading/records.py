"""Records of a crawl file (WARC, WET, ARC; plain, gzip, zstd), with nothing lost in silence.

A file is a row of frames: gzip members, zstd frames, or plain records. A member that does not begin
as a record goes on with what stands before it, and is of one frame with that: some tools pack in
blocks of a size.

Of gzip, which crawls come in, fastwarc reads ahead through sound members. Whatever makes it stop,
an error or the end (which it also sees where there is none: behind headers with bare newlines it
ends without a word, and a length whose name is in lower case it takes for 0), the last record is
read again by the careful way, which believes a record only if its frame holds: a legal
Content-Length, as many bytes, a blank line or a record behind them, and a checksum that fits. What
does not hold is one `Broken`, and reading goes on at the next frame that begins as one.

Everything else (plain files, zstd, members with many records, ARC) is read by the careful way only.
Header lines of ARC, which fastwarc does not know, are parsed by warcio.

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
from warcio.recordloader import ARCHeadersParser
from warcio.statusandheaders import StatusAndHeadersParserException

from .inflate import Content, Inflated, raise_of_system, zstd_frame_end

__all__ = ["Broken", "Record", "walk_records"]

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # behind 0x50 to 0x5f: a zstd frame of something else
_DICTIONARY = b"\x5d" + _SKIPPED
_WARC_LINE = rb"WARC/[01]\.\d+[ \t]*\r?\n[A-Za-z-]+:"
_ARC_LINE = rb"[a-z]{3,8}:[^\s]{1,2000} [0-9a-fA-F.:]{1,45} \S{1,40} [^\r\n]{1,200} \S{1,20}\r?\n"
_BEGINS = re.compile(rb"[\r\n]*(?:%b|%b)" % (_WARC_LINE, _ARC_LINE))
_RECORD = re.compile(rb"%b|(?<=\n)%b" % (_WARC_LINE, _ARC_LINE))
_FRAME = {
    _GZIP: re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
    _ZSTD: re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")
_LINE_END = re.compile(rb"\n")
_FAULTS = (OSError, ValueError, EOFError, zlib.error, StatusAndHeadersParserException)
_HEADER_BYTES = 1 << 16
_DICTIONARY_BYTES = 16 << 20
_CHUNK = 1 << 18
_AHEAD = 4096
_PAGE_KINDS = frozenset({"response", "resource", "conversion"})


@dataclass(frozen=True)
class Record:
    """One whole record. `kind` is the WARC type; `block` is its content, cut where it is larger
    than the reader's limit (`length` is what it claims); not read for records without a page."""

    offset: int
    kind: str
    url: str
    date: str
    content_type: str
    length: int
    block: bytes


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


class _Unfit(Exception):
    """A record does not hold: the reason, and in words why."""

    def __init__(self, reason: str, why: str, url: str = "") -> None:
        super().__init__(why)
        self.reason, self.url = reason, url


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
                yield Broken(max(0, found), "", "broken", "no record begins here")
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
    except (_Doubt, *_FAULTS) as error:
        raise_of_system(error)
    return (yield from source.read(held.offset, limit)) if held else at


def _padding_end(stream: IO[bytes], start: int) -> int:
    """The first byte at or after `start` that is no newline; -1 if only padding follows."""
    stream.seek(start)
    first, base = -1, start
    while chunk := stream.read(_AHEAD):
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
    base, size = start - len(window), 2 * _AHEAD
    while True:
        chunk = stream.read(size)
        window += chunk
        size = min(2 * size, _CHUNK)
        for match in mark.finditer(window, min(1, start - base) if base < start else 0):
            at = match.start()
            if chunk and at > len(window) - _AHEAD:
                break
            if base + at >= start and legal(window[at : at + _AHEAD], base + at):
                return base + at
        if not chunk:
            return -1
        kept = window[-_AHEAD:]
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
    if kind in _PAGE_KINDS:
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
        return _BEGINS.match(self.stream.read(_AHEAD)) is not None

    def search(self, start: int) -> int:
        return _search(self.stream, start, _RECORD, lambda _window, _at: True)

    def read(self, start: int, limit: int) -> _Reading:
        try:
            record, end = _parse(self.stream, start, limit)
        except _Unfit as unfit:
            yield Broken(start, unfit.url, unfit.reason, str(unfit))
            return _End(start + 1, counted=True)
        if record.kind != "arc_header":
            yield record
        return _End(end, single=True)


def _parse(stream: IO[bytes], start: int, limit: int) -> tuple[Record, int]:
    """The record at `start`, and where it ends. Raises _Unfit."""
    head, arc = _head(stream, start)
    fields = (_arc_fields if arc else _warc_fields)(head)
    url, said = fields["url"], fields["length"]
    if not re.fullmatch(r"\d{1,18}", said):
        raise _Unfit("broken", f"its length is {said[:40]!r}", url)
    kind, length = fields["kind"], int(said)
    try:
        stream.seek(start + len(head))
        block, got = _block(stream, length, limit if kind in _PAGE_KINDS else 0)
        if got < length:
            stream.read(1)  # says why, where it is compressed
            raise _Unfit("truncated", f"{got} of {length} bytes", url)
        blank = stream.read(4)
        stream.read(1)
    except _FAULTS as error:
        raise_of_system(error)
        raise _Unfit("truncated" if _early(error) else "broken", str(error), url) from error
    newlines = len(blank) - len(blank.lstrip(b"\r\n"))
    if newlines < len(blank) and not blank.startswith(b"\n" if arc else (b"\r\n\r\n", b"\n\n")):
        stream.seek(start + len(head) + length)
        if not _BEGINS.match(stream.read(_AHEAD)):
            raise _Unfit("broken", "its length does not fit its frame", url)
    record = Record(start, kind, url, fields["date"], fields["type"], length, block)
    return record, start + len(head) + length + newlines


def _head(stream: IO[bytes], start: int) -> tuple[bytes, bool]:
    """The header with the blank line behind it, and whether it is one line of an ARC file."""
    head, size = b"", _AHEAD
    while len(head) < _HEADER_BYTES:
        stream.seek(start)
        head = stream.read(size)
        arc = not head.startswith(b"WARC/")
        end = _LINE_END.search(head) if arc else _HEADER_END.search(head)
        if end and not _RECORD.search(head, 1, end.end()):
            return head[: end.end()], arc
        if end or len(head) < size or _RECORD.search(head, 1):
            break
        size *= 4
    cut = len(head) < size and not _RECORD.search(head, 1)
    raise _Unfit("truncated" if cut else "broken", "its header does not end")


def _early(error: Exception) -> bool:
    return isinstance(error, EOFError) or "incomplete frame" in str(error)


def _block(stream: IO[bytes], length: int, limit: int) -> tuple[bytes, int]:
    """At most `limit` bytes of a block, and how many it has of `length`."""
    block = stream.read(min(length, limit))
    got = len(block)
    while got < length and (more := stream.read(min(_CHUNK, length - got))):
        got += len(more)
    return block, got


def _warc_fields(head: bytes) -> dict[str, str]:
    found: dict[bytes, bytes] = {}
    for line in _FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        found.setdefault(name.strip().lower(), value.strip())
    names = {
        "kind": b"warc-type",
        "url": b"warc-target-uri",
        "date": b"warc-date",
        "type": b"content-type",
        "length": b"content-length",
    }
    fields = {k: found.get(name, b"").decode("utf-8", "replace") for k, name in names.items()}
    return fields | {"kind": fields["kind"].lower(), "url": fields["url"].strip("<>")}


def _arc_fields(line: bytes) -> dict[str, str]:
    try:
        headers = ARCHeadersParser().parse(io.BytesIO(line))
    except StatusAndHeadersParserException as error:
        raise _Unfit("broken", "its ARC header has not five fields") from error
    url = headers.get_header("uri") or ""
    return {
        "kind": "arc_header" if url.startswith("filedesc:") else "response",
        "url": url,
        "date": _arc_date(headers.get_header("archive-date") or ""),
        "type": "application/http",
        "length": headers.get_header("length") or "",
    }


def _arc_date(stamp: str) -> str:
    """20140216050221 to 2014-02-16T05:02:21Z."""
    if len(stamp) != 14 or not stamp.isdigit():
        return stamp
    s = stamp
    return f"{s[:4]}-{s[4:6]}-{s[6:8]}T{s[8:10]}:{s[10:12]}:{s[12:]}Z"


def _frame(content: Content, start: int, limit: int) -> Generator[Record | Broken, None, int]:
    """The records of one frame's content, numbered from its offset; returns how many items there
    were, or -1 if its compression is damaged."""
    number, counted = 0, False
    try:
        for item in _walk(_Plain(cast(IO[bytes], content)), limit):
            counted = isinstance(item, Broken)
            yield replace(item, offset=start + number)
            number += 1
    except _FAULTS as error:
        raise_of_system(error)
        if not counted:
            reason = "truncated" if _early(error) else "broken"
            yield Broken(start + number, "", reason, str(error))
        return -1
    return number


def _is_sound(content: Inflated | ZstdReader) -> bool:
    """Whether it can be read to its end."""
    try:
        while content.read(_CHUNK):
            pass
    except _FAULTS as error:
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
        return self._legal(self.stream.read(_AHEAD), start)

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
        content = self._begin_of(self.stream.read(_AHEAD))
        if content is None or _BEGINS.match(content):
            return False
        self.stream.seek(at)
        return _is_sound(Inflated(self.stream, lambda _at: False))

    def _legal(self, head: bytes, _at: int) -> bool:
        content = self._begin_of(head)
        return content is not None and _BEGINS.match(content) is not None

    def _begin_of(self, head: bytes) -> bytes | None:
        """What a member begins with, None for no sound one."""
        if not _FRAME[_GZIP].match(head):
            return None
        try:
            return zlib.decompressobj(31).decompress(head, _AHEAD)
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
            begin = self._open(start, end).read(_AHEAD)
        except _FAULTS as error:
            raise_of_system(error)
            return -1
        return -1 if _BEGINS.match(begin) or not _is_sound(self._open(start, end)) else end

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
