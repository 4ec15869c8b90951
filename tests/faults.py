"""A loopback proxy between a client and the real S3 server that breaks what it is told to break.

Each connection of a client has a thread and a connection of its own to the server; both are kept
alive, and bodies are passed on as they come, so that a stall or a cut in the middle is a real one.
Signatures hold, since they are over the name that the client used. A fault is either scripted (a
`Fault`: which request, how often, after how many bytes) or drawn at a rate (`Rates`): from the
seed, the request and how often it was seen, so that the same requests break in the same way in
whatever order threads send them. What was asked, broken and served is counted.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from tests.wire import Answer, Request, Upstream, read_headers, reading

__all__ = ["KINDS", "Fault", "Kind", "Proxy", "Rates", "proxy"]

Kind = Literal[
    "slow down",  # 503; the server never hears of the request
    "slow down, retry after",  # with the header Retry-After: 1
    "internal error",  # 500
    "expired token",  # 403; at a rate only once for the same request: the next token is good
    "reset",  # RST instead of an answer; the server never hears of the request
    "lost answer",  # RST instead of an answer; the request was applied
    "stall",  # no answer and no end, until the client gives up
    "reset in body",
    "truncated",  # FIN in the body, although more was promised
    "stall in body",
    "bit flipped",
    "bits flipped",  # three of them
    "short length",  # a sound answer that is shorter than what was asked for
    "wrong range",  # 206 of the range one byte further on
    "error in 200",  # instead of completing an upload
    "closed when idle",  # a sound answer, after which the kept connection goes without a word
]

_CANNED: Mapping[str, tuple[int, str, str]] = {
    "slow down": (503, "SlowDown", ""),
    "slow down, retry after": (503, "SlowDown", "Retry-After: 1\r\n"),
    "internal error": (500, "InternalError", ""),
    "expired token": (403, "ExpiredToken", ""),
    "error in 200": (200, "InternalError", ""),
}
_IN_BODY = ("reset in body", "truncated", "stall in body", "bit flipped", "bits flipped")
_OF_READS = (*_IN_BODY, "short length", "wrong range")
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass
class Fault:
    """Breaks `times` answers to `method` requests whose path contains `path` as `kind` says. What
    breaks inside a body does so after that many bytes of it, or wherever the draw falls. `then` is
    called just before the break."""

    method: str
    path: str
    kind: Kind
    times: int = 1
    after: int | None = None
    then: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Rates:
    """Shares of the requests that each kind breaks, of those that it can break."""

    seed: int
    shares: Mapping[Kind, float]


@dataclass
class Proxy:
    """`requests`: method, path and headers of each; `times`: when each came, in seconds of the
    monotonic clock; `injected`: how many were broken, by kind;
    `served`: bytes of bodies of reads sent, by path without its query. Requests signed with an
    access key in `expired` are answered with "expired token"."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    rates: Rates = Rates(0, {})
    expired: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    injected: Counter[Kind] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    _seen: Counter[str] = field(default_factory=Counter)
    _renewed: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, method: str, path: str) -> list[dict[str, str]]:
        """Headers of the requests with such a path, names in lower case."""
        return [
            {k.lower(): v for k, v in headers.items()}
            for m, p, headers in list(self.requests)
            if m == method and path in p
        ]

    def _decide(self, request: Request) -> tuple[Fault | None, random.Random]:
        """What breaks this request, and the draw of where."""
        with self._lock:
            self.requests.append((request.method, request.path, request.headers))
            self.times.append(time.monotonic())
            path = request.path.partition("?")[0]
            name = f"{self.rates.seed} {request.method} {path} {request.header('range')}"
            self._seen[name] += 1
            chance = random.Random(f"{name} {self._seen[name]}")
            signed = request.header("authorization") + request.path
            if any(f"Credential={key}/" in urllib.parse.unquote(signed) for key in self.expired):
                return Fault("", "", "expired token"), chance
            for fault in self.faults:
                if fault.times and fault.method == request.method and fault.path in request.path:
                    fault.times -= 1
                    return fault, chance
            kind = self._draw(name, request, chance)
            return Fault("", "", kind) if kind else None, chance

    def _draw(self, name: str, request: Request, chance: random.Random) -> Kind | None:
        for kind, share in self.rates.shares.items():
            if chance.random() < share and _can(kind, request):
                if kind != "expired token":
                    return kind
                if name not in self._renewed:
                    self._renewed.add(name)
                    return kind
        return None

    def _count(self, kind: Kind) -> None:
        with self._lock:
            self.injected[kind] += 1

    def _count_served(self, path: str, size: int) -> None:
        with self._lock:
            self.served[urllib.parse.unquote(path.partition("?")[0])] += size


def _can(kind: Kind, request: Request) -> bool:
    """Whether the kind has a meaning for such a request."""
    if kind == "error in 200":
        return request.method == "POST" and "uploadId=" in request.path
    if kind == "wrong range":
        return request.method == "GET" and request.header("range") != ""
    return kind not in _OF_READS or request.method == "GET"


@contextlib.contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Stands before `upstream` until the block ends, which also ends what stalls."""
    address = urllib.parse.urlsplit(upstream)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    state = Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}")
    open_now: dict[_Connection, threading.Thread] = {}

    def run(connection: _Connection) -> None:
        with contextlib.suppress(OSError, ValueError):  # broken on purpose, or by the client
            connection.serve()
        connection.close()
        open_now.pop(connection, None)

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener is shut
            while True:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                state.connections += 1
                server = Upstream(str(address.hostname), address.port or 80)
                connection = _Connection(state, client, server)
                thread = threading.Thread(target=run, args=(connection,), daemon=True)
                open_now[connection] = thread
                thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield state
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listener.close()
        for connection, thread in list(open_now.items()):
            connection.wake()
            thread.join()


class _Connection:
    """One connection of a client: requests one after the other."""

    def __init__(self, state: Proxy, client: socket.socket, server: Upstream) -> None:
        self._state = state
        self._client = client
        self._reader = reading(client)
        self._server = server

    def serve(self) -> None:
        while request := self._read_request():
            fault, chance = self._state._decide(request)
            if fault is None:
                if not self._pass_on(request, self._server.ask(request)):
                    return
            elif not self._broken(request, fault, chance):
                return

    def wake(self) -> None:
        """Ends what `serve` waits in."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._server.wake()

    def close(self) -> None:
        self._server.close()
        self._reader.close()
        self._client.close()

    def _read_request(self) -> Request | None:
        line = self._reader.readline().decode("latin-1").split()
        if len(line) != 3:
            return None
        headers = dict(read_headers(self._reader))
        if any(name.lower() == "expect" for name in headers):
            self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            headers = {k: v for k, v in headers.items() if k.lower() != "expect"}
        length = next((int(v) for k, v in headers.items() if k.lower() == "content-length"), 0)
        return Request(line[0], line[1], headers, self._reader.read(length))

    def _broken(self, request: Request, fault: Fault, chance: random.Random) -> bool:
        """Break it as the fault says; returns whether the connection stays."""
        kind = fault.kind
        if kind in _CANNED:
            self._state._count(kind)
            fault.then()
            self._client.sendall(_canned(*_CANNED[kind], head=request.method == "HEAD"))
            return True
        if kind in ("reset", "stall"):
            self._state._count(kind)
            fault.then()
            return self._stall() if kind == "stall" else self._reset()
        answer = self._server.ask(request)
        if kind == "lost answer":
            self._state._count(kind)
            fault.then()
            return self._reset()
        if kind == "closed when idle":
            self._state._count(kind)
            self._pass_on(request, answer)
            fault.then()
            return False
        if answer.status not in (200, 206) or answer.length == 0:
            return self._pass_on(request, answer)  # it has no body that could break
        self._state._count(kind)
        where = chance.randrange(answer.length) if fault.after is None else fault.after
        if kind == "short length":
            answer = _shortened(answer, where)
        elif kind == "wrong range":
            answer = _moved(answer)
        if kind not in _IN_BODY:
            fault.then()
            return self._pass_on(request, answer)
        if kind in ("bit flipped", "bits flipped"):
            fault.then()
            count = 1 if kind == "bit flipped" else 3
            places = {where, *(chance.randrange(answer.length) for _ in range(count - 1))}
            return self._pass_on(request, answer, _flipped(answer.body, places))
        self._pass_on(request, answer, _first(answer.body, where))
        fault.then()
        if kind == "reset in body":
            return self._reset()
        return self._stall() if kind == "stall in body" else False

    def _pass_on(
        self, request: Request, answer: Answer, body: Iterator[bytes] | None = None
    ) -> bool:
        """Send the answer, or with `body` that instead of its own; whether both sides stay."""
        lines = [f"HTTP/1.1 {answer.status} {'OK' if answer.status < 300 else 'No'}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        waiting = "\r\n".join([*lines, "", ""]).encode("latin-1")
        for piece in answer.body if body is None else body:
            if request.method == "GET":
                self._state._count_served(request.path, len(piece))
            self._client.sendall(waiting + piece if waiting else piece)
            waiting = b""
        if waiting:
            self._client.sendall(waiting)
        if not answer.keep:
            self._server.close()
        return request.header("connection").lower() != "close"

    def _stall(self) -> bool:
        """Say nothing until the client goes or the proxy ends."""
        self._client.recv(1)
        return False

    def _reset(self) -> bool:
        """Close with RST, as a server that dies does."""
        linger = struct.pack("ii", 1, 0)
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return False


def _canned(status: int, code: str, header: str, head: bool) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>-</Message></Error>"
    start = (
        f"HTTP/1.1 {status} Fault\r\n{header}Content-Type: application/xml\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return (start if head else start + body).encode()


def _first(body: Iterator[bytes], count: int) -> Iterator[bytes]:
    """The first `count` bytes."""
    for piece in body:
        if count <= 0:
            return
        yield piece[:count]
        count -= len(piece)


def _flipped(body: Iterator[bytes], places: set[int]) -> Iterator[bytes]:
    """One bit of each of these bytes is another."""
    start = 0
    for piece in body:
        changed = bytearray(piece)
        for place in places:
            if start <= place < start + len(piece):
                changed[place - start] ^= 1 << place % 8
        start += len(piece)
        yield bytes(changed)


def _shortened(answer: Answer, length: int) -> Answer:
    """As if the object ended there. The rest is never read, so the server's connection goes."""
    headers = [(k, str(length) if k.lower() == "content-length" else v) for k, v in answer.headers]
    return Answer(answer.status, headers, length, _first(answer.body, length), keep=False)


def _moved(answer: Answer) -> Answer:
    """The range one byte further on, said to be so."""

    def moved(value: str) -> str:
        unit, _, rest = value.partition(" ")
        span, _, total = rest.partition("/")
        start, _, end = span.partition("-")
        return f"{unit} {int(start) + 1}-{int(end) + 1}/{total}"

    def body() -> Iterator[bytes]:
        skipped = False
        for piece in answer.body:
            yield piece if skipped else piece[1:]
            skipped = True
        yield b"\0"

    headers = [(k, moved(v) if k.lower() == "content-range" else v) for k, v in answer.headers]
    return Answer(answer.status, headers, answer.length, body(), answer.keep)
