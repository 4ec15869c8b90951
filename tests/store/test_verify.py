"""`verify` finds every damaged byte that somebody vouches for, and names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    commit_manifest,
    dump_json,
    identity,
    put_object,
    seal,
    verify,
)

BIG = bytes(range(256)) * (9 << 12)  # 9 MiB: more than a block


def _fill(store: Store) -> None:
    """A store with a little of everything that vouches."""
    for room in ("sources", "corpus"):
        refs = (
            put_object(store, f"{room}/x-00000", room.encode()),
            put_object(store, f"{room}/x-00001", BIG),
        )
        commit_manifest(store, Manifest(room, identity(room), objects=refs))
    shard = put_object(store, "corpus/extract/1", b"extracted")
    store.put("work/corpus.extract/ab.json", seal({"stage": "s", "objects": [shard]}))
    store.put("data/plan-000001.json", seal({"format": 1}))
    store.put("checkpoints/attempts/000001", seal({"attempt": 1}))
    store.put("corpus/removals/000001.json", seal({"urls": []}))
    store.put("eval/000000000010-1.json", seal({"languages": []}))
    tensors = put_object(store, "checkpoints/data/ab/id/00000-0.safetensors", BIG[:1000])
    body = {"objects": [dataclasses.asdict(tensors) | {"later": "fields"}]}
    index = put_object(store, "checkpoints/data/ab/id/00000.index.json", dump_json(body))
    store.put("checkpoints/commits/000001-000000000010.json", seal({"indexes": [index]}))
    store.put("metrics/000001/000000000000.jsonl", b"nobody vouches for this\n")


def test_a_whole_store_has_no_problem(store: Store) -> None:
    _fill(store)
    seen: list[int] = []
    report = verify(store, seen.append)
    assert report.ok
    assert (report.problems, report.notes) == ([], [])
    assert report.objects == 2 + 4 + 2 + 3 + 1 + 1 + 1 + 1
    assert report.bytes == sum(seen)
    assert report.bytes > 2 * len(BIG)


def test_an_empty_store_has_no_problem(folder_store: Store) -> None:
    report = verify(folder_store)
    assert (report.objects, report.bytes, report.problems) == (0, 0, [])


VOUCHED = [
    "corpus/x-00000",
    "corpus/x-00001",
    "corpus/extract/1",
    "corpus/manifest-000001.json",
    "corpus/removals/000001.json",
    "work/corpus.extract/ab.json",
    "data/plan-000001.json",
    "eval/000000000010-1.json",
    "checkpoints/attempts/000001",
    "checkpoints/data/ab/id/00000-0.safetensors",
    "checkpoints/data/ab/id/00000.index.json",
    "checkpoints/commits/000001-000000000010.json",
]


def _flip_last(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize("key", VOUCHED)
@pytest.mark.parametrize("damage", [_flip_last, lambda d: d[:-1], lambda d: d + b"x"])
def test_a_damaged_object_is_the_one_problem(
    folder_store: Store, key: str, damage: Callable[[bytes], bytes]
) -> None:
    _fill(folder_store)
    folder_store.put(key, damage(folder_store.get(key)))
    report = verify(folder_store)
    assert len(report.problems) == 1
    assert key in report.problems[0]
    assert not report.ok


def test_a_flipped_byte_is_found_on_both_kinds(store: Store) -> None:
    _fill(store)
    for key in ("corpus/x-00001", "checkpoints/data/ab/id/00000-0.safetensors"):
        store.put(key, _flip_last(store.get(key)))
    report = verify(store)
    assert len(report.problems) == 2
    checkpoint, corpus = sorted(report.problems)
    assert checkpoint.startswith("checkpoints/data/ab/id/00000-0.safetensors is damaged: CRC32C")
    assert corpus.startswith("corpus/x-00001 is damaged: CRC32C")
    assert corpus.endswith("named by corpus/manifest-000001.json")


@pytest.mark.parametrize(
    "key",
    [
        "corpus/x-00000",
        "checkpoints/data/ab/id/00000-0.safetensors",
        "checkpoints/data/ab/id/00000.index.json",
    ],
)
def test_a_missing_object_is_named_with_who_vouches(folder_store: Store, key: str) -> None:
    _fill(folder_store)
    folder_store.delete([key])
    (problem,) = verify(folder_store).problems
    assert problem.startswith(f"{key} is missing, named by c")


def test_what_only_the_ledger_names_may_be_gone(folder_store: Store) -> None:
    _fill(folder_store)
    folder_store.delete(["corpus/extract/1"])
    report = verify(folder_store)
    assert report.problems == []
    assert report.notes == ["corpus/extract/1 is missing, named by work/corpus.extract/ab.json"]


def test_what_was_superseded_is_only_noted(folder_store: Store) -> None:
    _fill(folder_store)
    kept = put_object(folder_store, "corpus/x-00000", b"written anew")
    new = put_object(folder_store, "corpus/y-00000", b"new")
    commit_manifest(folder_store, Manifest("corpus", identity("new"), objects=(kept, new)))
    folder_store.delete(["corpus/x-00001"])
    report = verify(folder_store)
    assert report.problems == []
    assert len(report.notes) == 2
    superseded, gone = sorted(report.notes)
    assert superseded.startswith("corpus/x-00000 as corpus/manifest-000001.json names it")
    assert gone == "corpus/x-00001 is missing, named by corpus/manifest-000001.json"
    folder_store.delete(["corpus/y-00000"])
    assert verify(folder_store).problems == [
        "corpus/y-00000 is missing, named by corpus/manifest-000002.json"
    ]


def test_a_missing_part_of_a_large_manifest_is_named(folder_store: Store) -> None:
    refs = tuple(ObjectRef(f"corpus/{n:06d}", 0, "00000000") for n in range(10_001))
    commit_manifest(folder_store, Manifest("corpus", "id", objects=refs))
    part = next(o.key for o in folder_store.list("corpus/manifest-parts/"))
    folder_store.delete([part])
    (problem,) = verify(folder_store).problems
    assert problem == f"{part} is missing, named by corpus/manifest-000001.json"


def test_a_sealed_object_that_is_something_else_is_a_problem(folder_store: Store) -> None:
    folder_store.put("checkpoints/commits/000001-000000000001.json", seal({"no": "indexes"}))
    folder_store.put("corpus/manifest-000001.json", seal({"format": 1, "objects": []}))
    report = verify(folder_store)
    assert len(report.problems) == 2
    assert all("is not what its name says" in p for p in report.problems)
