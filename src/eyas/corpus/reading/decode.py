"""Bytes of a page to text: content encoding undone within a limit, then the character set.

The character set is looked for in the order byte-order mark, HTTP header, `<meta>`, detector, with
the names of the WHATWG Encoding Standard (iso-8859-1 means windows-1252). A named one that does not
fit is passed over, unless less than one character in a hundred is bad: then those become U+FFFD,
because a detector turns a UTF-8 page with a few bad bytes into nonsense.
"""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Iterator

from fastwarc.stream_io import BrotliReader, ZstdReader
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

__all__ = ["TooLarge", "decode_content", "decode_text"]

_META = re.compile(
    rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.\-]{1,40})", re.IGNORECASE
)
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}")
_ZSTD = b"\x28\xb5\x2f\xfd"
_CHUNK_LINE = 1024
_META_BYTES = 4096
_DETECT_BYTES = 1 << 16
_BAD_SHARE = 0.01
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Python's codecs of these names are narrower than what the standard, and the web, means by them.
_WIDER = {
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
}


class TooLarge(Exception):
    """The decoded content is larger than the limit."""


def decode_content(body: bytes, encodings: str, chunked: bool, limit: int) -> bytes:
    """`body` with HTTP chunking and the Content-Encoding undone.

    A body that is not really encoded (crawlers often decode it and leave the header) is taken as it
    is.
    Raises TooLarge past `limit` bytes, ValueError for a damaged encoding.
    """
    if chunked:
        body = _dechunk(body, limit)
    for encoding in reversed([e.strip().lower() for e in encodings.split(",") if e.strip()]):
        body = _undo(body, encoding, limit)
    if len(body) > limit:
        raise TooLarge
    return body


def decode_text(body: bytes, http_charset: str = "") -> tuple[str, str]:
    """The text and the name of the character set that was used. Never raises."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace"), name
    for name in _named(body, http_charset):
        text = _try(body, name)
        if text is not None:
            return text, name
    name = _known(detect_encoding(body[:_DETECT_BYTES]) or "") or "utf-8"
    return body.decode(name, "replace"), name


def _named(body: bytes, http_charset: str) -> Iterator[str]:
    if name := _known(http_charset):
        yield name
    if meta := _META.search(body, 0, _META_BYTES):
        name = _known(meta.group(1).decode("ascii"))
        # A page whose <meta> could be read as ASCII is not UTF-16, whatever it says.
        yield "utf-8" if name.startswith("utf-16") else name
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return
    yield "utf-8"


def _known(name: str) -> str:
    """The Python codec that the standard gives this label, or nothing."""
    label = map_encoding_to_html5(name.strip().strip("\"'"), fallback_utf8=False) if name else None
    try:
        codec = codecs.lookup(label).name if label else ""
    except LookupError:
        return ""
    return _WIDER.get(codec, codec)


def _try(body: bytes, name: str) -> str | None:
    if not name:
        return None
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        text = body.decode(name, "replace")
    return text if text.count("\ufffd") <= _BAD_SHARE * len(text) else None


def _dechunk(body: bytes, limit: int) -> bytes:
    """Without the frames of HTTP chunks; a body that does not begin with a whole one has none."""
    parts: list[bytes] = []
    size = at = 0
    while True:
        line = body.find(b"\n", at, at + _CHUNK_LINE)
        head = body[at:line].partition(b";")[0].strip() if line >= 0 else b""
        length = int(head, 16) if _HEX.fullmatch(head) else -1
        at = line + 1 + length
        if length < 0 or at > len(body):
            if not parts:
                return body
            raise ValueError("damaged chunks" if line >= 0 else "chunked content ends early")
        if not length:
            return b"".join(parts)
        parts.append(body[line + 1 : at])
        size += length
        if size > limit:
            raise TooLarge
        at += 2 if body.startswith(b"\r\n", at) else 1


def _undo(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding in ("gzip", "x-gzip"):
        return _inflate(body, 31, limit) if body.startswith(b"\x1f\x8b") else body
    if encoding == "deflate":
        zlib_header = len(body) > 1 and body[0] & 15 == 8 and (body[0] * 256 + body[1]) % 31 == 0
        return _inflate(body, 15 if zlib_header else -15, limit)
    if encoding == "br":
        return _read(BrotliReader, body, encoding, limit)
    if encoding == "zstd":
        return _read(ZstdReader, body, encoding, limit) if body.startswith(_ZSTD) else body
    return body


def _inflate(body: bytes, window: int, limit: int) -> bytes:
    out = b""
    while True:
        inflater = zlib.decompressobj(window)
        try:
            out += inflater.decompress(body, limit + 1 - len(out))
        except zlib.error as error:
            if window == -15 and _is_plain(body):
                return body
            raise ValueError(f"damaged compression: {error}") from error
        if len(out) > limit:
            raise TooLarge
        if not inflater.eof:
            raise ValueError("compressed content ends early")
        body = inflater.unused_data
        if window != 31 or not body.startswith(b"\x1f\x8b"):
            return out


def _is_plain(body: bytes) -> bool:
    """A page that was decoded by the crawler."""
    return body[:1024].lstrip().startswith(b"<")


def _read(
    kind: type[BrotliReader] | type[ZstdReader], body: bytes, encoding: str, limit: int
) -> bytes:
    out = b""
    try:
        reader = kind(io.BytesIO(body))
        while len(out) <= limit and (more := reader.read(limit + 1 - len(out))):
            out += more
    except (OSError, ValueError) as error:
        if _is_plain(body):
            return body
        raise ValueError(f"damaged {encoding}: {error}") from error
    if len(out) > limit:
        raise TooLarge
    return out
