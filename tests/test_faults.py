"""The fault proxy does what its kinds say: seen by a plain client that tries nothing twice."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from tests.faults import KINDS, Fault, Kind, Proxy, Rates, proxy

BODY = bytes(n * n % 251 for n in range(8 << 20))
SHORT, LONG = 0.3, 60.0  # seconds after which the plain client gives up, where it should or not


class _Handler(http.server.BaseHTTPRequestHandler):
    """Has one object, takes a range of it, and remembers who asked."""

    protocol_version = "HTTP/1.1"
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        body = BODY
        if span := self.headers.get("Range"):
            first, last = map(int, span.removeprefix("bytes=").split("-"))
            body = BODY[first : last + 1]
            self.send_response_only(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
        else:
            self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(self.path)
        self.send_response_only(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"4\r\ndone\r\n0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:  # the proxy breaks off, as it should
        pass


@pytest.fixture
def seen() -> list[str]:
    """The requests that reached the server."""
    return []


@pytest.fixture
def between(seen: list[str]) -> Iterator[Proxy]:
    handler = type("Handler", (_Handler,), {"seen": seen})
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with proxy(f"http://127.0.0.1:{server.server_port}") as found:
            yield found
        server.shutdown()


def _ask(
    between: Proxy,
    method: str = "GET",
    path: str = "/b/k",
    span: str = "",
    answer_within: float = LONG,
    bytes_within: float = LONG,
) -> str:
    """What a plain client sees, in a word or two."""
    host = between.endpoint.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=answer_within)) as connection:
        try:
            body = b"complete" if method == "POST" else None
            connection.request(method, path, body, {"Range": span} if span else {})
            answer = connection.getresponse()
            connection.sock.settimeout(bytes_within)
        except (OSError, http.client.HTTPException) as error:
            return f"no answer: {type(error).__name__}"
        try:
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return f"broken: {type(error).__name__}"
        if answer.status >= 300 or data.startswith(b"<?xml"):
            retry = answer.getheader("Retry-After", "")
            return f"{answer.status} {data.split(b'Code>')[1][:-2].decode()} {retry}".rstrip()
        if data in (BODY, b"done"):
            return "right"
        if len(data) == len(BODY):
            differ = np.frombuffer(data, np.uint8) != np.frombuffer(BODY, np.uint8)
            return f"{differ.sum()} wrong"
        return f"{answer.getheader('Content-Range')}: {len(data)} bytes"


SEEN: dict[Kind, str] = {
    "slow down": "503 SlowDown",
    "slow down, retry after": "503 SlowDown 1",
    "internal error": "500 InternalError",
    "expired token": "403 ExpiredToken",
    "reset": "no answer: ConnectionResetError",
    "lost answer": "no answer: ConnectionResetError",
    "stall": "no answer: TimeoutError",
    "reset in body": "broken: ConnectionResetError",
    "truncated": "broken: IncompleteRead",
    "stall in body": "broken: TimeoutError",
    "bit flipped": "1 wrong",
    "bits flipped": "3 wrong",
    "short length": "None: 5000000 bytes",
    "closed when idle": "right",
}
NEVER_HEARD: set[Kind] = {
    *("slow down", "slow down, retry after", "internal error", "expired token", "reset", "stall"),
}


@pytest.mark.parametrize("kind", SEEN)
def test_a_fault_is_what_it_is_called(between: Proxy, seen: list[str], kind: Kind) -> None:
    between.faults.append(Fault("GET", "/k", kind, after=5_000_000))
    answer_within = SHORT if kind == "stall" else LONG
    bytes_within = SHORT if kind == "stall in body" else LONG
    seen_now = _ask(between, answer_within=answer_within, bytes_within=bytes_within)
    assert seen_now == SEEN[kind]
    assert between.injected == {kind: 1}
    assert len(seen) == (kind not in NEVER_HEARD)
    assert _ask(between) == "right", "once is once"


def test_a_wrong_range_says_that_it_is_one(between: Proxy) -> None:
    between.faults.append(Fault("GET", "/k", "wrong range"))
    assert _ask(between, span="bytes=10-109") == f"bytes 11-110/{len(BODY)}: 100 bytes"
    assert _ask(between, span="bytes=10-109") == f"bytes 10-109/{len(BODY)}: 100 bytes"


def test_an_error_in_200_is_for_what_completes_an_upload(between: Proxy, seen: list[str]) -> None:
    between.rates = Rates(1, {"error in 200": 1.0})
    assert _ask(between) == "right"
    assert _ask(between, "POST", "/b/k?uploadId=1") == "200 InternalError"
    assert seen == ["/b/k"]
    between.rates = Rates(1, {})
    assert _ask(between, "POST", "/b/k?uploadId=1") == "right"


def test_every_kind_is_tried_here() -> None:
    assert {*SEEN, "wrong range", "error in 200"} == set(KINDS)


def test_a_kept_connection_that_is_closed_when_idle_is_gone_at_the_next_request(
    between: Proxy,
) -> None:
    between.faults.append(Fault("GET", "/k", "closed when idle"))
    host = between.endpoint.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=LONG)) as connection:
        connection.request("GET", "/b/k")
        assert connection.getresponse().read() == BODY
        assert connection.sock.recv(1) == b""


def test_the_same_requests_break_in_the_same_way(between: Proxy) -> None:
    def run(seed: int) -> list[str]:
        between.rates = Rates(seed, {"internal error": 0.2, "reset": 0.2})
        between._seen.clear()
        return [_ask(between, path=f"/b/{n % 20}", span="bytes=0-9") for n in range(40)]

    first = run(1)
    assert run(1) == first
    assert run(2) != first
    assert 4 < sum("Error" in word for word in first) < 28


def test_what_is_served_and_asked_is_counted(between: Proxy) -> None:
    _ask(between, path="/b/a%20b?x=1")
    _ask(between, span="bytes=0-99")
    assert between.served == {"/b/a b": len(BODY), "/b/k": 100}
    assert between.sent("GET", "/b/k") == [between.sent("GET", "/b/")[1]]
    assert between.sent("GET", "/b/k")[0]["range"] == "bytes=0-99"
    assert between.times == sorted(between.times)
