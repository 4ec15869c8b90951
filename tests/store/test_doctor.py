"""`doctor` tells a good store from one that breaks a promise."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.faults import proxy
from tests.seaweed import Seaweed

import eyas.store
from eyas.store import Finding, ObjectInfo, Store, doctor, open_store
from eyas.store.folder import FolderStore

NAMES = [
    *("write and read", "endpoint", "clock", "read your writes", "conditional race"),
    *("ambiguous put", "checksum", "ranges", "listing", "multipart", "speed"),
]


def test_a_good_store_keeps_every_promise_and_is_left_clean(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["eyas.store.doctor"], "ROUNDS", 4)
    store.put("mine", b"")
    findings = {f.name: f for f in doctor(store)}
    assert list(findings) == NAMES
    assert [f for f in findings.values() if not f.ok] == []
    assert all(f.detail for f in findings.values())
    assert [o.key for o in store.list()] == ["mine"]
    own_order = "order of its own; Eyas sorts" in findings["listing"].detail
    assert own_order == store.url.startswith("s3://"), "SeaweedFS has one, a folder has none"


def _module(name: str, store: Store) -> Finding:
    """One check on its own."""
    found = sys.modules["eyas.store.doctor"]
    check = getattr(found, "_" + name)
    return found._try(name, lambda: check(store, "doctor/alone/"))  # type: ignore[no-any-return]


class _Everyone(FolderStore):
    """Ignores the condition, as some servers do."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


class _Nobody(FolderStore):
    """Does not settle what was applied and lost."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self.stat(key) is None and super().put_if_absent(key, data)


class _Stale(FolderStore):
    """Lists what was deleted."""

    gone: tuple[ObjectInfo, ...] = ()

    def delete(self, keys: Iterable[str]) -> None:
        kept = list(keys)
        self.gone += tuple(i for i in map(self.stat, kept) if i)
        super().delete(kept)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from super().list(prefix)
        yield from (i for i in self.gone if i.key.startswith(prefix))


class _Unsorted(FolderStore):
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from sorted(super().list(prefix), key=lambda i: i.key.split("/"))


class _OnePage(FolderStore):
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for _, info in zip(range(1000), super().list(prefix), strict=False):
            yield info


class _Lenient(FolderStore):
    """Answers a range past the end with what there is."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]


class _Wrong(FolderStore):
    def get_range(self, key: str, start: int, length: int) -> bytes:
        return super().get_range(key, start, length)[::-1]


class _Partial(FolderStore):
    """Publishes what came before an exception, as some clients do."""

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        got: list[bytes] = []
        try:
            got.extend(chunks)
        finally:
            super().put_chunks(key, got)
        return sum(map(len, got))


class _Flipping(FolderStore):
    def get(self, key: str) -> bytes:
        data = super().get(key)
        return data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 10_000 else data


class _Ahead(FolderStore):
    def stat(self, key: str) -> ObjectInfo | None:
        info = super().stat(key)
        return replace(info, modified=info.modified + 3600) if info else None


BROKEN = [
    (_Everyone, "race", "of 16 racers won"),
    (_Everyone, "ambiguous", "replaced an object"),
    (_Nobody, "ambiguous", "came back as lost"),
    (_Stale, "read_your_writes", "deleted object is still listed"),
    (_Unsorted, "listing", "not listed in byte order"),
    (_OnePage, "listing", "112 of 1112 keys are not listed"),
    (_Lenient, "ranges", "2 bytes from 99999 of 100000 were answered"),
    (_Wrong, "ranges", "differ"),
    (_Partial, "multipart", "interrupted put is visible"),
    (_Flipping, "multipart", "read with other bytes"),
    (_Flipping, "speed", "read with other bytes"),
    (_Ahead, "clock", "3600 s ahead of ours; set the time"),
]


@pytest.mark.parametrize(("kind", "check", "seen"), BROKEN)
def test_a_broken_promise_is_found(tmp_path: Any, kind: Any, check: str, seen: str) -> None:
    finding = _module(check, kind(tmp_path))
    assert not finding.ok
    assert seen in finding.detail


def test_a_server_that_takes_damaged_bytes_is_found(
    s3_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers do that do not know the checksum's header."""

    def forget(request: Any, **_: Any) -> None:
        del request.headers["x-amz-checksum-crc32c"]

    s3_store.client.meta.events.register("before-sign.s3.PutObject", forget)  # type: ignore[attr-defined]
    finding = _module("checksum", s3_store)
    assert not finding.ok
    assert "a wrong CRC32C were taken" in finding.detail


def test_requests_that_go_elsewhere_are_found(
    s3_store: Store, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(seaweed.endpoint) as between:
        monkeypatch.setattr(type(s3_store), "endpoint", between.endpoint)
        finding = _module("endpoint", s3_store)
    assert not finding.ok
    assert f"{between.endpoint} is configured" in finding.detail


def test_a_store_that_cannot_be_written_has_one_finding_that_says_why(seaweed: Seaweed) -> None:
    (finding,) = doctor(open_store("s3://no-such-bucket/x"))
    assert not finding.ok
    assert "there is no bucket no-such-bucket" in finding.detail


def test_the_names_that_the_room_hands_out_are_functions() -> None:
    """`doctor`, `verify` and `status` are modules too."""
    assert all(callable(getattr(eyas.store, name)) for name in ("doctor", "verify", "status"))
