"""Kept HTTP connections to one place, whose bodies are read straight into the caller's memory.

The standard library connects, through TLS and proxies, and frames bodies: its `readinto` hands a
large buffer down to `recv_into`, so that a body is copied once, by the kernel. Its parsing of
headers (as e-mail) costs more than all the rest of a request, so ours stands in its place.

What is added is time: ten seconds to connect; then an answer that brings no byte for `stall`
seconds, or not the next piece of it in three times that, is given up. There is no limit to the
whole of a long read that moves. A connection serves one request at a time; idle ones are kept for a
while and looked at before use. Whom to trust and which proxy to take is what botocore's own
connections go by, so that reads go where puts go.
"""

from __future__ import annotations

import base64
import http.client
import io
import re
import select
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.httpsession import where
from botocore.utils import get_environ_proxies

__all__ = ["Answer", "Pool", "trusting"]

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 15.0
KEPT = 64
SLOW = 3  # stalls that one piece may take

_PORTS = {"http": 80, "https": 443}
_ALWAYS = ("Accept-Encoding: identity", "User-Agent: eyas")
_LINE = 64 << 10
_FIELDS = 200
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})[ \r\n]")


class Answer(http.client.HTTPResponse):
    """`fields` are the headers, their names in lower case; `connection` brings the body."""

    def __init__(self, connection: _Connection) -> None:
        stands_in: Any = connection  # for a socket, of which only `makefile` is used
        super().__init__(stands_in, method="GET")
        self.connection = connection
        self.fields: dict[str, str] = {}

    def begin(self) -> None:
        """Read as far as the end of the headers. Raises HTTPException for what is no HTTP."""
        self.status = 100
        while self.status < 200:
            version, self.status, self.fields = self.connection.head()
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = self.fields.get("content-length", "")
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        stays = self.fields.get("connection", "").lower()
        self.will_close = stays == "close" or (version == 0 and stays != "keep-alive")
        self.will_close |= self.length is None and not self.chunked

    def into(self, piece: memoryview) -> int:
        """Bytes of the body into `piece`, at least one: all that come before it ends or breaks.
        Raises OSError if nothing came."""
        self.connection.start_clock()
        got = self.readinto(piece)
        if not got:
            raise self.connection.over or http.client.IncompleteRead(b"")
        return got


class Pool:
    """Connections to the scheme, host and port of `url`, which names no user. Threads share it.
    `ca_bundle`: a file or folder of certificates to trust; without one, the system's and
    botocore's."""

    def __init__(self, url: str, stall: float, ca_bundle: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._stall = stall
        self._host = parts.netloc.removesuffix(f":{_PORTS[parts.scheme]}")
        self._address = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
        self._trust = trusting(ca_bundle) if parts.scheme == "https" else None
        self._proxy = _proxy(url, parts.scheme)
        self._idle: list[tuple[_Connection, float]] = []
        self._lock = threading.Lock()

    def ask(self, path: str, headers: Mapping[str, str], fresh: bool) -> Answer:
        """Ask for `path`; returns the answer as far as its headers. A kept connection may have
        gone without a word: then once more on a new one. Raises OSError, or HTTPException for what
        is no HTTP."""
        request = self._request(path, headers)
        kept = None if fresh else self._take()
        if kept is not None:
            try:
                return kept.ask(request)
            except (ConnectionError, http.client.BadStatusLine):
                pass
        return self._new().ask(request)

    def done(self, answer: Answer) -> None:
        """Keep the connection of an answer that was read to its end; close any other, and those
        that nobody has used for long."""
        now = time.monotonic()
        old: list[_Connection] = []
        with self._lock:
            if answer.isclosed() and not answer.will_close and answer.connection.over is None:
                self._idle.append((answer.connection, now))
            else:
                old.append(answer.connection)
            while self._idle and (self._idle[0][1] < now - IDLE_SECONDS or len(self._idle) > KEPT):
                old.append(self._idle.pop(0)[0])
        for connection in old:
            connection.close()

    def _request(self, path: str, headers: Mapping[str, str]) -> bytes:
        if self._proxy is not None and self._trust is None:  # to a proxy of plain HTTP
            path, headers = self.origin + path, {**headers, **_login(self._proxy)}
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._host}", *_ALWAYS]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _take(self) -> _Connection | None:
        """The idle connection that was used last."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and connection.is_quiet():
                return connection
            connection.close()

    def _new(self) -> _Connection:
        host, port = self._address
        headers: dict[str, str] = {}
        if self._proxy is not None:
            host, port = self._proxy.hostname or "", self._proxy.port or _PORTS["http"]
            headers = _login(self._proxy)
        if self._trust is None:
            return _Connection(
                http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS), self._stall
            )
        opener = http.client.HTTPSConnection(
            host, port, timeout=CONNECT_SECONDS, context=self._trust
        )
        if self._proxy is not None:
            opener.set_tunnel(*self._address, headers=headers)
        return _Connection(opener, self._stall)


class _Connection:
    """One connection, opened with the first request; `over` says why nothing more will come."""

    def __init__(self, opener: http.client.HTTPConnection, stall: float) -> None:
        self.over: OSError | None = None
        self._opener = opener
        self._stall = stall
        self._reader: _KeptReader | None = None
        self._until = 0.0

    def ask(self, request: bytes) -> Answer:
        """Closes itself if this raises."""
        try:
            if self._reader is None:
                self._opener.connect()
                self._opener.sock.settimeout(self._stall)
                self._opener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self._reader = _KeptReader(_Watched(self))
            self.start_clock()
            self._opener.sock.sendall(request)
            answer = Answer(self)
            answer.begin()
            return answer
        except BaseException:
            self.close()
            raise

    def start_clock(self) -> None:
        """From now on the next piece is waited for."""
        self._until = time.monotonic() + SLOW * self._stall

    def head(self) -> tuple[int, int, dict[str, str]]:
        """Minor version, status and fields of the answer that comes."""
        start = _STATUS.match(self._line())
        if start is None:
            raise http.client.BadStatusLine("no HTTP")
        fields: dict[str, str] = {}
        while line := self._line().strip():
            if len(fields) == _FIELDS:
                raise http.client.HTTPException("an endless header")
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        return int(start[1]), int(start[2]), fields

    def _line(self) -> bytes:
        assert self._reader is not None
        line = self._reader.readline(_LINE)
        if not line.endswith(b"\n"):
            raise self.over or http.client.LineTooLong("header")
        return line

    def receive(self, buffer: Any) -> int:
        """What has come; 0 when it is over. Raising would lose what came into the buffer before."""
        if self.over is not None:
            return 0
        try:
            if time.monotonic() > self._until:
                raise TimeoutError("bytes come too slowly")
            got: int = self._opener.sock.recv_into(buffer)
            if not got:
                raise http.client.RemoteDisconnected("the other side has ended it")
        except OSError as error:
            self.over = error
            return 0
        return got

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What an answer reads from; one for all answers, since it may read ahead."""
        assert self._reader is not None
        return self._reader

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: no end and no stray byte."""
        waiting = select.poll()
        waiting.register(self._opener.sock, select.POLLIN)
        return not waiting.poll(0)

    def close(self) -> None:
        self._opener.close()


class _KeptReader(io.BufferedReader):
    def close(self) -> None:
        """An answer that ends closes its file; the next one reads on."""


class _Watched(io.RawIOBase):
    """The receiving side of a connection as a file."""

    def __init__(self, connection: _Connection) -> None:
        self._receive = connection.receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(buffer)


def trusting(ca_bundle: str | None) -> ssl.SSLContext:
    """TLS that trusts this file or folder of certificates, or without one the system's and
    botocore's. Raises OSError for what is none."""
    if ca_bundle:
        if Path(ca_bundle).is_dir():
            return ssl.create_default_context(capath=ca_bundle)
        return ssl.create_default_context(cafile=ca_bundle)
    context = ssl.create_default_context()
    context.load_verify_locations(where())
    return context


def _proxy(url: str, scheme: str) -> urllib.parse.SplitResult | None:
    """The proxy that the environment names for `url`."""
    found = get_environ_proxies(url).get(scheme)
    return urllib.parse.urlsplit(found if "//" in found else f"//{found}") if found else None


def _login(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    """The header that says to the proxy who asks, if its URL does."""
    if not proxy.username or not proxy.password:
        return {}
    user, word = urllib.parse.unquote(proxy.username), urllib.parse.unquote(proxy.password)
    token = base64.b64encode(f"{user}:{word}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {token}"}
