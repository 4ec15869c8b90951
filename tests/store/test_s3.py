"""What only S3 has to promise: answers that are lost, bodies that break, errors as sentences."""

from __future__ import annotations

import functools
import http.server
import io
import logging
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from hypothesis import given
from hypothesis import strategies as st
from tests.faults import Fault, Proxy
from tests.seaweed import Seaweed

from eyas.store import NotFound, Store, StoreError, open_store, s3_upload
from eyas.store.s3 import S3Store
from eyas.store.s3_access import Login
from eyas.store.s3_list import ordered
from eyas.store.s3_upload import checksum

MIB = 1 << 20


@pytest.mark.parametrize("lost", [1, 3])
def test_a_conditional_put_applied_then_reset_is_a_success(
    between: Proxy, behind: S3Store, lost: int
) -> None:
    between.faults.append(Fault("PUT", "/commit", "lost answer", times=lost))
    assert behind.put_if_absent("commit", b"ours")
    assert len(between.sent("PUT", "/commit")) == lost + 1, "the fault did happen"
    assert behind.get("commit") == b"ours"


def test_a_conditional_put_that_lost_and_was_reset_is_a_loss(
    between: Proxy, behind: S3Store
) -> None:
    behind.put("commit", b"theirs")
    between.faults.append(Fault("PUT", "/commit", "lost answer"))
    assert not behind.put_if_absent("commit", b"ours")
    assert behind.get("commit") == b"theirs"


def test_a_put_applied_then_reset_is_put_once_more(between: Proxy, behind: S3Store) -> None:
    between.faults.append(Fault("PUT", "/k", "lost answer"))
    behind.put("k", b"data")
    assert len(between.sent("PUT", "/k")) == 2
    assert behind.get("k") == b"data"


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_parts_and_completions_survive_resets(between: Proxy, behind: S3Store, method: str) -> None:
    between.faults.append(Fault(method, "uploadId=", "lost answer", times=2))
    data = bytes(range(256)) * (40 * MIB // 256)
    assert behind.put_chunks("k", [data]) == len(data)
    assert between.faults[0].times == 0, "the faults did happen"
    assert behind.get("k") == data
    assert behind.unfinished_uploads("") == 0


def test_a_body_that_breaks_is_read_again_from_the_same_version(
    between: Proxy, behind: S3Store
) -> None:
    data = bytes(range(256)) * 4096
    behind.put("k", data)
    between.faults.append(Fault("GET", "/k", "reset in body", times=2, after=100_000))
    assert behind.get("k") == data
    first, second, third = between.sent("GET", "/k")
    assert "if-match" not in first
    info = behind.stat("k")
    assert info is not None
    assert second["if-match"] == third["if-match"] == f'"{info.etag}"'


def test_a_range_that_breaks_is_read_again(between: Proxy, behind: S3Store) -> None:
    data = bytes(range(256)) * 4096
    behind.put("k", data)
    between.faults.append(Fault("GET", "/k", "reset in body", after=1000))
    assert behind.get_range("k", 5, 500_000) == data[5:500_005]
    assert len(between.sent("GET", "/k")) == 2


def test_an_object_replaced_while_it_breaks_is_read_whole_in_its_new_state(
    between: Proxy, behind: S3Store, seaweed: Seaweed
) -> None:
    old, new = b"a" * 300_000, b"b" * 200_000
    behind.put("k", old)
    between.faults.append(
        Fault("GET", "/k", "reset in body", after=1000, then=lambda: behind.put("k", new))
    )
    assert behind.get("k") == new


def test_a_body_that_always_breaks_is_an_error(
    between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    store = S3Store(f"s3://eyas/{uuid.uuid4().hex}")
    store.put("k", bytes(300_000))
    between.faults.append(Fault("GET", "/k", "reset in body", times=99, after=10))
    with pytest.raises(StoreError, match="cannot get k"):
        store.get("k")
    assert len(between.sent("GET", "/k")) == 2


def test_the_server_verifies_what_is_put(between: Proxy, behind: S3Store) -> None:
    """Each put carries our checksum, and the server refuses bytes that do not match one."""
    behind.put("k", b"data")
    assert between.sent("PUT", "/k")[0]["x-amz-checksum-crc32c"] == checksum(b"data")
    behind.put_chunks("p", [bytes(20 * MIB)])
    parts = [h for h in between.sent("PUT", "/p") if "x-amz-checksum-crc32c" in h]
    assert len(parts) == 2
    with pytest.raises(Exception, match="BadDigest"):
        behind.client.put_object(
            **behind.address("bad"), Body=b"data", ChecksumCRC32C=checksum(b"dato")
        )
    assert behind.stat("bad") is None


def test_buckets_are_addressed_by_path_on_a_custom_endpoint(
    between: Proxy, behind: S3Store
) -> None:
    behind.put("k", b"")
    assert behind.endpoint == between.endpoint
    assert all(path.startswith("/eyas/") for _, path, _ in between.requests)


def test_the_special_variable_for_s3_goes_first(
    between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", between.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    store = S3Store(f"s3://eyas/{uuid.uuid4().hex}")
    store.put("k", b"")
    assert store.endpoint == between.endpoint


@pytest.mark.parametrize(
    ("given_region", "used"), [("eu-north-1", "eu-north-1"), (None, "us-east-1")]
)
def test_the_region_comes_from_the_environment(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, given_region: str | None, used: str
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    if given_region:
        monkeypatch.setenv("AWS_REGION", given_region)
    assert S3Store("s3://eyas/x").client.meta.region_name == used


def test_amazon_needs_no_endpoint(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert S3Store("s3://bucket/run").endpoint == "https://s3.eu-north-1.amazonaws.com"
    bases = [Login(f"s3://{name}/run", name).base for name in ("bucket", "dotted.name")]
    assert bases[0] == "https://bucket.s3.eu-north-1.amazonaws.com/"
    assert bases[1] == "https://s3.eu-north-1.amazonaws.com/dotted.name/"


@functools.cache
def _open_once(url: str) -> Store:
    return open_store(url)


def _with_environment(monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> None:
    for name, value in changes.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


def _closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://user:sesame@127.0.0.1:{probe.getsockname()[1]}"


CASES: dict[str, tuple[dict[str, str | None], str, str]] = {
    "wrong secret": (
        {"AWS_SECRET_ACCESS_KEY": "sesame-wrong"},
        "s3://eyas/x",
        "refuses these credentials .*SignatureDoesNotMatch",
    ),
    "unknown key": (
        {"AWS_ACCESS_KEY_ID": "sesame-unknown"},
        "s3://eyas/x",
        "refuses these credentials .*InvalidAccessKeyId",
    ),
    "no credentials": (
        {
            "AWS_ACCESS_KEY_ID": None,
            "AWS_SECRET_ACCESS_KEY": None,
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "AWS_CONFIG_FILE": "/nonexistent",
        },
        "s3://eyas/x",
        "no usable credentials .*AWS_ACCESS_KEY_ID",
    ),
    "half credentials": (
        {"AWS_SECRET_ACCESS_KEY": None},
        "s3://eyas/x",
        "no usable credentials",
    ),
    "no such profile": ({"AWS_PROFILE": "nowhere"}, "s3://eyas/x", "AWS_PROFILE"),
    "no bucket": ({}, "s3://no-such-bucket/x", "there is no bucket no-such-bucket at http"),
    "nobody answers": ({"AWS_ENDPOINT_URL": "CLOSED"}, "s3://eyas/x", "does not answer"),
    "no TLS there": ({"AWS_ENDPOINT_URL": "TLS"}, "s3://eyas/x", "does not answer .SSLError"),
    "no endpoint": ({"AWS_ENDPOINT_URL": "sesame"}, "s3://eyas/x", "AWS_ENDPOINT_URL"),
    "no such certificates": (
        {"AWS_CA_BUNDLE": "/nonexistent"},
        "s3://eyas/x",
        "AWS_CA_BUNDLE .* is /nonexistent, which is no file or folder of certificates",
    ),
    "no certificates in it": ({"AWS_CA_BUNDLE": __file__}, "s3://eyas/x", "AWS_CA_BUNDLE"),
    "path of an endpoint": (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1/some/path/"},
        "s3://eyas/x",
        "http://127.0.0.1:1/some/path does not answer",
    ),
    "tries": ({"AWS_MAX_ATTEMPTS": "none"}, "s3://eyas/x", "AWS_MAX_ATTEMPTS"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_a_sentence_without_credentials(
    case: str,
    seaweed: Seaweed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes, url, sentence = CASES[case]
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    _with_environment(monkeypatch, **changes)
    if changes.get("AWS_ENDPOINT_URL") == "CLOSED":
        monkeypatch.setenv("AWS_ENDPOINT_URL", _closed_port())
    if changes.get("AWS_ENDPOINT_URL") == "TLS":
        monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.endpoint.replace("http:", "https:"))
    for call in (
        lambda s: s.get("k"),
        lambda s: s.get_range("k", 0, 1),
        lambda s: s.read_into("k", 0, bytearray(1)),
        lambda s: s.put("k", b""),
        lambda s: s.put_if_absent("k", b""),
        lambda s: s.put_chunks("k", [bytes(16 * MIB)]),
        lambda s: list(s.list()),
        lambda s: s.delete(["k"]),
    ):
        with pytest.raises(StoreError, match=sentence) as caught:
            call(_open_once(url))
        assert not isinstance(caught.value, NotFound)
        said = f"{caught.value} {caught.value!r} {caplog.text}"
        for secret in ("sesame", seaweed.access_key, seaweed.secret_key):
            assert secret not in said
        assert "\n" not in str(caught.value)
    _open_once.cache_clear()


def test_a_missing_bucket_is_not_a_missing_object(seaweed: Seaweed) -> None:
    with pytest.raises(StoreError, match="there is no bucket no-such-bucket"):
        open_store("s3://no-such-bucket/x").stat("k")


def test_a_listing_that_is_not_found_is_not_a_missing_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What answers may be no S3 server at all; nothing that expects NotFound may take it for an
    empty listing."""

    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _with_environment(
            monkeypatch,
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_port}",
            AWS_ACCESS_KEY_ID="k",
            AWS_SECRET_ACCESS_KEY="s",
        )
        with pytest.raises(StoreError, match="there is no bucket eyas at http") as caught:
            list(open_store("s3://eyas/x").list())
        assert not isinstance(caught.value, NotFound)
        server.shutdown()


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "s3://key:sesame@bucket/x", "s3://bucket?x=sesame/x"]
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreError, match="write s3://bucket/prefix") as caught:
        open_store(url)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://b-c/a/b/", "s3://b-c/a/b"),
    ],
)
def test_the_url_is_normalised(seaweed: Seaweed, url: str, normal: str) -> None:
    assert open_store(url).url == normal


def test_stores_in_one_bucket_do_not_see_each_other(seaweed: Seaweed) -> None:
    name = uuid.uuid4().hex
    one, other = open_store(f"s3://eyas/{name}/run"), open_store(f"s3://eyas/{name}/run2")
    one.put("k", b"1")
    other.put("k", b"2")
    assert [o.key for o in one.list()] == ["k"]
    assert one.get("k") == b"1"
    whole = open_store(f"s3://eyas/{name}")
    assert [o.key for o in whole.list()] == ["run/k", "run2/k"]


def test_importing_the_store_is_light() -> None:
    code = (
        "import sys, eyas.store\n"
        "heavy = {'botocore', 's3transfer', 'urllib3', 'torch', 'numpy', 'pyarrow', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


NAMES = st.lists(st.text("ab-./ ~é", min_size=1, max_size=5), min_size=1, max_size=60)


@given(NAMES, st.text("ab-/", max_size=3), st.integers(1, 20), st.booleans())
def test_a_listing_is_in_byte_order_whatever_the_servers_order(
    names: list[str], prefix: str, window: int, by_part: bool
) -> None:
    keys = {name for name in names if not name.endswith("/")}
    order = (lambda k: [p.encode() for p in k.split("/")]) if by_part else str.encode
    found = [i.key for i in ordered(_server(sorted(keys, key=order)), prefix, window)]
    assert found == sorted((k for k in keys if k.startswith(prefix)), key=str.encode)


def _server(keys: list[str]) -> Any:
    """Answers as ListObjectsV2 does, seven entries a page, in the order of `keys`."""

    def pages(prefix: str, delimiter: str) -> Iterator[dict[str, Any]]:
        entries: list[tuple[str, str]] = []
        for key in (k for k in keys if k.startswith(prefix)):
            head, slash, _ = key[len(prefix) :].partition("/")
            folded = ("Prefix", prefix + head + "/") if delimiter and slash else ("Key", key)
            if folded not in entries:
                entries.append(folded)
        for start in range(0, len(entries) or 1, 7):
            page = entries[start : start + 7]
            at = datetime.now(UTC)
            yield {
                "Contents": [
                    {"Key": k, "Size": 1, "LastModified": at} for t, k in page if t == "Key"
                ],
                "CommonPrefixes": [{"Prefix": k} for t, k in page if t == "Prefix"],
            }

    return pages


class _Answer(io.BytesIO):
    def stream(self, *_: object) -> Iterator[bytes]:
        yield self.getvalue()


def _answer_once(store: S3Store, event: str, status: int, code: str) -> list[str]:
    """The server's next answer to that request, without asking it; returns the URLs so answered."""
    answered: list[str] = []

    def answer(request: Any, **_: Any) -> AWSResponse | None:
        if answered:
            return None
        answered.append(request.url)
        body = f"<Error><Code>{code}</Code></Error>".encode()
        return AWSResponse(request.url, status, {}, _Answer(body))

    store.client.meta.events.register(f"before-send.s3.{event}", answer)
    return answered


def test_a_conditional_put_beside_another_is_tried_again(s3_store: S3Store) -> None:
    answered = _answer_once(s3_store, "PutObject", 409, "ConditionalRequestConflict")
    assert s3_store.put_if_absent("k", b"ours")
    assert len(answered) == 1
    assert s3_store.get("k") == b"ours"


def test_an_answer_without_a_sentence_of_its_own_gives_its_code(s3_store: S3Store) -> None:
    _answer_once(s3_store, "PutObject", 501, "NotImplemented")
    with pytest.raises(StoreError, match=r"cannot put k: http.* answered NotImplemented"):
        s3_store.put("k", b"")


def _refuse_deletes(store: S3Store, code: str, times: int) -> list[list[str]]:
    """Keys asked to be deleted, by request; the first of each of `times` requests is refused."""
    asked: list[list[str]] = []

    def see(params: dict[str, Any], **_: Any) -> None:
        asked.append([o["Key"] for o in params["Delete"]["Objects"]])

    def refuse(parsed: dict[str, Any], **_: Any) -> None:
        if len(asked) <= times:
            parsed["Errors"] = [{"Key": asked[-1][0], "Code": code}]

    store.client.meta.events.register("provide-client-params.s3.DeleteObjects", see)
    store.client.meta.events.register("after-call.s3.DeleteObjects", refuse)
    return asked


def test_deletes_go_in_batches_and_what_passes_is_tried_again(s3_store: S3Store) -> None:
    for key in ("a", "b"):
        s3_store.put(key, b"")
    asked = _refuse_deletes(s3_store, "SlowDown", 1)
    s3_store.delete(["a", "b", *(f"none/{n}" for n in range(1500))])
    assert list(map(len, asked)) == [1000, 1, 502]
    assert list(s3_store.list()) == []


def test_a_refused_delete_is_an_error_that_names_the_key(s3_store: S3Store) -> None:
    asked = _refuse_deletes(s3_store, "AccessDenied", 9)
    with pytest.raises(StoreError, match=r"cannot delete 1 objects, .*/a among.* AccessDenied"):
        s3_store.delete(["a", "b"])
    assert len(asked) == 1


def test_an_object_of_too_many_parts_is_refused_and_leaves_nothing(
    s3_store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_upload, "MOST_PARTS", 2)
    with pytest.raises(StoreError, match="write several"):
        s3_store.put_chunks("k", [bytes(33 * MIB)])
    assert s3_store.stat("k") is None
    assert s3_store.unfinished_uploads("") == 0
