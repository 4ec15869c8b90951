"""What reads from S3 promise where a real server does not misbehave: against answers of our own
making, and through the proxy."""

from __future__ import annotations

import contextlib
import http.server
import logging
import os
import socket
import ssl
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.faults import Fault, Proxy
from tests.seaweed import Seaweed

from eyas.store import NotFound, StoreError, s3_access, s3_client, s3_read
from eyas.store.s3 import S3Store
from eyas.store.s3_access import Login
from eyas.store.s3_read import Verdict, verdict

DATA = bytes(n * n % 251 for n in range(300_000))


class Request(http.server.BaseHTTPRequestHandler):
    """One GET, as an answer of ours sees it."""

    protocol_version = "HTTP/1.1"

    def reply(self, status: int, body: bytes = b"", **fields: str) -> None:
        fields.setdefault("Content_Length", str(len(body)))
        self.send_response_only(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.reply(status, f"<Error><Code>{code}</Code><Message>sesame</Message></Error>".encode())

    def log_message(self, *_: object) -> None:
        pass


Answer = Callable[[Request], None]


@contextlib.contextmanager
def answering(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server (a mock of one) that gives every GET this answer; gives its host and port."""

    class Handler(Request):
        def do_GET(self) -> None:
            answer(self)

        def do_CONNECT(self) -> None:
            """A tunnel, as a proxy makes it, from the test that asks for one."""
            host, _, port = self.path.partition(":")
            seen.append(self.path)
            with socket.create_connection((host, int(port))) as far:
                self.send_response_only(200)
                self.end_headers()
                back = threading.Thread(target=_pump, args=(far, self.connection))
                back.start()
                _pump(self.connection, far)
                back.join()
            self.close_connection = True

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:  # clients that go away
            pass

    seen: list[str] = []
    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that knows nothing but one pair of keys."""
    for name in [n for n in os.environ if n.startswith("AWS_") or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "sesame-key",
        "AWS_SECRET_ACCESS_KEY": "sesame-secret",
        "AWS_SESSION_TOKEN": "sesame-token",
        "AWS_MAX_ATTEMPTS": "3",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store_at(keys: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], S3Store]]:
    """Opens a store whose every read gets one answer."""
    with contextlib.ExitStack() as servers:

        def open_it(answer: Answer) -> S3Store:
            place = servers.enter_context(answering(answer))
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{place}")
            return S3Store("s3://eyas/x")

        yield open_it


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, "AccessDenied", "access denied.*may not get k.*s3:GetObject"),
        (400, "ExpiredToken", "refuses these credentials .ExpiredToken.: renew them"),
        (403, "InvalidToken", "refuses these credentials .InvalidToken.: renew them"),
        (403, "SignatureDoesNotMatch", "refuses these credentials"),
        (403, "RequestTimeTooSkewed", "clock is off"),
        (301, "PermanentRedirect", "another region .*AWS_REGION"),
        (307, "TemporaryRedirect", "another region .*AWS_REGION"),
        (404, "NoSuchBucket", "there is no bucket eyas at http"),
        (503, "SlowDown", "cannot get k: http.* answered SlowDown .HTTP 503"),
        (418, "Strange", "cannot get k: http.* answered Strange .HTTP 418"),
    ],
)
def test_a_refusal_says_what_to_do(
    store_at: Callable[[Answer], S3Store], status: int, code: str, sentence: str
) -> None:
    store = store_at(lambda request: request.refuse(status, code))
    for read in (lambda: store.get("k"), lambda: store.get_range("k", 3, 5)):
        with pytest.raises(StoreError, match=sentence) as caught:
            read()
        assert not isinstance(caught.value, NotFound)
        assert "sesame" not in str(caught.value)


def test_an_object_that_is_not_there_is_named(store_at: Callable[[Answer], S3Store]) -> None:
    store = store_at(lambda request: request.refuse(404, "NoSuchKey"))
    with pytest.raises(NotFound, match="no object k"):
        store.read_into("k", 0, bytearray(1))


@pytest.mark.parametrize(
    ("status", "code", "what"),
    [
        (503, "SlowDown", "again"),
        (503, "", "again"),
        (500, "InternalError", "again"),
        (400, "RequestTimeout", "again"),
        (429, "", "again"),
        (400, "ExpiredToken", "renew"),
        (403, "InvalidToken", "renew"),
        (412, "PreconditionFailed", "anew"),
        (416, "InvalidRange", "past the end"),
        (403, "AccessDenied", "refuse"),
        (404, "NoSuchKey", "refuse"),
        (301, "PermanentRedirect", "refuse"),
    ],
)
def test_what_is_done_about_a_refusal(status: int, code: str, what: Verdict) -> None:
    assert verdict(status, code) == what


def test_only_what_passes_is_asked_for_again(store_at: Callable[[Answer], S3Store]) -> None:
    asked = []

    def answer(request: Request) -> None:
        asked.append(request.path)
        request.refuse(503 if "busy" in request.path else 403, "Whatever")

    store = store_at(answer)
    for key in ("denied", "busy"):
        with pytest.raises(StoreError):
            store.get(key)
    assert asked == ["/eyas/x/denied"] + ["/eyas/x/busy"] * 3


@pytest.mark.parametrize(
    ("status", "fields", "sentence"),
    [
        (200, {}, "RangeIgnored"),
        (206, {"Content_Range": "bytes 0-9/300000"}, "cannot get k"),
        (206, {"Content_Range": "bytes 5-14/12"}, "ends before byte 15"),
        (206, {"Content_Range": "bytes five-six/seven"}, "cannot get k"),
        (206, {}, "cannot get k"),
    ],
)
def test_another_range_than_was_asked_for_is_never_taken(
    store_at: Callable[[Answer], S3Store], status: int, fields: dict[str, str], sentence: str
) -> None:
    store = store_at(lambda request: request.reply(status, DATA[:10], **fields))
    with pytest.raises(StoreError, match=sentence):
        store.get_range("k", 5, 10)


def test_versions_are_not_mixed_even_by_a_server_that_knows_no_conditions(
    store_at: Callable[[Answer], S3Store],
) -> None:
    """It breaks the old version in the middle and goes on with the new one."""
    old, new = b"a" * 1000, b"b" * 1000
    asked = []

    def answer(request: Request) -> None:
        first = int(request.headers["Range"].removeprefix("bytes=").split("-")[0])
        body, version = (new, '"2"') if asked else (old, '"1"')
        asked.append(first)
        about = {"Content_Range": f"bytes {first}-999/1000", "ETag": version}
        cut = 400 if len(asked) == 1 else 1000
        request.reply(206, body[first:cut], Content_Length=str(1000 - first), **about)
        request.close_connection = True

    assert store_at(answer).get_range("k", 0, 1000) == new
    assert asked == [0, 400, 0]


def test_an_object_that_is_replaced_all_the_time_ends_in_a_sentence(
    store_at: Callable[[Answer], S3Store],
) -> None:
    versions = iter(range(10_000))

    def answer(request: Request) -> None:
        if "If-Match" in request.headers:
            request.refuse(412, "PreconditionFailed")
            return
        request.reply(200, DATA[:200_000], Content_Length="300000", ETag=f'"{next(versions)}"')
        request.close_connection = True

    with pytest.raises(StoreError, match="cannot get k"):
        store_at(answer).get("k")
    assert next(versions) <= 4


def test_a_whole_object_of_unknown_size_is_refused(store_at: Callable[[Answer], S3Store]) -> None:
    def answer(request: Request) -> None:
        request.send_response_only(200)
        request.end_headers()
        request.close_connection = True

    with pytest.raises(StoreError, match="MissingContentLength"):
        store_at(answer).get("k")


def test_bodies_in_chunks_are_read(store_at: Callable[[Answer], S3Store]) -> None:
    def answer(request: Request) -> None:
        request.send_response_only(206)
        request.send_header("Transfer-Encoding", "chunked")
        request.send_header("Content-Range", "bytes 5-14/300000")
        request.end_headers()
        request.wfile.write(b"4\r\n" + DATA[5:9] + b"\r\n6\r\n" + DATA[9:15] + b"\r\n0\r\n\r\n")

    store = store_at(answer)
    assert store.get_range("k", 5, 10) == DATA[5:15]
    assert store.get_range("k", 5, 10) == DATA[5:15], "on the same connection"


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nx", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 999],
)
def test_what_is_no_http_ends_in_a_sentence(
    store_at: Callable[[Answer], S3Store], answer: bytes
) -> None:
    def give(request: Request) -> None:
        request.wfile.write(answer)
        request.close_connection = True

    with pytest.raises(StoreError, match="cannot get k"):
        store_at(give).get("k")


def test_an_answer_that_trickles_is_given_up(
    store_at: Callable[[Answer], S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never stalls, and would never end."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3_client, "STALL_SECONDS", 0.2)
    gone = threading.Event()

    def answer(request: Request) -> None:
        request.reply(200, Content_Length="300000")
        try:
            while not gone.wait(0.02):
                request.wfile.write(b"a")
        except OSError:
            gone.set()

    with pytest.raises(StoreError, match=r"cannot get k.*TimeoutError"):
        store_at(answer).get("k")
    assert gone.wait(30), "the connection was closed"


def test_a_connection_that_stalled_is_not_used_again(
    store_at: Callable[[Answer], S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3_client, "STALL_SECONDS", 0.5)
    done = threading.Event()

    def answer(request: Request) -> None:
        if "first" in request.path:
            request.reply(200, DATA[:1000], Content_Length="300000")
            done.wait()
        else:
            request.reply(200, DATA)

    store = store_at(answer)
    try:
        with pytest.raises(StoreError, match=r"cannot get first.*TimeoutError"):
            store.get("first")
        assert store.get("second") == DATA
    finally:
        done.set()


def test_a_kept_connection_that_goes_without_a_word_costs_no_try(
    store_at: Callable[[Answer], S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the request was sent."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    served: list[int] = []

    def answer(request: Request) -> None:
        if request.client_address[1] in served:
            request.close_connection = True
            return
        served.append(request.client_address[1])
        request.reply(200, DATA)

    store = store_at(answer)
    assert [store.get("k") for _ in range(3)] == [DATA] * 3
    assert len(served) == 3


def test_a_read_waits_for_a_server_that_is_started_again(
    store_at: Callable[[Answer], S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses add up to 40 seconds where each is as long as it is on average."""
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    pauses: list[float] = []
    monkeypatch.setattr(s3_read, "time", SimpleNamespace(sleep=pauses.append))

    def answer(request: Request) -> None:
        if sum(pauses) < 40:
            request.reply(503)
        else:
            request.reply(200, DATA)

    assert store_at(answer).get("k") == DATA
    assert len(pauses) == 15


def test_a_read_goes_on_as_long_as_it_moves_forward(
    between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten breaks with two tries."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    store = S3Store(f"s3://eyas/{uuid.uuid4().hex}")
    data = DATA * 4
    store.put("k", data)
    between.faults.append(Fault("GET", "/k", "truncated", times=10, after=100_000))
    assert store.get("k") == data
    assert len(between.sent("GET", "/k")) == 11


def test_a_thread_keeps_its_connection_and_a_fresh_read_has_its_own(
    between: Proxy, behind: S3Store
) -> None:
    behind.put("k", DATA)
    behind.get("k")
    before = between.connections
    for start in range(50):
        assert behind.get_range("k", start, 7) == DATA[start : start + 7]
    assert between.connections == before
    with pytest.raises(NotFound):
        behind.get("none")
    behind.get("k")
    assert between.connections == before, "an answered refusal breaks nothing"
    behind.read_into("k", 0, bytearray(10), fresh=True)
    assert between.connections == before + 1


def test_threads_share_as_many_connections_as_they_are(between: Proxy, behind: S3Store) -> None:
    behind.put("k", DATA)
    before = between.connections

    def read(start: int) -> bool:
        buffer = bytearray(5000)
        behind.read_into("k", start, buffer)
        return bytes(buffer) == DATA[start : start + 5000]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(0, 200_000, 999)))
    assert between.connections - before <= 8


def test_one_signature_serves_the_ranges_of_an_object_for_a_while(
    keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = Login("s3://eyas/x", "eyas")
    path, headers = login.sign("x/a b")
    assert path == "/x/a%20b"
    assert login.sign("x/a b")[1] is headers
    assert login.sign("x/c")[1] is not headers
    assert {name.lower() for name in headers} == {
        *("x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "authorization")
    }
    monkeypatch.setattr(s3_access, "SIGNED_SECONDS", -1)
    fresh = Login("s3://eyas/x", "eyas")
    assert fresh.sign("x/c")[1] is not fresh.sign("x/c")[1]


def test_no_log_holds_a_secret(
    between: Proxy, behind: S3Store, seaweed: Seaweed, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even with everybody's debug log switched on."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "eyas")
    behind.put("k", DATA)
    between.faults += [
        Fault("GET", "/k", "reset in body", after=1000),
        Fault("GET", "/k", "slow down"),
        Fault("GET", "/k", "expired token"),
    ]
    assert behind.get("k") == DATA
    assert "broke off after 1000 bytes (ConnectionResetError)" in caplog.text
    for secret in (seaweed.access_key, seaweed.secret_key, "Signature=", "AWS4-HMAC"):
        assert secret not in caplog.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1, signed by nobody but itself."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """A server that speaks TLS and has one object for every key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with answering(lambda request: request.reply(200, DATA), context) as place:
        yield f"https://{place}"


def test_the_certificates_to_trust_come_from_the_environment(
    keys: None, secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", secure)
    with pytest.raises(StoreError, match=r"certificate of https.* is not trusted.*AWS_CA_BUNDLE"):
        S3Store("s3://eyas/x").get("k")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.with_suffix(".crt")))
    assert S3Store("s3://eyas/x").get("k") == DATA


def test_a_read_goes_through_the_proxy_that_the_environment_names(
    keys: None, secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, str | None]] = []

    def answer(request: Request) -> None:
        login = request.headers["Proxy-Authorization"]
        asked.append((request.path, request.headers["Host"], login))
        request.reply(200, DATA)

    with answering(answer) as place:
        monkeypatch.setenv("http_proxy", f"http://user:word@{place}")
        monkeypatch.setenv("https_proxy", place)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.invalid:8080")
        assert S3Store("s3://eyas/x").get("k") == DATA
        login = "Basic dXNlcjp3b3Jk"
        assert asked == [("http://store.invalid:8080/eyas/x/k", "store.invalid:8080", login)]

        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.with_suffix(".crt")))
        monkeypatch.setenv("AWS_ENDPOINT_URL", secure)
        assert S3Store("s3://eyas/x").get("k") == DATA
        assert len(asked) == 1, "the tunnel is the server's"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert S3Store("s3://eyas/x").get("k") == DATA, "past a proxy that is gone"
