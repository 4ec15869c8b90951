"""Records of a crawl file (WARC, WET, ARC; plain, gzip, zstd), with nothing lost in silence.

fastwarc reads; warcio reads ARC, which fastwarc does not know. A record is handed on only after the
next one has begun properly, because a wrong Content-Length shows only there: when reading stops
with an error, the last record is checked against its frame (its gzip member, or the blank line
behind it), what is damaged becomes one `Broken`, and reading goes on at the next frame that can be
read. A payload shorter than its Content-Length is `Broken` too, and costs no other record. A gzip
file that is one member for many records is read through a decompressor; its offsets are then of the
content.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, cast

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from warcio.exceptions import ArchiveLoadFailed

from .inflate import Inflated

__all__ = ["Broken", "Record", "walk_records"]

Open = Callable[[], AbstractContextManager[IO[bytes]]]

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_PLAIN = re.compile(rb"WARC/[01]\.\d+\r?\n[A-Za-z-]+:")
_FAULTS = (OSError, ValueError, EOFError, zlib.error, ArchiveLoadFailed)
_HEADER_BYTES = 1 << 16
_CHUNK = 1 << 18
_LONGEST_MARK = 64
_PAGE_TYPES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.conversion


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


class _Short(Exception):
    """A payload ends before its Content-Length."""

    def __init__(self, record: Record, got: int) -> None:
        super().__init__(f"{got} of {record.length} bytes")
        self.record = record


class _OneMember(Exception):
    """A gzip member holds more than one record."""


def walk_records(open_stream: Open, limit: int) -> Iterator[Record | Broken]:
    """Every record of a file in order; blocks are cut at `limit` bytes.

    `open_stream` gives a seekable stream of the file, and is called anew after damage.
    """
    with open_stream() as stream:
        head = stream.read(4)
    if not head:
        return
    try:
        with _plain_stream(open_stream, head) as stream:
            arc = stream.read(11).startswith(b"filedesc://")
    except _FAULTS:
        arc = False
    read = _arc_records if arc else _warc_records
    try:
        yield from _walk(open_stream, read, head, limit)
    except _OneMember:
        yield from _walk(lambda: _plain_stream(open_stream, head), read, b"", limit)


@contextmanager
def _plain_stream(open_stream: Open, head: bytes) -> Iterator[IO[bytes]]:
    with open_stream() as stream:
        if not head.startswith(_GZIP):
            yield stream
            return
        yield cast(IO[bytes], Inflated(stream))


def _walk(open_stream: Open, read: _Read, head: bytes, limit: int) -> Iterator[Record | Broken]:
    start, searching = 0, False
    while start >= 0:
        held: Record | None = None
        fault = ""
        short: _Short | None = None
        try:
            for record in read(open_stream, start, head, limit):
                if held:
                    yield held
                held = record
        except _Short as error:
            if held:
                yield held
            held, short = None, error
        except _FAULTS as error:
            fault = f"{type(error).__name__}: {error}"
        if short:
            yield Broken(short.record.offset, short.record.url, "truncated", str(short))
            start = _next_frame(open_stream, head, short.record.offset + 1)
        elif not fault:
            if held:
                yield held
            return
        elif held is None:
            if not searching:
                yield Broken(start, "", "broken", fault)
            start = _next_frame(open_stream, head, start + 1)
        else:
            end = _frame_end(open_stream, head, held)
            if end is None:
                yield Broken(held.offset, held.url, "broken", "its length does not fit its frame")
                end = held.offset
            else:
                yield held
                if not _blank_from(open_stream, end):
                    yield Broken(end, "", "broken", fault)
            start = _next_frame(open_stream, head, end + 1)
        searching = True


_Read = Callable[[Open, int, bytes, int], Iterator[Record]]


def _warc_records(open_stream: Open, start: int, head: bytes, limit: int) -> Iterator[Record]:
    last = start - 1
    with open_stream() as stream:
        stream.seek(start)
        for number, raw in enumerate(ArchiveIterator(stream, parse_http=False)):
            offset = raw.stream_pos
            if number == 1 and start == 0 and head.startswith(_GZIP):
                _check_member(open_stream, offset)
            offset = last = max(offset, last + 1)
            yield _whole(raw, offset, limit)


def _whole(raw: WarcRecord, offset: int, limit: int) -> Record:
    length = raw.content_length
    if not raw.headers.contains_key_bytes(b"Content-Length"):
        raise ValueError("a record without Content-Length")
    block = b""
    if raw.record_type & _PAGE_TYPES:
        block = raw.reader.read(min(length, limit))
        while len(block) < min(length, limit) and (more := raw.reader.read(limit - len(block))):
            block += more
    got = len(block) + raw.reader.consume()
    record = Record(
        offset,
        str(raw.record_type),
        _header(raw, b"WARC-Target-URI").strip("<>"),
        _header(raw, b"WARC-Date"),
        _header(raw, b"Content-Type"),
        length,
        block,
    )
    if got < length:
        raise _Short(record, got)
    return record


def _header(raw: WarcRecord, name: bytes) -> str:
    return (raw.headers.get_bytes(name) or b"").decode("utf-8", "replace").strip()


def _check_member(open_stream: Open, offset: int) -> None:
    with open_stream() as stream:
        stream.seek(offset)
        if stream.read(3) != _GZIP:
            raise _OneMember


def _arc_records(open_stream: Open, start: int, head: bytes, limit: int) -> Iterator[Record]:
    with open_stream() as stream:
        stream.seek(start)
        archive = WarcioIterator(stream, no_record_parse=True)
        for raw in archive:
            if raw.rec_type == "arc_header":
                continue
            headers = raw.rec_headers
            length = int(headers.get_header("length") or 0)
            block = raw.raw_stream.read(min(length, limit))
            got = len(block)
            while got < length and (more := raw.raw_stream.read(min(_CHUNK, length - got))):
                got += len(more)
            record = Record(
                start + archive.get_record_offset(),
                "response",
                headers.get_header("uri") or "",
                _arc_date(headers.get_header("archive-date") or ""),
                "application/http",
                length,
                block,
            )
            if got < length:
                raise _Short(record, got)
            yield record


def _arc_date(stamp: str) -> str:
    """20140216050221 to 2014-02-16T05:02:21Z."""
    if len(stamp) != 14 or not stamp.isdigit():
        return stamp
    s = stamp
    return f"{s[:4]}-{s[4:6]}-{s[6:8]}T{s[8:10]}:{s[10:12]}:{s[12:]}Z"


def _next_frame(open_stream: Open, head: bytes, start: int) -> int:
    """Where the next gzip member, zstd frame or plain record begins at or after `start`, or -1."""
    marks = [m for m in (_GZIP, _ZSTD) if head.startswith(m)]
    wanted = re.compile(re.escape(marks[0])) if marks else _PLAIN
    try:
        with open_stream() as stream:
            stream.seek(start)
            base, window = start, b""
            while chunk := stream.read(_CHUNK):
                window += chunk
                if match := wanted.search(window):
                    return base + match.start()
                kept = window[-_LONGEST_MARK:]
                base, window = base + len(window) - len(kept), kept
    except _FAULTS:
        pass
    return -1


def _frame_end(open_stream: Open, head: bytes, record: Record) -> int | None:
    """Where the record's frame ends, if the record fills it exactly; None if it does not."""
    try:
        with open_stream() as stream:
            stream.seek(record.offset)
            if head.startswith(_GZIP):
                return _member_end(stream, record)
            if head.startswith(_ZSTD):
                following = _next_frame(open_stream, head, record.offset + 1)
                return following if following >= 0 else None
            size = _header_size(stream.read(_HEADER_BYTES))
            if size is None:
                return None
            end = record.offset + size + record.length
            stream.seek(end)
            return end + 4 if stream.read(4) == b"\r\n\r\n" else None
    except _FAULTS:
        return None


def _member_end(stream: IO[bytes], record: Record) -> int | None:
    inflater = zlib.decompressobj(31)
    first, size, end = b"", 0, record.offset
    while not inflater.eof:
        chunk = inflater.unconsumed_tail or stream.read(_CHUNK)
        if not chunk:
            return None
        out = inflater.decompress(chunk, _CHUNK)
        end += len(chunk) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        first += out[: _HEADER_BYTES - len(first)]
        size += len(out)
    header = _header_size(first)
    return end if header is not None and size == header + record.length + 4 else None


def _header_size(head: bytes) -> int | None:
    """Bytes of a WARC header with its empty line; None if it has no Content-Length. An ARC header
    is one line."""
    if not head.startswith(b"WARC/"):
        line = head.find(b"\n")
        return line + 1 if line >= 0 else None
    end = head.find(b"\r\n\r\n")
    return end + 4 if end >= 0 and b"\ncontent-length:" in head[:end].lower() else None


def _blank_from(open_stream: Open, start: int) -> bool:
    """True if only white space follows."""
    with open_stream() as stream:
        stream.seek(start)
        return not stream.read(_HEADER_BYTES).strip(b"\r\n\0 ")
