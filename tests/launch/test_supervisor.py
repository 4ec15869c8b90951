"""The supervisor, with real processes really killed, stopped and hung."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eyas.launch.processes import marked
from eyas.store import Store, open_store, read_pieces

PATIENCE = 60


class Job:
    """The job process, its store and what it left."""

    def __init__(self, folder: Path, behaviour: str, *settings: str) -> None:
        self.run_dir = folder / "run"
        self.store: Store = open_store(str(folder / "store"))
        command = [sys.executable, "-m", "tests.launch.job", self.store.url, str(self.run_dir)]
        self.process = subprocess.Popen(
            [*command, behaviour, *settings], stderr=subprocess.PIPE, text=True
        )

    def wait(self) -> int:
        self.errors = self.process.communicate(timeout=PATIENCE)[1]
        return self.process.returncode

    def heartbeat(self) -> dict[str, Any]:
        try:
            return json.loads(self.store.get("heartbeats/host0.json"))
        except Exception:  # noqa: BLE001 - not there yet
            return {"ranks": [], "step": 0}

    def until(self, true: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, "waited in vain"
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.02)

    def journal(self, event: str) -> list[dict[str, Any]]:
        records = read_pieces(self.store, "jobs/job/journal")
        return [record for record in records if record["event"] == event]

    def survivors(self) -> list[int]:
        starts = sorted(self.run_dir.glob("start-*"))
        assert starts
        return [pid for start in starts for pid in marked("EYAS_RUN_DIR", str(start))]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def start(behaviour: str, *settings: str) -> Job:
        jobs.append(Job(tmp_path, behaviour, *settings))
        return jobs[-1]

    yield start
    for each in jobs:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_it_is_done_only_when_every_rank_left_with_0(job: Callable[..., Job]) -> None:
    run = job("fine")
    assert run.wait() == 0, run.errors
    assert [r["codes"] for r in run.journal("left")] == [[0, 0]]
    assert run.heartbeat()["state"] == "ended with 0"
    assert run.survivors() == []


@pytest.mark.parametrize("times", [1, 3])
def test_a_killed_rank_is_named_and_the_ranks_are_started_again(
    job: Callable[..., Job], times: int
) -> None:
    run = job(f"killed:{times}")
    assert run.wait() == 0, run.errors
    assert len(run.journal("start")) == times + 1
    causes = [r["cause"] for r in run.journal("left")][:times]
    assert causes == ["rank 1 was killed by signal 9 at step 7 in compute"] * times
    assert run.errors.count("restart") == times
    assert run.survivors() == []


def test_a_fourth_failure_is_the_last(job: Callable[..., Job]) -> None:
    run = job("killed:9")
    assert run.wait() == 1
    assert len(run.journal("start")) == 4
    assert "giving up after 4 starts" in run.errors
    assert run.survivors() == []


@pytest.mark.parametrize("code", [93, 75])
def test_93_and_75_are_passed_on_without_a_restart(job: Callable[..., Job], code: int) -> None:
    run = job(f"code:{code}")
    assert run.wait() == code
    assert len(run.journal("start")) == 1
    assert run.survivors() == []


def test_sigterm_reaches_the_ranks_which_checkpoint_and_leave(job: Callable[..., Job]) -> None:
    run = job("works")
    run.until(lambda: run.heartbeat()["step"] > 2 and len(run.heartbeat()["ranks"]) == 2)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 75, run.errors
    assert [r["codes"] for r in run.journal("left")] == [[75, 75]]
    assert run.survivors() == []


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(job: Callable[..., Job]) -> None:
    run = job("stubborn", "grace=0.5")
    run.until(lambda: len(run.heartbeat()["ranks"]) == 2)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 1
    assert "of grace: rank 0 (step 7, compute), rank 1 (step 7, compute)" in run.errors
    assert len(run.journal("start")) == 1
    assert run.survivors() == []


def test_a_second_signal_does_not_wait_for_the_grace(job: Callable[..., Job]) -> None:
    run = job("stubborn", "grace=1000")
    run.until(lambda: len(run.heartbeat()["ranks"]) == 2)
    run.process.send_signal(signal.SIGINT)
    run.until(lambda: run.heartbeat()["state"] == "stopping")
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 1
    assert run.survivors() == []


@pytest.mark.parametrize(
    ("behaviour", "answer"), [("hangs", "stand_still"), ("stopped", "no answer to SIGUSR1")]
)
def test_a_silent_rank_is_named_its_stacks_kept_and_the_ranks_started_again(
    job: Callable[..., Job], behaviour: str, answer: str
) -> None:
    run = job(behaviour, "hang=1.5")
    assert run.wait() == 0, run.errors
    stopped = ", stopped" if behaviour == "stopped" else ""
    cause = run.journal("left")[0]["cause"]
    assert cause.startswith(f"rank 1 (step 7, compute{stopped}) silent for"), cause
    keys = [info.key for info in run.store.list("jobs/job/stacks/host0/")]
    stacks = next(run.store.get(key).decode() for key in keys if key.endswith("rank-1.txt"))
    assert answer in stacks
    assert "step 7, compute" in stacks
    assert run.survivors() == []


def test_sigusr1_brings_the_stacks_of_all_ranks_and_work_goes_on(job: Callable[..., Job]) -> None:
    run = job("works")
    run.until(lambda: len(run.heartbeat()["ranks"]) == 2)
    run.process.send_signal(signal.SIGUSR1)
    run.until(lambda: len(list(run.store.list("jobs/job/stacks/host0/"))) == 2)
    for info in run.store.list("jobs/job/stacks/host0/"):
        assert "rank.py" in run.store.get(info.key).decode()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 75


def test_the_heartbeat_is_one_object_a_host_that_tells_where_every_rank_is(
    job: Callable[..., Job],
) -> None:
    run = job("works")
    run.until(lambda: run.heartbeat()["step"] > 2 and len(run.heartbeat()["ranks"]) == 2)
    beat = run.heartbeat()
    assert [info.key for info in run.store.list("heartbeats/")] == ["heartbeats/host0.json"]
    assert (beat["host"], beat["job"], beat["state"], beat["start"]) == (
        "host0",
        "job",
        "running",
        1,
    )
    assert [(r["rank"], r["phase"]) for r in beat["ranks"]] == [(0, "compute"), (1, "compute")]
    assert beat["step"] == min(r["step"] for r in beat["ranks"])
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 75


def test_every_line_of_every_rank_is_in_the_store(job: Callable[..., Job]) -> None:
    run = job("killed:1")
    assert run.wait() == 0
    lines = {
        (r["start"], r["rank"], r["line"])
        for r in read_pieces(run.store, "jobs/job/logs")
        if r["rank"] is not None
    }
    expected = {(s, r, f"hello from rank {r} of start {s}") for s in (1, 2) for r in (0, 1)}
    assert lines == expected


def test_a_killed_supervisor_leaves_no_rank_behind_under_torchrun(tmp_path: Path) -> None:
    code = (
        "from eyas.launch import supervise\nfrom eyas.store import open_store\nimport sys\n"
        "url, run_dir, *argv = sys.argv[1:]\n"
        "supervise(argv, 2, open_store(url), run_dir=run_dir, job='job', beat=0.1, echo=False)"
    )
    script = str(Path(__file__).parent / "rank.py")
    url, run_dir = str(tmp_path / "store"), tmp_path / "run"
    command = [sys.executable, "-c", code, url, str(run_dir), script, "works"]
    process = subprocess.Popen(command)
    start = run_dir / "start-001"
    try:
        _until(lambda: (start / "rank-1.beat").exists() and (start / "rank-0.beat").exists())
        assert len(marked("EYAS_RUN_DIR", str(start))) == 3
    finally:
        process.kill()
        process.wait()
    _until(lambda: not marked("EYAS_RUN_DIR", str(start)))
    assert {(start / f"rank-{r}.exit").read_text() for r in (0, 1)} == {"75"}


def _until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_torchrun_ranks_are_restarted_and_done(tmp_path: Path) -> None:
    from eyas.launch import supervise

    store = open_store(str(tmp_path / "store"))
    script = str(Path(__file__).parent / "rank.py")
    code = supervise(
        [script, "killed:1"], 2, store, run_dir=tmp_path / "run", job="job", beat=0.1, echo=False
    )
    assert code == 0
    left = [r for r in read_pieces(store, "jobs/job/journal") if r["event"] == "left"]
    assert [r["codes"] for r in left] == [[1, None], [0, 0]]
    assert left[0]["cause"] == "rank 1 was killed by signal 9 at step 7 in compute"
    lines = {(r["rank"], r["line"]) for r in read_pieces(store, "jobs/job/logs")}
    assert (1, "hello from rank 1 of start 2") in lines
    assert marked("EYAS_RUN_DIR", str(tmp_path / "run" / "start-002")) == []
    assert os.environ.get("EYAS_RUN_DIR") is None
