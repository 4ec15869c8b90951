"""Input files to pages: the HTML or text of each, with where it came from, or why it is none.

Every record, line, row or file that might be a page comes out exactly once, as a Page or as a
Refused with a reason and the value behind it; records that hold no page (requests, metadata) are
none.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, cast

import pyarrow as pa

from eyas.store import Store, crc32c

from .decode import TooLarge, decode_content
from .inflate import Inflated, raise_of_system
from .inputs import InputChanged, InputFile, open_input
from .parquet import Lost, NoColumn, Row, parquet_rows
from .parse_record import Record
from .records import Broken, walk_records

__all__ = ["Page", "Refused", "read_pages"]

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
_HEAD_BYTES = 1 << 16
_CHUNK = 1 << 20
_ZSTD_CHUNK = 4096  # a read that meets damage gives nothing of what came before it
_DAMAGE = (OSError, EOFError, zlib.error)
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(r"[1-9][0-9]{2}")
_LISTS = ("content-encoding", "transfer-encoding")  # may stand in several lines
_CONTAINERS = 1 << 20
_SNIFF = (b"<!doctype html", b"<html", b"<head", b"<body")


@dataclass(frozen=True)
class Page:
    """A page as found. `body` is HTML as bytes; where the source has plain text (WET, JSONL),
    `text` holds that and `body` is empty. `charset` is what the HTTP header said."""

    source: str
    offset: int
    url: str
    date: str
    body: bytes = b""
    text: str = ""
    charset: str = ""


@dataclass(frozen=True)
class Refused:
    """What might have been a page. `value` is the number behind the reason, where it has one."""

    source: str
    offset: int
    url: str
    reason: str
    value: float | None = None
    detail: str = ""
    date: str = ""


def read_pages(
    store: Store, file: InputFile, limit: int, text_field: str = "text"
) -> Iterator[Page | Refused]:
    """All pages of one input file in order; larger ones than `limit` bytes are refused.

    `text_field` is where JSONL and Parquet have the text. Raises InputChanged, before the first
    page, if the file is not what was listed.
    """
    with open_input(store, file) as stream:
        check_unchanged(stream, file)
        if file.kind == "warc":
            yield from _warc_pages(stream, file.key, limit)
        elif file.kind == "jsonl":
            yield from _jsonl_pages(stream, file.key, limit, text_field)
        elif file.kind == "parquet":
            yield from _parquet_pages(stream, file.key, limit, text_field)
        else:
            yield _html_page(stream, file, limit)


def check_unchanged(stream: IO[bytes], file: InputFile) -> None:
    """Read the file once for its checksum, before anything is believed of it. Where only the etag
    is known, `open_input` compares that."""
    if not file.crc32c:
        return
    value = size = 0
    while chunk := stream.read(_CHUNK):
        value = crc32c(chunk, value)
        size += len(chunk)
    stream.seek(0)
    if f"{value:08x}" != file.crc32c or size != file.size:
        raise InputChanged(
            f"{file.key} changed while it was used: it has {size} bytes with CRC32C {value:08x}, "
            f"{file.size} with {file.crc32c} were listed; leave it alone and start again"
        )


def _warc_pages(stream: IO[bytes], source: str, limit: int) -> Iterator[Page | Refused]:
    for item in walk_records(stream, limit + _HEAD_BYTES):
        if isinstance(item, Broken):
            yield Refused(source, item.offset, item.url, item.reason, detail=item.detail)
        elif item.kind in ("response", "resource"):
            yield _from_record(source, item, limit)
        elif item.kind == "conversion":
            yield _from_text(source, item, limit)


def _from_text(source: str, record: Record, limit: int) -> Page | Refused:
    at = (source, record.offset, record.url)
    if record.length > limit:
        return Refused(*at, "too_large", record.length, date=record.date)
    return Page(*at, record.date, text=record.block.decode("utf-8", "replace"))


def _from_record(source: str, record: Record, limit: int) -> Page | Refused:
    at = (source, record.offset, record.url)
    refuse = partial(Refused, *at, date=record.date)
    body, content_type, headers = record.block, record.content_type, dict[str, str]()
    if record.kind == "response":
        try:
            status, headers, body = _http(record.block)
        except ValueError as error:
            return refuse("broken", detail=str(error))
        content_type = headers.get("content-type", "")
        if not 200 <= status < 300:
            return refuse("http_status", status)
    media, _, parameters = content_type.partition(";")
    if not _is_html(media.strip().lower(), body, headers):
        return refuse("not_html", detail=media[:100])
    if record.length > limit + _HEAD_BYTES:
        return refuse("too_large", record.length)
    try:
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        body = decode_content(body, headers.get("content-encoding", ""), chunked, limit)
    except TooLarge:
        return refuse("too_large", limit)
    except ValueError as error:
        return refuse("broken", detail=str(error))
    return Page(*at, record.date, body=body, charset=_charset(parameters))


def _http(block: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, body; status 200 for a block without an HTTP head.
    Raises ValueError for a head that does not end."""
    if not block.startswith(b"HTTP/"):
        return 200, {}, block
    end = _HEAD_END.search(block, 0, _HEAD_BYTES)
    if end is None:
        raise ValueError("its HTTP head does not end")
    lines = block[: end.start()].decode("latin-1").replace("\r\n", "\n").split("\n")
    words = lines[0].split(None, 2)
    status = int(words[1]) if len(words) > 1 and _STATUS.fullmatch(words[1]) else 0
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        more = name in _LISTS and name in headers
        value = f"{headers[name]}, {value.strip()}" if more else value.strip()
        headers[name] = value if more else headers.get(name, value)
    return status, headers, block[end.end() :]


def _is_html(media: str, body: bytes, headers: dict[str, str]) -> bool:
    if media:
        return media in _HTML_TYPES
    if headers.get("content-encoding"):
        return True
    start = body[:1024].replace(b"\0", b"").lower()  # of UTF-16 too
    return any(mark in start for mark in _SNIFF)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


def _html_page(stream: IO[bytes], file: InputFile, limit: int) -> Page | Refused:
    at = (file.key, 0, file.key)
    try:
        body = _uncompressed(stream, file.key).read(limit + 1)
    except _DAMAGE as error:
        raise_of_system(error)
        return Refused(*at, "broken", detail=str(error))
    if len(body) > limit:
        return Refused(*at, "too_large", max(file.size, len(body)))
    return Page(*at, "", body=body)


def _jsonl_pages(
    stream: IO[bytes], source: str, limit: int, text_field: str
) -> Iterator[Page | Refused]:
    """A text of `limit` bytes takes at most six times as many as JSON."""
    most = 6 * limit + _HEAD_BYTES
    number = offset = 0
    lines = _uncompressed(stream, source)
    while True:
        try:
            line = lines.readline(most)
            size = len(line)
            while len(line) == most and (more := lines.readline(_CHUNK)):
                size += len(more)
                if more.endswith(b"\n"):
                    break
        except _DAMAGE as error:
            raise_of_system(error)
            yield Refused(source, offset, "", "broken", detail=f"after line {number}: {error}")
            return
        if not line:
            return
        number += 1
        if line.strip():
            yield _from_line((source, offset), number, line, size, limit, text_field)
        offset += size


def _from_line(
    place: tuple[str, int], number: int, line: bytes, size: int, limit: int, text_field: str
) -> Page | Refused:
    if size > len(line) or line.count(b"{") + line.count(b"[") > _CONTAINERS:
        return Refused(*place, "", "too_large", size)
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Refused(*place, "", "broken", number, f"line {number}: {error}"[:200])
    found = raw.get(text_field, raw.get("html")) if isinstance(raw, dict) else None
    if not isinstance(found, str):
        detail = f'line {number}: no "{text_field}" or "html"'
        return Refused(*place, "", "broken", number, detail)
    at, date = (*place, _string(raw, "url")), _string(raw, "date")
    content = found.encode("utf-8", "replace")
    if len(content) > limit:
        return Refused(*at, "too_large", len(content), date=date)
    if text_field in raw:
        return Page(*at, date, text=content.decode())
    return Page(*at, date, body=content, charset="utf-8")


def _string(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _parquet_pages(
    stream: IO[bytes], source: str, limit: int, text_field: str
) -> Iterator[Page | Refused]:
    """The offset of a row is its number in the file."""
    try:
        for row in parquet_rows(stream, (text_field, "html"), ("url", "date")):
            if isinstance(row, Lost):
                yield Refused(source, row.number, "", row.reason, row.rows, row.detail)
            else:
                yield _from_row(source, row, limit, text_field)
    except NoColumn as error:
        yield Refused(source, 0, "", "broken", detail=str(error))


def _from_row(source: str, row: Row, limit: int, text_field: str) -> Page | Refused:
    texts = {name: (value or b"").decode("utf-8", "replace") for name, value in row.values.items()}
    at = (source, row.number, texts.get("url", ""))
    name = text_field if text_field in row.values else "html"
    content, date = row.values[name], texts.get("date", "")
    if content is None:
        return Refused(*at, "broken", row.number, f'row {row.number}: no "{name}"', date)
    if len(content) > limit:
        return Refused(*at, "too_large", len(content), date=date)
    if name == text_field:
        return Page(*at, date, text=texts[name])
    return Page(*at, date, body=content)


def _uncompressed(stream: IO[bytes], name: str) -> IO[bytes]:
    """The content of a file. One that ends early raises, as fastwarc's readers would not."""
    name = name.lower()
    if name.endswith(".gz"):
        return io.BufferedReader(Inflated(stream), _CHUNK)
    if name.endswith(".zst"):
        inflated = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
        return io.BufferedReader(cast(io.RawIOBase, inflated), _ZSTD_CHUNK)
    return stream
