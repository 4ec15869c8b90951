"""However the parent ends, its workers end too, and what was done stays done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.work.processes import alive, wait_until

from eyas.store import Store
from eyas.work import Engine, Shard, Stage, Workers, run_stage

_PARENT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
from eyas.store import open_store
from eyas.work import Engine, Shard, Stage, Workers, run_stage
shards = [Shard(f"s{n}", params={"text": str(n)}) for n in range(6)]
with Workers(open_store(sys.argv[1]), Engine(workers=2)) as workers:
    run_stage(workers, Stage("end", 1, sys.argv[2]), shards)
"""


def pids(marks: Path) -> set[int]:
    return {int(p.name.split("-")[2]) for p in marks.glob("run-*")}


@pytest.fixture
def start(folder_store: Store, marks: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a parent with two workers and returns when both hold a shard."""
    started: list[subprocess.Popen[bytes]] = []

    def run(stage: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _PARENT, folder_store.url, stage]
        environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
        parent = subprocess.Popen(command, env=environment, start_new_session=True)
        started.append(parent)
        wait_until(lambda: len(pids(marks)) == 2 or parent.poll() is not None)
        assert parent.poll() is None
        return parent

    yield run
    for parent in started:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_parent_that_ends_leaves_no_worker_and_loses_no_finished_shard(
    how: signal.Signals,
    start: Callable[[str], subprocess.Popen[bytes]],
    folder_store: Store,
    marks: Path,
    runs: Callable[[], Counter[str]],
) -> None:
    parent = start("tests.work.stages:wait_for_go")
    wait_until(lambda: any(folder_store.list("work/end/")))
    wait_until(lambda: len(list(marks.glob("run-*"))) == 3)
    parent.send_signal(how)
    parent.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids(marks)))
    assert runs()["s0"] == 1
    (marks / "go").touch()
    shards = [Shard(f"s{n}", params={"text": str(n)}) for n in range(6)]
    with Workers(folder_store, Engine(workers=3)) as workers:
        run_stage(workers, Stage("end", 1, "tests.work.stages:wait_for_go"), shards)
    again = runs()
    assert set(again) == {"s1", "s2", "s3", "s4", "s5"}


_PAUSING = """
import sys
from eyas.store import open_store
from eyas.work import Engine, Shard, Stage, Workers, run_stage
shards = [Shard(f"s{n}", params={"number": n, "count": 2}) for n in range(2)]
with Workers(open_store(sys.argv[1]), Engine(workers=2)) as workers:
    for result in run_stage(workers, Stage("pause", 1, "tests.work.stages:meet"), shards):
        print(result.facts["pid"], flush=True)
    sys.stdin.read()
"""


def test_workers_between_two_stages_end_with_a_killed_parent(
    folder_store: Store, marks: Path
) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, "-c", _PAUSING, folder_store.url],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        idle = {int(parent.stdout.readline()) for _ in range(2)}
        assert len(idle) == 2
        assert all(map(alive, idle))
        parent.kill()
    wait_until(lambda: not any(map(alive, idle)))


def test_an_interrupted_worker_leaves_no_half_written_file(
    folder_store: Store, marks: Path, start: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    parent = start("tests.work.stages:write_for_ever")
    assert list(Path(folder_store.url).rglob(".tmp-*"))
    parent.send_signal(signal.SIGTERM)
    parent.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids(marks)))
    assert not list(Path(folder_store.url).rglob(".tmp-*"))
    assert not list(folder_store.list("out/"))
