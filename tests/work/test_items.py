"""An item that kills its worker is found out, refused for good, and the rest of its shard done."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from eyas.store import Store, open_store, read_object, verify
from eyas.work import (
    Engine,
    Shard,
    Stage,
    StageError,
    Workers,
    complete,
    items,
    refusals,
    run_stage,
    shard_key,
    watch_item,
)

pytestmark = pytest.mark.slow
Runs = Callable[[], Counter[str]]
STAGE = Stage("watched", 1, "tests.work.stages:watched", {"cpu_seconds": 0.3})


def run(store: Store, *shards: list[str], stage: Stage = STAGE, workers: int = 1) -> list[str]:
    made = [Shard(f"s{n}", params={"items": items}) for n, items in enumerate(shards)]
    with Workers(store, Engine(workers=workers)) as crew:
        results = complete(stage.name, run_stage(crew, stage, made))
    return [read_object(store, result.objects[0]).decode() for result in results]


def test_an_item_that_runs_away_in_c_is_killed_refused_and_skipped(
    store: Store, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    texts = run(store, ["a", "runaway-1", "b"], ["c"])
    verdict = "Refusal(reason='ran_away', value=0.3, detail='past 0.3 CPU seconds')"
    assert texts == [f"a\nrunaway-1 {verdict}\nb", "c"]
    assert runs() == {"s0": 2, "s1": 1}
    assert "a worker died with shard s0 (SIGPROF at runaway-1)" in caplog.text
    assert set(refusals(store, STAGE)) == {"runaway-1"}
    assert verify(store).ok


def test_what_crashes_or_is_killed_is_refused_after_two_or_three_times(
    folder_store: Store, runs: Runs
) -> None:
    (text,) = run(folder_store, ["crash", "a", "killed"])
    assert "crash Refusal(reason='killed_worker', value=2, detail='SIGSEGV, 2 times')" in text
    assert "killed Refusal(reason='killed_worker', value=3, detail='SIGKILL, 3 times')" in text
    assert runs() == {"s0": 6}


def test_more_refused_items_than_deaths_allowed_are_no_reason_to_give_up(
    folder_store: Store, runs: Runs
) -> None:
    stage = Stage("watched", 1, STAGE.run, {"cpu_seconds": 0.02})
    (text,) = run(folder_store, [f"runaway-{n}" for n in range(12)], stage=stage)
    assert text.count("ran_away") == 12
    assert runs() == {"s0": 13}


def test_a_verdict_is_repeated_when_the_shard_is_done_again(
    folder_store: Store, runs: Runs
) -> None:
    first = run(folder_store, ["a", "runaway"])
    folder_store.delete(info.key for info in folder_store.list("work/watched/"))
    runs()
    assert run(folder_store, ["a", "runaway"]) == first
    assert runs() == {"s0": 1}


def test_refused_items_leave_the_same_bytes_whoever_does_the_work(
    tmp_path: Path, marks: Path
) -> None:
    shards = [["a", "runaway-1"], ["killed", "b"], ["c", "runaway-2", "crash"], ["d"]]
    one, three = open_store(str(tmp_path / "one")), open_store(str(tmp_path / "three"))
    assert run(one, *shards) == run(three, *shards, workers=3)


def test_an_error_within_an_item_is_the_shards(folder_store: Store, runs: Runs) -> None:
    with pytest.raises(StageError, match="shard s0: ValueError: stubborn cannot be done"):
        run(folder_store, ["stubborn"])
    assert runs() == {"s0": 1}
    assert refusals(folder_store, STAGE) == {}


def test_a_stage_that_tries_again_what_was_refused_is_an_error(
    folder_store: Store, runs: Runs
) -> None:
    stage = Stage("deaf", 1, "tests.work.stages:refused_and_tried_again")
    with pytest.raises(StageError, match="item runaway was refused and yet tried again"):
        run(folder_store, [], stage=stage)
    assert runs() == {"s0": 2}


def test_workers_that_never_get_ready_are_an_error_of_the_stage(
    folder_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eyas.work.schedule.STARTS", 3)
    with pytest.raises(StageError, match="stage deadly: 3 workers died before one was ready"):
        run(folder_store, ["a"], stage=Stage("deadly", 1, "tests.work.deadly:run"))


def test_watching_outside_a_worker_does_nothing() -> None:
    with watch_item("a", 1e-6), watch_item("b", 1e-6):
        sum(range(1_000_000))


def test_a_shard_with_refused_items_has_the_key_that_it_would_have_without(
    folder_store: Store, marks: Path
) -> None:
    run(folder_store, ["a", "runaway"])
    key = shard_key(STAGE, Shard("s0", params={"items": ["a", "runaway"]}))
    assert folder_store.stat(f"work/watched/{key}.json") is not None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is a file")
def test_notes_need_no_room_on_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk would end the worker at its first note."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    page = items.recorder()
    assert os.fstat(page.fileno()).st_size == 4096
    assert items.read_note(page) is None


def test_items_do_not_nest_and_their_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_memory", None)
    page = items.recorder()
    items.note_items_in(page.fileno())
    with (
        pytest.raises(ValueError, match="at most 4,000 bytes, not 4001"),
        watch_item("x" * 4001, 1),
    ):
        pass
    with watch_item("ب", 60):
        assert items.read_note(page) == ("ب", 60.0)
        with pytest.raises(ValueError, match="item b begins within another"), watch_item("b", 1):
            pass
    assert items.read_note(page) is None
