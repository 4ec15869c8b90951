"""A real web server for tests, plain or with TLS, that can break what it sends."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Site", "certificate", "serve"]


@dataclass
class Site:
    """What is served by path, and how. `faults` are taken one a GET: "cut" sends half of what was
    asked for, "503" an error, "200" the whole file though a part was asked for, "416" refuses the
    part, "none" nothing special. `moved` says where a path has gone."""

    files: dict[str, bytes]
    url: str = ""
    faults: list[str] = field(default_factory=list)
    etag: str = '"one"'
    length: bool = True
    head: bool = True  # whether HEAD is allowed
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range


@contextlib.contextmanager
def serve(site: Site, trust: ssl.SSLContext | None = None) -> Iterator[Site]:
    """Serve until the end of the block; `site.url` says where."""
    kind = type("Bound", (_Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        if trust:
            server.socket = trust.wrap_socket(server.socket, server_side=True)
        scheme = "https" if trust else "http"
        site.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def certificate(folder: Path) -> Path | None:
    """Key and certificate of 127.0.0.1 in one file, or None where openssl is not installed."""
    if shutil.which("openssl") is None:
        return None
    path = folder / "server.pem"
    where = ("-keyout", str(path), "-out", str(folder / "cert.pem"))
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *where, *names], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + (folder / "cert.pem").read_bytes())
    return path


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: bool) -> None:
        site, part = self.site, self.headers.get("Range", "")
        site.asked.append((self.command, self.path, part))
        fault = site.faults.pop(0) if body and site.faults else "none"
        data = site.files.get(self.path)
        if self.path in site.moved:
            self._head(302, {"Location": site.moved[self.path], "Content-Length": "0"})
            return
        if not body and not site.head:
            self._head(403, {"Content-Length": "0"})
            return
        if data is None or fault in ("503", "416"):
            self._head(404 if data is None else int(fault), {"Content-Length": "0"})
            return
        first, _, last = part.removeprefix("bytes=").partition("-")
        start, end = int(first or 0), int(last) + 1 if last else len(data)
        condition = self.headers.get("If-Range", site.etag)
        if fault == "200" or condition != site.etag:
            start, end = 0, len(data)
        headers = {"ETag": site.etag} if site.etag else {}
        partial = start > 0 or end < len(data)
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        piece = data[start:end]
        if site.length:
            headers["Content-Length"] = str(len(piece))
        else:
            headers["Connection"] = "close"
        self._head(206 if partial else 200, headers)
        if body:
            self.wfile.write(piece[: len(piece) // 2] if fault == "cut" else piece)
        if fault == "cut" or not site.length:
            self.close_connection = True

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
