"""`status` says what is done, running and missing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from eyas.store import (
    Manifest,
    ObjectRef,
    RoomStatus,
    Store,
    commit_manifest,
    dump_json,
    put_object,
    seal,
    status,
)


def _rooms(store: Store) -> dict[str, RoomStatus]:
    return {row.room: row for row in status(store)}


def test_an_empty_store_misses_everything(store: Store) -> None:
    rows = status(store)
    assert [r.room for r in rows] == [
        *("sources", "corpus", "tokenizer", "tokens", "data", "train", "judge")
    ]
    assert {r.state for r in rows} == {"missing"}


def test_a_committed_room_is_done(store: Store) -> None:
    ref = put_object(store, "sources/a", bytes(2048))
    committed = commit_manifest(store, Manifest("sources", "id", objects=(ref,)))
    row = _rooms(store)["sources"]
    assert row == RoomStatus("sources", "done", "version 1: 1 objects, 2.00 KiB", committed.created)


def test_a_room_made_of_what_another_version_replaced_says_so(folder_store: Store) -> None:
    def commit(room: str, identity: str, *inputs: ObjectRef) -> None:
        commit_manifest(folder_store, Manifest(room, identity, inputs=inputs))

    commit("corpus", "one")
    commit("tokens", "of one", ObjectRef("corpus/manifest-000001.json", 0, ""))
    assert _rooms(folder_store)["tokens"].detail == "version 1: 0 objects, 0 B"
    commit("corpus", "two")
    made_of = "made of corpus version 1, not of the current 2"
    assert _rooms(folder_store)["tokens"].detail == f"version 1: 0 objects, 0 B; {made_of}"
    commit("corpus", "one")
    assert _rooms(folder_store)["tokens"].detail == "version 1: 0 objects, 0 B"


def test_a_damaged_manifest_is_named_and_the_other_rooms_are_told(folder_store: Store) -> None:
    for room in ("corpus", "tokenizer"):
        commit_manifest(folder_store, Manifest(room, "a"))
    key = "corpus/manifest-000001.json"
    folder_store.put(key, folder_store.get(key).replace(b"corpus", b"corpse"))
    rows = {row.room: row for row in status(folder_store)}
    assert rows["corpus"].state == "damaged"
    assert key in rows["corpus"].detail
    assert rows["tokenizer"].state == "done"


def test_a_room_with_finished_shards_and_no_manifest_is_running(folder_store: Store) -> None:
    for n in range(3):
        folder_store.put(f"work/corpus.extract/{n}.json", seal({"objects": []}))
    row = _rooms(folder_store)["corpus"]
    assert (row.state, row.detail) == ("running", "3 shards done")
    assert row.created.endswith("Z")
    assert _rooms(folder_store)["tokens"].state == "missing"


def test_plans_checkpoints_and_reports_are_counted(folder_store: Store) -> None:
    folder_store.put("data/plan-000001.json", seal({}))
    folder_store.put("data/plan-000002.json", seal({}))
    folder_store.put("checkpoints/commits/000001-000000000010.json", seal({}))
    folder_store.put("checkpoints/commits/000002-000000000005.json", seal({}))
    folder_store.put("eval/000000000010-1.json", seal({}))
    rows = _rooms(folder_store)
    assert (rows["data"].state, rows["data"].detail) == ("done", "data plan version 2")
    assert rows["train"].state == "done"
    assert rows["train"].detail == "2 checkpoints, the latest of step 5 in attempt 2"
    assert (rows["judge"].state, rows["judge"].detail) == ("done", "1 reports")


def test_a_fresh_heartbeat_means_running(folder_store: Store) -> None:
    def beat(host: str, state: str, step: int) -> None:
        folder_store.put(f"heartbeats/{host}.json", dump_json({"state": state, "step": step}))

    beat("a", "running", 7)
    beat("b", "stopping", 5)
    beat("c", "ended with 0", 9)
    folder_store.put("heartbeats/torn.json", b'{"state')
    row = _rooms(folder_store)["train"]
    assert (row.state, row.detail) == ("running", "0 checkpoints; 2 hosts at step 5")
    old = time.time() - 500
    for host in ("a", "b"):
        os.utime(Path(folder_store.url) / f"heartbeats/{host}.json", (old, old))
    assert _rooms(folder_store)["train"].state == "missing"


def test_rooms_whose_data_the_plan_reads_from_other_stores_are_elsewhere(
    folder_store: Store,
) -> None:
    def plan(version: int, *stores: str) -> None:
        segment = {"sources": [{"store": url} for url in stores]}
        folder_store.put(f"data/plan-{version:06d}.json", seal({"segments": [segment]}))

    plan(1, "s3://bucket/a", "s3://bucket/b", "s3://bucket/a")
    rows = _rooms(folder_store)
    for room in ("sources", "corpus", "tokens"):
        assert rows[room] == RoomStatus(room, "elsewhere", "in s3://bucket/a, s3://bucket/b")
    assert rows["tokenizer"].state == "missing"
    commit_manifest(folder_store, Manifest("corpus", "id"))
    assert _rooms(folder_store)["corpus"].state == "done"
    plan(2, "s3://bucket/a", "")
    assert _rooms(folder_store)["tokens"].state == "missing"
    plan(3, "s3://bucket/a")
    assert _rooms(folder_store)["tokens"].state == "elsewhere"
    folder_store.put("data/plan-000004.json", b"torn")
    assert _rooms(folder_store)["tokens"].state == "missing"
