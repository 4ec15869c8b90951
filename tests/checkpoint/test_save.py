from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load as load_safetensors
from tests.gloo import outcomes, run_ranks

from eyas.checkpoint import (
    AlreadyCommitted,
    CheckpointError,
    Fenced,
    SaveFailed,
    Slice,
    list_commits,
    load_slices,
    newest_whole,
    read_commit,
    save,
    take_attempt,
    verify_commit,
)
from eyas.checkpoint.commit import SavePoint
from eyas.checkpoint.save import commit_parts, write_part
from eyas.store import StoreError, verify

from . import ranks
from .faults import Ambiguous, Failing, Memory


def small(seed: int = 1) -> list[Slice]:
    return [Slice.whole(name, tensor) for name, tensor in ranks.state(seed).items()]


def load_all(store, commit):
    return load_slices(store, commit, ranks.whole(commit))


def assert_is_state(store, commit, seed):
    found = load_all(store, commit)
    expected = ranks.state(seed)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_what_is_saved_is_loaded_bit_for_bit(store):
    attempt = take_attempt(store, {})
    odd = {
        "nan": torch.tensor([float("nan"), -0.0, float("inf"), 1e-45]),
        "half": torch.randn(5, 3).bfloat16(),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 4),
        "byte": torch.tensor([1, 2, 3], dtype=torch.uint8),
    }
    parts = small() + [Slice.whole(name, tensor) for name, tensor in odd.items()]
    saved = save(store, attempt, 7, parts, {"tokens": 5, "layout": (1, 2)})
    commit = read_commit(store)
    assert commit == saved
    assert (commit.attempt, commit.step) == (1, 7)
    assert commit.facts == {"tokens": 5, "layout": [1, 2]}
    found = load_all(store, commit)
    for part in parts:
        assert found[part.name].dtype == part.tensor.dtype
        assert found[part.name].shape == part.tensor.shape
        assert torch.equal(_bits(found[part.name]), _bits(part.tensor))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def test_payload_objects_are_safetensors_files_that_say_what_they_hold(store):
    take_attempt(store, {})
    save(store, 1, 1, small(), {})
    files = [o.key for o in store.list("checkpoints/data/") if o.key.endswith(".safetensors")]
    assert len(files) == 1
    found = load_safetensors(store.get(files[0]))
    assert all(torch.equal(found[name], tensor) for name, tensor in ranks.state(1).items())


def test_large_slices_are_cut_into_objects_of_bounded_size(monkeypatch):
    monkeypatch.setattr(sys.modules[save.__module__], "OBJECT", 1000)
    store = Memory()
    take_attempt(store, {})
    commit = save(store, 1, 1, small(), {})
    objects = [o for o in store.list("checkpoints/data/") if o.key.endswith(".safetensors")]
    assert len(objects) > 10
    assert all(o.size < 1000 + 1000 for o in objects)
    assert_is_state(store, commit, 1)


def test_the_store_room_verifies_what_is_saved(store):
    take_attempt(store, {})
    save(store, 1, 1, small(), {})
    report = verify(store)
    assert report.ok, report.problems
    assert report.objects >= 4  # attempt, commit, index, payload
    payload = next(o for o in store.list("checkpoints/data/") if o.key.endswith("tensors"))
    store.delete([payload.key])
    assert any(payload.key in problem for problem in verify(store).problems)


def test_an_object_is_put_without_holding_it():
    """The pieces that reach the store are chunks, and each is let go before the next is made."""
    held = []

    class Watching(Memory):
        def put_chunks(self, key, chunks):
            for chunk in chunks:
                held.append(len(chunk))
            return sum(held)

    store = Watching()
    take_attempt(store, {})
    report, error = write_part(
        store, SavePoint(1, 1, "id"), 0, [Slice.whole("a", torch.zeros(3 * 2**20))]
    )
    assert error is None
    assert held == [2**22, 2**22, 2**22, held[-1]]
    assert held[-1] < 1000
    assert report["index"]["rows"] == 1


def test_a_zombie_of_an_older_attempt_is_fenced_before_it_writes(store):
    take_attempt(store, {})
    save(store, 1, 1, small(), {})
    before = [o.key for o in store.list()]
    take_attempt(store, {})
    with pytest.raises(Fenced, match="attempt 2 has been started"):
        save(store, 1, 2, small(), {})
    after = [o.key for o in store.list()]
    assert set(after) - set(before) == {"checkpoints/attempts/000002"}


def test_a_zombie_is_fenced_again_right_before_its_commit(store):
    take_attempt(store, {})

    class Overtaken(Memory):
        def put_chunks(self, key, chunks):
            take_attempt(store, {})
            return store.put_chunks(key, chunks)

        def __getattribute__(self, name):
            return (
                object.__getattribute__(self, name)
                if name == "put_chunks"
                else getattr(store, name)
            )

    with pytest.raises(Fenced):
        save(Overtaken(), 1, 1, small(), {})
    assert list_commits(store) == []


def test_a_replayed_step_commits_under_its_new_attempt_and_is_the_one_that_loads(store):
    for attempt in (1, 2):
        take_attempt(store, {})
        save(store, attempt, 5, small(attempt), {})
    assert [(c.attempt, c.step) for c in list_commits(store)] == [(1, 5), (2, 5)]
    assert_is_state(store, read_commit(store, 5), 2)
    assert_is_state(store, read_commit(store, "1-5"), 1)


def test_the_same_step_twice_in_one_attempt_is_refused_and_the_first_stands(store):
    take_attempt(store, {})
    first = save(store, 1, 5, small(1), {})
    with pytest.raises(AlreadyCommitted, match=first.save_id):
        save(store, 1, 5, small(2), {})
    assert_is_state(store, read_commit(store), 1)


def test_a_sixteen_way_race_for_a_commit_has_one_winner_twenty_times(store):
    take_attempt(store, {})
    report, _ = write_part(store, SavePoint(1, 0, "shared"), 0, small())

    def race(step: int, racer: int) -> str | None:
        try:
            return commit_parts(store, SavePoint(1, step, f"save-{racer}"), {}, [report]).save_id
        except AlreadyCommitted:
            return None

    with ThreadPoolExecutor(16) as pool:
        for step in range(20):
            won = [w for w in pool.map(lambda r: race(step, r), range(16)) if w]  # noqa: B023
            assert won == [read_commit(store, step).save_id]


def test_an_ambiguous_commit_is_a_success(store):
    take_attempt(store, {})
    commit = save(Ambiguous(store), 1, 1, small(), {})
    assert read_commit(store) == commit


def test_a_failed_put_fails_the_save_and_commits_nothing(store):
    take_attempt(store, {})
    with pytest.raises(SaveFailed, match=r"rank 0: no answer to put_chunks") as caught:
        save(Failing(store, "put_chunks", "data"), 1, 1, small(), {})
    assert isinstance(caught.value.__cause__, StoreError)
    with pytest.raises(SaveFailed, match="index"):
        save(Failing(store, "put", "index"), 1, 1, small(), {})
    with pytest.raises(StoreError):
        save(Failing(store, "put_if_absent", "commits"), 1, 1, small(), {})
    assert list_commits(store) == []
    save(store, 1, 1, small(), {})


def test_slices_that_do_not_tile_are_refused_by_name():
    store = Memory()
    take_attempt(store, {})
    tensor = torch.zeros(4, 4)
    half = Slice("w", (0, 0), tensor[:2], (4, 4))
    with pytest.raises(SaveFailed, match=r"w is not covered exactly once: 8 of 16 elements"):
        save(store, 1, 1, [half], {})
    with pytest.raises(SaveFailed, match=r"w is not covered.*overlap"):
        save(store, 1, 1, [half, Slice("w", (1, 0), tensor[:2], (4, 4))], {})
    with pytest.raises(SaveFailed, match=r"w: a slice of shape \[2, 4\] at \[3, 0\]"):
        save(store, 1, 1, [Slice("w", (3, 0), tensor[:2], (4, 4))], {})
    with pytest.raises(SaveFailed, match=r"w as F16"):
        save(store, 1, 1, [half, Slice("w", (2, 0), tensor[:2].half(), (4, 4))], {})
    assert list_commits(store) == []


def test_facts_that_are_not_json_are_refused_before_anything_is_written():
    store = Memory()
    take_attempt(store, {})
    with pytest.raises(TypeError, match="Tensor"):
        save(store, 1, 1, small(), {"loss": torch.zeros(1)})
    assert list(store.list("checkpoints/data")) == []


def test_four_ranks_save_and_one_two_or_three_load_their_own_cuts(store):
    take_attempt(store, {})
    keys = run_ranks(ranks.save_rank, 4, store.url, 1, 3, 9)
    assert keys == ["checkpoints/commits/000001-000000000003.json", None, None, None]
    commit = read_commit(store)
    assert len(commit.indexes) == 4
    assert commit.tensors["model.b"].indexes == ((0, 0),)
    assert commit.tensors["model.w"].indexes == ((0, 3),)
    assert verify_commit(store, commit) == []
    assert_is_state(store, commit, 9)
    for world in (1, 2, 3):
        for rank in range(world):
            expected = {s.name: s for s in ranks.slices(9, rank, world)}
            wanted = {n: (s.box.offset, s.box.shape) for n, s in expected.items()}
            found = load_slices(store, commit, wanted)
            assert all(torch.equal(found[n], s.tensor) for n, s in expected.items())


def test_one_rank_that_fails_makes_all_raise_and_nothing_is_committed(store):
    take_attempt(store, {})
    ended = outcomes(ranks.save_failing_rank, 3, store.url, 2)
    assert [o.error for o in ended] == ["SaveFailed"] * 3
    assert all("rank 2: no answer to put_chunks" in o.trace for o in ended)
    assert list_commits(store) == []


def test_a_replica_saved_by_two_ranks_makes_all_raise(folder_store):
    take_attempt(folder_store, {})
    ended = outcomes(ranks.save_bad_rank, 2, folder_store.url)
    assert [o.error for o in ended] == ["SaveFailed"] * 2
    assert all("overlap" in o.trace for o in ended)
    assert list_commits(folder_store) == []


def test_all_ranks_of_a_zombie_are_fenced(folder_store):
    take_attempt(folder_store, {})
    take_attempt(folder_store, {})
    ended = outcomes(ranks.save_fenced_rank, 2, folder_store.url)
    assert [o.error for o in ended] == ["Fenced"] * 2


@pytest.mark.parametrize(
    ("victim", "phase"),
    [(1, "payload"), (1, "middle"), (1, "index"), (0, "middle"), (0, "commit")],
)
def test_a_rank_killed_in_a_save_leaves_the_checkpoint_before_it(store, victim, phase):
    take_attempt(store, {})
    save(store, 1, 1, small(), {})
    ended = outcomes(ranks.save_killed_rank, 2, store.url, victim, phase, 1, 2)
    assert ended[victim].exitcode == -9
    assert ended[1 - victim].error, "the other rank must not believe in this save"
    assert [c.step for c in list_commits(store)] == [1]
    assert newest_whole(store, deep=True).step == 1
    assert_is_state(store, read_commit(store), 1)
    take_attempt(store, {})
    save(store, 2, 2, small(2), {})
    assert_is_state(store, read_commit(store), 2)


def test_a_rank_killed_right_after_the_commit_leaves_it_whole(store):
    take_attempt(store, {})
    ended = outcomes(ranks.save_killed_rank, 2, store.url, 0, "committed", 1, 2)
    assert ended[0].exitcode == -9
    commit = newest_whole(store, deep=True)
    assert commit.step == 2
    assert_is_state(store, commit, 2)


def test_a_group_that_cannot_talk_on_the_cpu_is_refused(monkeypatch):
    import torch.distributed as dist

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
    with pytest.raises(CheckpointError, match="new_group"):
        save(Memory(), 1, 1, small(), {})
