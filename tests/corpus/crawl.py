"""Crawl files for tests, made record by record so that each can be damaged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from tests.texts import page, write_html, write_jsonl

__all__ = [
    "SHARED",
    "gzipped",
    "html_of",
    "member",
    "record",
    "response",
    "write_crawl",
    "write_warc",
]

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "warc"


def gzipped(data: bytes, level: int = 9) -> bytes:
    """A gzip member without the time of day, so that a test is the same in every process."""
    return gzip.compress(data, level, mtime=0)


def html_of(text: str, title: str = "A page") -> bytes:
    """A page whose main text is `text`."""
    body = "".join(f"<p>{p}</p>" for p in text.split("\n\n"))
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><main><article><h1>{title}</h1>{body}</article></main></body></html>"
    ).encode()


def response(body: bytes, headers: str = "Content-Type: text/html; charset=utf-8") -> bytes:
    """An HTTP response."""
    return f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode() + body


def record(url: str, block: bytes, kind: str = "response", lie: int = 0) -> bytes:
    """A WARC record; `lie` is added to its Content-Length."""
    types = {"response": "application/http; msgtype=response", "conversion": "text/plain"}
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\n"
        "WARC-Date: 2024-05-01T12:00:00Z\r\nWARC-Record-ID: <urn:uuid:0>\r\n"
        f"Content-Type: {types.get(kind, 'text/plain')}\r\n"
        f"Content-Length: {len(block) + lie}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def member(number: int, lie: int = 0) -> bytes:
    """The gzip member of a small record with the URL http://x/<number>."""
    block = response(html_of(page(number)))
    return gzipped(record(f"http://x/{number}", block, lie=lie))


def write_warc(path: Path, pages: Sequence[tuple[str, bytes]]) -> Path:
    """A .warc.gz of HTML pages by URL."""
    members = (gzipped(record(url, response(body))) for url, body in pages)
    path.write_bytes(b"".join(members))
    return path


def write_crawl(folder: Path) -> Path:
    """Three kinds of files, with planted duplicates: pages 0 to 3 stand in all of them."""
    numbers = [*range(12), 0, 1]
    warc = [(f"http://warc.test/{n}/{k}", html_of(page(n))) for k, n in enumerate(numbers)]
    write_warc(folder / "a.warc.gz", warc)
    write_jsonl(folder / "b.jsonl", 10, "ar")
    with (folder / "b.jsonl").open("a") as file:
        file.write('{"text": "a line that never ends\n')
        for n in range(4):
            text = page(n).replace(".", "!").upper().lower()
            file.write(json.dumps({"url": f"http://copy.test/{n}", "text": text}) + "\n")
    write_html(folder / "html", 4)
    return folder
