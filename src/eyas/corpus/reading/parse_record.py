"""One record of a crawl file (WARC, WET, ARC), believed only if its frame holds.

It holds if there is a legal Content-Length, as many bytes, a blank line or a record behind them,
and a checksum that fits where the stream has one. Names in the header of a WARC record count in any
case, and its lines may end in bare newlines; the line of an ARC record is parsed by warcio.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import IO

from warcio.recordloader import ARCHeadersParser
from warcio.statusandheaders import StatusAndHeadersParserException

from .inflate import FAULTS, ends_early, raise_of_system

__all__ = ["AHEAD", "PAGE_KINDS", "RECORD_LINE", "Record", "Unfit", "begins_record", "parse_record"]

AHEAD = 4096  # bytes to be read to see whether a record begins
_WARC_LINE = rb"WARC/[01]\.\d+[ \t]*\r?\n[A-Za-z-]+:"
_ARC_LINE = rb"[a-z]{3,8}:[^\s]{1,2000} [0-9a-fA-F.:]{1,45} \S{1,40} [^\r\n]{1,200} \S{1,20}\r?\n"
RECORD_LINE = re.compile(rb"%b|(?<=\n)%b" % (_WARC_LINE, _ARC_LINE))
PAGE_KINDS = frozenset({"response", "resource", "conversion"})
_BEGINS = re.compile(rb"[\r\n]*(?:%b|%b)" % (_WARC_LINE, _ARC_LINE))
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")
_LINE_END = re.compile(rb"\n")
_HEADER_BYTES = 1 << 16
_CHUNK = 1 << 18


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


class Unfit(Exception):
    """A record does not hold: the reason, in words why, and where the next one begins if that is
    known (else 0)."""

    def __init__(self, reason: str, why: str, url: str = "", following: int = 0) -> None:
        super().__init__(why)
        self.reason, self.url, self.following = reason, url, following


def begins_record(head: bytes) -> bool:
    """Whether a record begins with these bytes, newlines passed over."""
    return _BEGINS.match(head) is not None


def parse_record(stream: IO[bytes], start: int, limit: int) -> tuple[Record, int]:
    """The record at `start`, and where it ends. Raises Unfit."""
    head, arc = _head(stream, start)
    fields = (_arc_fields if arc else _warc_fields)(head)
    url, said = fields["url"], fields["length"]
    if not re.fullmatch(r"\d{1,18}", said):
        raise Unfit("broken", f"its length is {said[:40]!r}", url)
    kind, length = fields["kind"], int(said)
    try:
        stream.seek(start + len(head))
        block, got = _block(stream, length, limit if kind in PAGE_KINDS else 0)
        if got < length:
            stream.read(1)  # says why, where it is compressed
            raise Unfit("truncated", f"{got} of {length} bytes", url)
        blank = stream.read(4)
        more = stream.read(1)  # at the end of a gzip member its checksum is compared
        while more and not more.strip(b"\r\n"):  # damage may inflate to newlines without end
            more = stream.read(_CHUNK)
    except FAULTS as error:
        raise_of_system(error)
        raise Unfit("truncated" if ends_early(error) else "broken", str(error), url) from error
    newlines = len(blank) - len(blank.lstrip(b"\r\n"))
    if newlines < len(blank) and not blank.startswith(b"\n" if arc else (b"\r\n\r\n", b"\n\n")):
        end = start + len(head) + length
        stream.seek(end)
        behind = stream.read(AHEAD)
        if not begins_record(behind):
            # A search finds lines of ARC by the newline before them, which may be what is damaged.
            following = end + 1 if arc and begins_record(behind[1:]) else 0
            raise Unfit("broken", "its length does not fit its frame", url, following)
    record = Record(start, kind, url, fields["date"], fields["type"], length, block)
    return record, start + len(head) + length + newlines


def _head(stream: IO[bytes], start: int) -> tuple[bytes, bool]:
    """The header with the blank line behind it, and whether it is one line of an ARC file."""
    head, size = b"", AHEAD
    while len(head) < _HEADER_BYTES:
        stream.seek(start)
        head = stream.read(size)
        arc = not head.startswith(b"WARC/")
        end = _LINE_END.search(head) if arc else _HEADER_END.search(head)
        if end and not RECORD_LINE.search(head, 1, end.end()):
            return head[: end.end()], arc
        if end or len(head) < size or RECORD_LINE.search(head, 1):
            break
        size *= 4
    cut = len(head) < size and not RECORD_LINE.search(head, 1)
    raise Unfit("truncated" if cut else "broken", "its header does not end")


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
        raise Unfit("broken", "its ARC header has not five fields") from error
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
