"""Input files to pages: the HTML or text of each, with where it came from, or why it is none.

Every record, line or file that might be a page comes out exactly once, as a Page or as a Refused
with a reason and the value behind it; records that hold no page (requests, metadata) are none.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

import pyarrow as pa

from eyas.store import Store, crc32c

from .decode import TooLarge, decode_content
from .inflate import Inflated
from .inputs import InputChanged, InputFile, open_input
from .records import Broken, Record, walk_records

__all__ = ["Page", "Refused", "read_pages"]

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
_HEAD_BYTES = 1 << 16
_CHUNK = 1 << 20
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


def read_pages(store: Store, file: InputFile, limit: int) -> Iterator[Page | Refused]:
    """All pages of one input file in order; larger ones than `limit` bytes are refused.

    Raises InputChanged if the file is not what was listed.
    """
    check_unchanged(store, file)
    if file.kind == "warc":
        return _warc_pages(store, file, limit)
    if file.kind == "jsonl":
        return _jsonl_pages(store, file, limit)
    return iter([_html_page(store, file, limit)])


def check_unchanged(store: Store, file: InputFile) -> None:
    """Read the file once for its checksum, before anything is believed of it. Where only the etag
    is known, `open_input` compares that."""
    if not file.crc32c:
        return
    value = size = 0
    with open_input(store, file) as stream:
        while chunk := stream.read(_CHUNK):
            value = crc32c(chunk, value)
            size += len(chunk)
    if f"{value:08x}" != file.crc32c or size != file.size:
        raise InputChanged(
            f"{file.key} changed while it was used: it has {size} bytes with CRC32C {value:08x}, "
            f"{file.size} with {file.crc32c} were listed; leave it alone and start again"
        )


def _warc_pages(store: Store, file: InputFile, limit: int) -> Iterator[Page | Refused]:
    for item in walk_records(lambda: open_input(store, file), limit + _HEAD_BYTES):
        if isinstance(item, Broken):
            yield Refused(file.key, item.offset, item.url, item.reason, detail=item.detail)
        elif item.kind in ("response", "resource"):
            yield _from_record(file.key, item, limit)
        elif item.kind == "conversion":
            yield _from_text(file.key, item, limit)


def _from_text(source: str, record: Record, limit: int) -> Page | Refused:
    at = (source, record.offset, record.url)
    if record.length > limit:
        return Refused(*at, "too_large", record.length)
    return Page(*at, record.date, text=record.block.decode("utf-8", "replace"))


def _from_record(source: str, record: Record, limit: int) -> Page | Refused:
    at = (source, record.offset, record.url)
    body, content_type, headers = record.block, record.content_type, dict[str, str]()
    if record.kind == "response":
        status, headers, body = _http(record.block)
        content_type = headers.get("content-type", "")
        if not 200 <= status < 300:
            return Refused(*at, "http_status", status)
    media, _, parameters = content_type.partition(";")
    if not _is_html(media.strip().lower(), body, headers):
        return Refused(*at, "not_html", detail=media[:100])
    if record.length > limit + _HEAD_BYTES:
        return Refused(*at, "too_large", record.length)
    try:
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        body = decode_content(body, headers.get("content-encoding", ""), chunked, limit)
    except TooLarge:
        return Refused(*at, "too_large", limit)
    except ValueError as error:
        return Refused(*at, "broken", detail=str(error))
    return Page(*at, record.date, body=body, charset=_charset(parameters))


def _http(block: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, body; status 200 for a block without an HTTP head."""
    if not block.startswith(b"HTTP/"):
        return 200, {}, block
    head, mark, _ = block[:_HEAD_BYTES].partition(b"\r\n\r\n")
    if not mark:
        head, mark, _ = block[:_HEAD_BYTES].partition(b"\n\n")
    lines = head.decode("latin-1").splitlines()
    words = lines[0].split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return status, headers, block[len(head) + len(mark) :]


def _is_html(media: str, body: bytes, headers: dict[str, str]) -> bool:
    if media:
        return media in _HTML_TYPES
    if headers.get("content-encoding"):
        return True
    start = body[:1024].lower()
    return any(mark in start for mark in _SNIFF)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


def _html_page(store: Store, file: InputFile, limit: int) -> Page | Refused:
    at = (file.key, 0, file.key)
    try:
        with _text_stream(store, file) as stream:
            body = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        return Refused(*at, "broken", detail=str(error))
    return Refused(*at, "too_large", file.size) if len(body) > limit else Page(*at, "", body=body)


def _jsonl_pages(store: Store, file: InputFile, limit: int) -> Iterator[Page | Refused]:
    """A text of `limit` bytes takes at most six times as many as JSON."""
    most = 6 * limit + _HEAD_BYTES
    number = offset = 0
    with _text_stream(store, file) as stream:
        while True:
            try:
                line = stream.readline(most)
                size = len(line)
                while len(line) == most and (more := stream.readline(_CHUNK)):
                    size += len(more)
                    if more.endswith(b"\n"):
                        break
            except (OSError, EOFError, zlib.error) as error:
                yield Refused(
                    file.key, offset, "", "broken", detail=f"after line {number}: {error}"
                )
                return
            if not line:
                return
            number += 1
            if line.strip():
                yield _from_line(file.key, offset, number, line, size, limit)
            offset += size


def _from_line(
    source: str, offset: int, number: int, line: bytes, size: int, limit: int
) -> Page | Refused:
    if size > len(line):
        return Refused(source, offset, "", "too_large", size)
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Refused(source, offset, "", "broken", number, f"line {number}: {error}"[:200])
    found = raw.get("text", raw.get("html")) if isinstance(raw, dict) else None
    if not isinstance(found, str):
        return Refused(source, offset, "", "broken", number, f'line {number}: no "text" or "html"')
    at = (source, offset, _string(raw, "url"))
    content = found.encode("utf-8", "replace")
    if len(content) > limit:
        return Refused(*at, "too_large", len(content))
    if "text" in raw:
        return Page(*at, _string(raw, "date"), text=content.decode())
    return Page(*at, _string(raw, "date"), body=content, charset="utf-8")


def _string(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


@contextmanager
def _text_stream(store: Store, file: InputFile) -> Iterator[IO[bytes]]:
    """The file uncompressed. One that ends early raises, as fastwarc's readers would not."""
    name = file.key.lower()
    with open_input(store, file) as stream:
        if name.endswith(".gz"):
            yield io.BufferedReader(Inflated(stream), _CHUNK)
        elif name.endswith(".zst"):
            inflated = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
            yield io.BufferedReader(cast(io.RawIOBase, inflated), _CHUNK)
        else:
            yield stream
