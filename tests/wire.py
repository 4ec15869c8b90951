"""HTTP as it is passed on: requests whole, answers with bodies that come piece by piece."""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Answer", "Request", "Upstream", "read_headers", "reading"]

PIECE = 256 << 10


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str:
        return next((v for k, v in self.headers.items() if k.lower() == name), "")


@dataclass(frozen=True)
class Answer:
    """`body` yields its pieces; `length` is their sum; `keep` whether the server stays."""

    status: int
    headers: list[tuple[str, str]]
    length: int
    body: Iterator[bytes]
    keep: bool


class Upstream:
    """The kept connection to the server."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._reader: io.BufferedReader | None = None

    def ask(self, request: Request) -> Answer:
        """Send it; once more on a new connection if the kept one had gone."""
        lines = [f"{request.method} {request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        data = "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body
        for kept in (self._socket is not None, False):
            try:
                if self._socket is None:
                    self._socket = socket.create_connection(self._address)
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._reader = reading(self._socket)
                self._socket.sendall(data)
                assert self._reader is not None
                if line := self._reader.readline():
                    return _answer(line, self._reader, request.method)
            except ConnectionError:
                pass
            self.close()
            if not kept:
                break
        raise ConnectionError("the server does not answer")

    def wake(self) -> None:
        """Ends a read that another thread waits in."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._reader = None


def reading(connection: socket.socket) -> io.BufferedReader:
    return io.BufferedReader(socket.SocketIO(connection, "rb"), PIECE)


def read_headers(reader: io.BufferedReader) -> Iterator[tuple[str, str]]:
    while (line := reader.readline().strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        yield name, value.strip()


def _answer(line: bytes, reader: io.BufferedReader, method: str) -> Answer:
    """The answer that starts with the status line; its body is still to come."""
    status = int(line.split()[1])
    found = list(read_headers(reader))
    own = {name.lower(): value for name, value in found}
    headers = [(k, v) for k, v in found if k.lower() not in ("transfer-encoding", "connection")]
    keep = own.get("connection", "").lower() != "close"
    if method == "HEAD" or status in (204, 304):
        return Answer(status, headers, 0, iter(()), keep)
    if "content-length" in own:
        length = int(own["content-length"])
        return Answer(status, headers, length, _pieces(reader, length), keep)
    # of unknown length, as listings are: small, so taken whole
    chunked = own.get("transfer-encoding", "") == "chunked"
    data = b"".join(_chunks(reader)) if chunked else reader.read()
    headers.append(("Content-Length", str(len(data))))
    return Answer(status, headers, len(data), iter((data,)), keep and chunked)


def _pieces(reader: io.BufferedReader, length: int) -> Iterator[bytes]:
    while length:
        piece = reader.read1(min(length, PIECE))
        if not piece:
            raise ConnectionError("the server broke off")
        length -= len(piece)
        yield piece


def _chunks(reader: io.BufferedReader) -> Iterator[bytes]:
    while size := int(reader.readline().split(b";")[0], 16):
        yield reader.read(size)
        reader.readline()
    list(read_headers(reader))  # trailers
