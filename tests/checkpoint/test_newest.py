from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from tests.gloo import run_ranks

from eyas.checkpoint import (
    CheckpointError,
    CommitInfo,
    Slice,
    list_commits,
    load_newest,
    newest_whole,
    read_commit,
    resolve,
    save,
    take_attempt,
    verify_commit,
)
from eyas.recipe import UsageError
from eyas.store import Corrupt, StoreError, seal

from . import ranks
from .faults import Counting, Failing, Memory, flip


def save_steps(store, *steps):
    attempt = take_attempt(store, {})
    for step in steps:
        save(store, attempt, step, [Slice.whole("a", torch.full((8, 8), float(step)))], {})


def whole(commit):
    return {name: info.whole for name, info in commit.tensors.items()}


def payload_of(store, commit):
    return next(
        o.key
        for o in store.list("checkpoints/data/")
        if commit.save_id in o.key and o.key.endswith(".safetensors")
    )


def break_commit(store, commit):
    flip(store, commit.key, 60)


def break_index(store, commit):
    flip(store, commit.indexes[0].key, 5)


def lose_index(store, commit):
    store.delete([commit.indexes[0].key])


def lose_object(store, commit):
    store.delete([payload_of(store, commit)])


def cut_object(store, commit):
    key = payload_of(store, commit)
    store.put(key, store.get(key)[:-1])


def flip_object(store, commit):
    key = payload_of(store, commit)
    flip(store, key, store.stat(key).size - 3)


def test_an_empty_store_has_no_checkpoint(store):
    assert list_commits(store) == []
    assert newest_whole(store) is None
    assert load_newest(store, whole) is None
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        read_commit(store)


def test_commits_are_ordered_by_attempt_then_step(store):
    save_steps(store, 10, 20)
    save_steps(store, 15)
    assert [(c.attempt, c.step) for c in list_commits(store)] == [(1, 10), (1, 20), (2, 15)]
    assert read_commit(store).step == 15
    assert read_commit(store, "latest").attempt == 2
    assert read_commit(store, 20).attempt == 1
    assert read_commit(store, "1-10").step == 10
    with pytest.raises(CheckpointError, match=r"no checkpoint 2-20; the last ones are 1-10, 1-20"):
        read_commit(store, "2-20")
    with pytest.raises(UsageError, match="newest"):
        read_commit(store, "newest")


@pytest.mark.parametrize("damage", [break_commit, break_index, lose_index, lose_object, cut_object])
def test_damage_is_named_and_the_checkpoint_before_is_taken(store, damage, caplog):
    save_steps(store, 1, 2)
    commit = read_commit(store)
    damage(store, commit)
    with caplog.at_level(logging.ERROR, "eyas.checkpoint"):
        found = newest_whole(store)
    assert found.step == 1
    assert "checkpoint 1-2 is damaged" in caplog.text
    assert any(
        key in caplog.text
        for key in (commit.key, commit.indexes[0].key, commit.indexes[0].key[:-16])
    )
    assert verify_commit(store, CommitInfo(1, 2, commit.key))
    assert verify_commit(store, CommitInfo(1, 1, found.key)) == []


def test_a_flipped_byte_is_found_by_a_deep_look_and_by_loading(store, caplog):
    save_steps(store, 1, 2)
    flip_object(store, read_commit(store))
    assert newest_whole(store).step == 2
    assert newest_whole(store, deep=True).step == 1
    caplog.clear()
    commit, tensors = load_newest(store, whole)
    assert commit.step == 1
    assert torch.equal(tensors["a"], torch.full((8, 8), 1.0))
    assert "a is damaged" in caplog.text


def test_when_all_are_damaged_it_is_an_error_not_an_empty_store(store):
    save_steps(store, 1, 2)
    for info in list_commits(store):
        flip_object(store, read_commit(store, info))
    with pytest.raises(Corrupt, match="2 checkpoints and none of them is whole"):
        load_newest(store, whole)
    with pytest.raises(Corrupt):
        newest_whole(store, deep=True)


def test_a_store_that_does_not_answer_is_an_error_not_a_reason_to_go_back():
    store = Memory()
    save_steps(store, 1, 2)
    for operation, pattern in [("get", "index"), ("stat", "tensors"), ("read_into", "tensors")]:
        with pytest.raises((StoreError, CheckpointError), match="no answer") as caught:
            load_newest(Failing(store, operation, pattern), whole)
        assert not isinstance(caught.value, Corrupt)
    with pytest.raises(StoreError, match="no answer"):
        list_commits(Failing(store, "list", "commits"))


def test_what_is_not_a_commit_is_not_believed(folder_store):
    save_steps(folder_store, 1)
    commits = Path(folder_store.url) / "checkpoints/commits"
    for name in (".tmp-000001-000000000002.json", "latest", "000001-000000000009.json.part"):
        (commits / name).write_bytes(seal({"attempt": 1, "step": 9}))
    assert [c.step for c in list_commits(folder_store)] == [1]
    assert newest_whole(folder_store).step == 1


def test_a_commit_under_another_name_is_damage():
    store = Memory()
    save_steps(store, 1)
    store.put("checkpoints/commits/000001-000000000007.json", store.get(read_commit(store).key))
    with pytest.raises(Corrupt, match="holds the commit 1-1"):
        read_commit(store)
    assert newest_whole(store).step == 1


def test_a_format_of_the_future_is_refused_by_number():
    store = Memory()
    take_attempt(store, {})
    store.put("checkpoints/commits/000001-000000000001.json", seal({"format": 2}))
    with pytest.raises(CheckpointError, match="has format 2, this Eyas reads 1"):
        read_commit(store)


def test_a_cheap_look_reads_no_payload():
    store = Memory()
    save_steps(store, 1)
    counting = Counting(store)
    assert newest_whole(counting).step == 1
    assert counting.ranges == []


def test_ranks_go_back_together_when_one_of_them_meets_damage(folder_store):
    store = folder_store
    take_attempt(store, {})
    run_ranks(ranks.save_twice_rank, 2, store.url)
    commit = read_commit(store)
    second = commit.indexes[1].key.replace(".index.json", "-0000.safetensors")
    flip(store, second, store.stat(second).size - 9)
    assert run_ranks(ranks.load_newest_rank, 3, store.url) == [(1, True)] * 3


def test_a_reference_names_a_store_and_a_checkpoint(tmp_path):
    assert [
        (s.url, which) for s, which in map(resolve, (f"{tmp_path}/r", f"{tmp_path}/r@latest"))
    ] == [(f"{tmp_path}/r", "latest")] * 2
    assert resolve(f"{tmp_path}/r@120")[1] == "120"
    assert resolve(f"{tmp_path}/r@2-120")[1] == "2-120"
    (tmp_path / "a@b").mkdir()
    assert resolve(f"{tmp_path}/a@b")[0].url == f"{tmp_path}/a@b"
    assert resolve(f"{tmp_path}/a@b@7")[1] == "7"
    with pytest.raises(UsageError, match='"lates" names no checkpoint'):
        resolve(f"{tmp_path}/r@lates")
