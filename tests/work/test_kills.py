"""Workers SIGKILLed at random by somebody outside: no byte differs, and no item is blamed."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from tests.work.test_run_stage import everything, run

from eyas.store import Store, open_store
from eyas.work import Engine, Shard, Stage, refusals

pytestmark = pytest.mark.slow
STAGE = Stage("watched", 1, "tests.work.stages:watched")


def workers() -> list[int]:
    """The workers of this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"eyas-worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


class Killer(threading.Thread):
    """Kills a worker drawn by chance, a random time after a shard has begun, `count` times."""

    def __init__(self, marks: Path, count: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self.over = threading.Event()
        self._marks = marks
        self._count = count
        self._random = random.Random(seed)

    def run(self) -> None:
        begun = 0
        while self.kills < self._count and not self.over.wait(self._random.uniform(0.05, 0.4)):
            now = len(list(self._marks.glob("run-*")))
            if now > begun and (there := workers()):
                os.kill(self._random.choice(there), signal.SIGKILL)
                self.kills += 1
                begun = now


def check(store: Store, undisturbed: Store, marks: Path, kills: int, shards: int) -> None:
    work = [
        Shard(f"s{n}", params={"items": [f"i{n}x{k}" for k in range(40)]}) for n in range(shards)
    ]
    expected = run(undisturbed, STAGE, work, Engine(workers=2))
    for path in marks.iterdir():
        path.unlink()
    killer = Killer(marks, kills, seed=kills)
    killer.start()
    try:
        assert run(store, STAGE, work, Engine(workers=2)) == expected
    finally:
        killer.over.set()
        killer.join()
    assert killer.kills == kills
    assert everything(store, "out/") == everything(undisturbed, "out/")
    assert refusals(store, STAGE) == {}


def test_ten_kills_change_no_byte(folder_store: Store, tmp_path: Path, marks: Path) -> None:
    check(folder_store, open_store(str(tmp_path / "undisturbed")), marks, 10, 30)


@pytest.mark.soak
def test_fifty_kills_change_no_byte(folder_store: Store, tmp_path: Path, marks: Path) -> None:
    check(folder_store, open_store(str(tmp_path / "undisturbed")), marks, 50, 120)
