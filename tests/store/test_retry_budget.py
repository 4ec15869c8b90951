"""Retries of all processes of a host come out of one bucket, whatever its file is."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.store import retry_budget
from eyas.store.retry_budget import BURST, LONGEST, RATE, Bucket, RetryBudget, take


@given(st.lists(st.floats(0, 2), min_size=1, max_size=700))
def test_no_more_go_than_the_burst_and_so_many_a_second(gaps: list[float]) -> None:
    bucket, now = Bucket(BURST, 0.0), 0.0
    starts: list[float] = []
    for gap in gaps:
        now += gap
        bucket, seconds = take(bucket, now)
        assert 0 <= seconds <= LONGEST
        assert -LONGEST * RATE <= bucket.tokens <= BURST
        starts.append(now + seconds)
    if len(gaps) < LONGEST * RATE + BURST:  # before the wait is at its longest
        assert all(n <= BURST + RATE * at + 1e-6 for n, at in enumerate(sorted(starts), 1))


@pytest.mark.parametrize("bucket", [Bucket(-300, 1e9), Bucket(float("nan"), 0), Bucket(3e9, 1)])
def test_a_bucket_that_cannot_be_is_full(bucket: Bucket) -> None:
    after, seconds = take(bucket, now=100.0)
    assert (after, seconds) == (Bucket(BURST - 1, 100.0), 0.0)


def _emptied(budget: RetryBudget) -> None:
    for _ in range(int(BURST)):
        budget.wait()


TAKE_ALL = """
import sys
from pathlib import Path
from eyas.store.retry_budget import BURST, RetryBudget
budget = RetryBudget(sys.argv[1], Path(sys.argv[2]))
for _ in range(int(BURST)):
    budget.wait()
"""


def test_processes_share_the_bucket_of_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-c", TAKE_ALL, "http://a", str(tmp_path)], check=True)
    monkeypatch.setattr(retry_budget, "RATE", 1e-9)  # whatever the time since then
    assert RetryBudget("http://a", tmp_path).wait() > 0
    assert RetryBudget("http://b", tmp_path).wait() == 0
    assert [p.stat().st_mode & 0o777 for p in tmp_path.iterdir()] == [0o600, 0o600]


def _file(folder: Path) -> Path:
    """Where the bucket of http://a lies."""
    RetryBudget("http://a", folder).wait()
    (found,) = folder.iterdir()
    return found


def _link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _hard_link(path: Path, target: Path) -> None:
    os.link(target, path)


def _open_to_all(path: Path, target: Path) -> None:
    path.write_bytes(target.read_bytes())
    path.chmod(0o666)


def _fifo(path: Path, _: Path) -> None:
    os.mkfifo(path, 0o600)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [_link, _hard_link, _open_to_all, _fifo, _folder])
def test_what_somebody_else_put_there_is_not_touched(
    tmp_path: Path, plant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a process counts for itself."""
    monkeypatch.setattr(retry_budget, "RATE", 1e-9)
    precious = tmp_path / "precious"
    precious.write_bytes(b"somebody's bytes")
    precious.chmod(0o600)
    folder = tmp_path / "temporary"
    folder.mkdir()
    path = _file(folder)
    path.unlink()
    plant(path, precious)  # type: ignore[operator]
    budget = RetryBudget("http://a", folder)
    _emptied(budget)
    assert budget.wait() > 0, "it counts"
    assert RetryBudget("http://a", folder).wait() == 0, "but alone"
    assert precious.read_bytes() == b"somebody's bytes"
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_nobody_waits_for_a_lock_that_is_never_given_back(tmp_path: Path) -> None:
    path = _file(tmp_path)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert RetryBudget("http://a", tmp_path).wait() == 0


def test_a_folder_that_is_not_there_is_done_without(tmp_path: Path) -> None:
    assert RetryBudget("http://a", tmp_path / "none").wait() == 0


def test_half_a_file_is_a_full_bucket(tmp_path: Path) -> None:
    _file(tmp_path).write_bytes(b"1234")
    assert RetryBudget("http://a", tmp_path).wait() == 0
