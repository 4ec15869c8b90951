"""Manifests: written last, versioned, vouching for every byte."""

from __future__ import annotations

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.store import (
    Corrupt,
    Manifest,
    NotFound,
    ObjectRef,
    Store,
    StoreError,
    commit_manifest,
    crc32c,
    dump_json,
    identity,
    manifest_versions,
    open_store,
    put_object,
    put_object_chunks,
    read_manifest,
    read_object,
    seal,
    unseal,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def _manifest(store: Store, content: bytes = b"data", **changes: object) -> Manifest:
    ref = put_object(store, f"corpus/{crc32c(content):08x}", content, rows=3)
    base = Manifest(
        room="corpus",
        identity=identity("corpus", 1),
        recipe="ab12",
        code="v1",
        inputs=(ObjectRef("sources/x", 5, "00000000"),),
        objects=(ref,),
        counters={"pages_in": 7, "share": 0.5},
        facts={"funnel": [{"stage": "language", "in": 7}], "name": "عرب"},
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_what_was_committed_is_read(store: Store) -> None:
    assert read_manifest(store, "corpus") is None
    committed = commit_manifest(store, _manifest(store))
    assert committed.version == 1
    assert committed.created.endswith("Z")
    assert read_manifest(store, "corpus") == committed
    assert read_manifest(open_store(store.url), "corpus", 1) == committed
    assert read_manifest(store, "corpus", 2) is None
    assert read_manifest(store, "tokens") is None
    assert committed.under("corpus/") == committed.objects
    assert committed.under("tokens/") == ()


def test_versions_grow_and_history_stays(store: Store) -> None:
    first = commit_manifest(store, _manifest(store, b"one"))
    second = commit_manifest(store, _manifest(store, b"two", identity=identity("other")))
    assert (first.version, second.version) == (1, 2)
    assert read_manifest(store, "corpus") == second
    assert read_manifest(store, "corpus", 1) == first
    assert manifest_versions(store, "corpus") == [1, 2]


def test_the_same_again_is_no_new_version(store: Store) -> None:
    first = commit_manifest(store, _manifest(store))
    assert commit_manifest(store, _manifest(store)) == first
    assert commit_manifest(store, _manifest(store, b"other bytes")).version == 2


def test_racing_committers_of_the_same_agree_on_one_version(store: Store) -> None:
    wanted = _manifest(store)
    start = threading.Barrier(8)

    def commit(_: int) -> Manifest:
        start.wait()
        return commit_manifest(store, wanted)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(commit, range(8)))
    assert {m.version for m in results} == {1}
    assert manifest_versions(store, "corpus") == [1]


def test_racing_committers_of_different_things_get_a_version_each(store: Store) -> None:
    start = threading.Barrier(6)

    def commit(n: int) -> Manifest:
        mine = _manifest(store, b"%d" % n, identity=identity(n))
        start.wait()
        return commit_manifest(store, mine)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(commit, range(6)))
    assert sorted(m.version for m in results) == [1, 2, 3, 4, 5, 6]
    for m in results:
        assert read_manifest(store, "corpus", m.version) == m


def test_version_numbers_sort_as_numbers(folder_store: Store) -> None:
    commit_manifest(folder_store, _manifest(folder_store))
    sealed = folder_store.get("corpus/manifest-000001.json")
    for name in ("999999", "1000000", "notes", "0002"):
        folder_store.put(f"corpus/manifest-{name}.json", sealed)
    assert manifest_versions(folder_store, "corpus") == [1, 999_999, 1_000_000]


def test_a_manifest_of_many_objects_is_read_in_parts(store: Store) -> None:
    refs = tuple(ObjectRef(f"corpus/{n:06d}", n, f"{n:08x}", n) for n in range(25_000))
    committed = commit_manifest(store, _manifest(store, objects=refs))
    assert read_manifest(store, "corpus") == committed
    assert committed.objects == refs
    head = store.stat("corpus/manifest-000001.json")
    assert head is not None
    assert head.size < 2000
    parts = [o.key for o in store.list("corpus/manifest-parts/")]
    assert len(parts) == 3
    assert commit_manifest(store, _manifest(store, objects=refs)) == committed


def test_a_damaged_or_missing_part_is_named(folder_store: Store) -> None:
    refs = tuple(ObjectRef(f"corpus/{n:06d}", n, f"{n:08x}") for n in range(10_001))
    commit_manifest(folder_store, _manifest(folder_store, objects=refs))
    part = next(o.key for o in folder_store.list("corpus/manifest-parts/"))
    data = folder_store.get(part)
    folder_store.put(part, data.replace(b"1", b"2", 1))
    with pytest.raises(Corrupt, match=part):
        read_manifest(folder_store, "corpus")
    folder_store.delete([part])
    with pytest.raises(NotFound, match=part):
        read_manifest(folder_store, "corpus")


def test_a_damaged_manifest_is_named_and_healed_by_the_next_commit(store: Store) -> None:
    commit_manifest(store, _manifest(store))
    key = "corpus/manifest-000001.json"
    store.put(key, store.get(key).replace(b"ab12", b"ab13"))
    with pytest.raises(Corrupt, match=f"{key} is damaged .*eyas verify"):
        read_manifest(store, "corpus")
    again = commit_manifest(store, _manifest(store))
    assert again.version == 2
    assert read_manifest(store, "corpus") == again


def test_a_manifest_of_another_format_is_refused(folder_store: Store) -> None:
    folder_store.put("corpus/manifest-000001.json", seal({"format": 2}))
    with pytest.raises(StoreError, match="another format"):
        read_manifest(folder_store, "corpus")


def test_a_damaged_object_is_named_with_both_checksums(store: Store) -> None:
    ref = put_object(store, "corpus/a", b"some bytes")
    assert read_object(store, ref) == b"some bytes"
    for damaged in (b"some byteS", b"some byte", b"some bytes "):
        store.put("corpus/a", damaged)
        with pytest.raises(Corrupt, match=ref.crc32c) as caught:
            read_object(store, ref)
        assert "corpus/a" in str(caught.value)
        assert f"{crc32c(damaged):08x}" in str(caught.value)


@given(st.lists(st.binary(max_size=40)))
def test_a_reference_vouches_for_all_chunks(chunks: list[bytes]) -> None:
    kept: dict[str, bytes] = {}

    class Memory:
        def put_chunks(self, key: str, pieces: object) -> int:
            kept[key] = b"".join(pieces)  # type: ignore[call-overload]
            return len(kept[key])

    ref = put_object_chunks(Memory(), "k", chunks, rows=2)  # type: ignore[arg-type]
    whole = b"".join(chunks)
    assert ref == ObjectRef("k", len(whole), f"{crc32c(whole):08x}", 2)
    assert kept["k"] == whole


def test_the_checksum_is_castagnolis() -> None:
    """The check value of CRC-32C, and RFC 3720 B.4's 32 zero bytes."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@given(st.binary(max_size=100), st.integers(0, 100))
def test_a_checksum_may_be_taken_in_pieces_of_any_kind(data: bytes, cut: int) -> None:
    whole = crc32c(data)
    assert crc32c(data[cut:], crc32c(data[:cut])) == whole
    assert crc32c(bytearray(data)) == whole
    assert crc32c(memoryview(data)) == whole


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON, max_size=5), st.data())
def test_any_changed_byte_of_a_sealed_object_is_found(body: dict, data: st.DataObject) -> None:
    store = open_store("/nowhere")
    sealed = seal(body)
    assert unseal(store, "k", sealed) == json.loads(dump_json(body))
    at = data.draw(st.integers(0, len(sealed) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = sealed[:at] + bytes([sealed[at] ^ flip]) + sealed[at + 1 :]
    with pytest.raises(Corrupt, match="k is damaged"):
        unseal(store, "k", damaged)
    with pytest.raises(Corrupt):
        unseal(store, "k", sealed[:at])


def test_text_of_any_kind_can_be_sealed() -> None:
    body = {"broken": "\ud800", "nul": "\x00", "arabic": "مرحبا", "emoji": "🦅"}
    assert unseal(open_store("/nowhere"), "k", seal(body)) == body


def test_an_identity_depends_on_content_only() -> None:
    ref = ObjectRef("k", 1, "00000000")
    assert identity({"b": 1, "a": ref}) == identity({"a": dataclasses.asdict(ref), "b": 1})
    assert identity(1, 2) != identity([1, 2]) != identity("12")
