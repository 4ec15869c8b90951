"""What follows from what ranks left: pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyas.launch.ranks import (
    DONE,
    FAILED,
    NO_RETRY,
    RESTART,
    RESUMABLE,
    Beat,
    cause,
    decide,
    read_beats,
    read_exits,
    silent,
)


def _beat(rank: int, monotonic: float = 0.0) -> Beat:
    return Beat(rank, 100 + rank, 12, "checkpoint", 0.0, monotonic)


@pytest.mark.parametrize(
    ("codes", "stopping", "left", "expected"),
    [
        ([0, 0], False, 3, DONE),
        ([0, 0], True, 0, DONE),
        ([75, 75], True, 3, RESUMABLE),
        ([75, 0], False, 0, RESUMABLE),
        ([93, 1], False, 3, NO_RETRY),
        ([None, 93], False, 3, NO_RETRY),
        ([0, None], False, 1, RESTART),
        ([75, None], False, 1, RESTART),
        ([1, 1], False, 3, RESTART),
        ([1, 1], False, 0, FAILED),
        ([1, 75], True, 3, FAILED),
        ([None, None], True, 3, FAILED),
    ],
)
def test_what_follows_from_the_exit_codes(
    codes: list[int | None], stopping: bool, left: int, expected: int
) -> None:
    assert decide(codes, stopping, left) == expected


def test_the_rank_that_died_is_named_before_those_that_report_the_loss() -> None:
    log = "E failed (exitcode: -9) local_rank: 2 (pid: 5) of binary: python"
    text = cause([1, 1, None], {2: _beat(2)}, 1, log)
    assert text == "rank 2 was killed by signal 9 at step 12 in checkpoint"


def test_a_death_that_nobody_reports_is_still_a_sentence() -> None:
    assert cause([None, 1], {}, -9, "") == "rank 0 died without a word before its first heartbeat"
    assert cause([1, 0], {0: _beat(0)}, 1, "") == (
        "rank 0 left with exit code 1 at step 12 in checkpoint"
    )


def test_a_rank_is_silent_only_after_the_hang_time_since_the_start() -> None:
    beats = {0: _beat(0, 95.0), 1: _beat(1, 80.0)}
    assert silent(beats, 3, since=50.0, now=100.0, hang=10.0) == [1, 2]
    assert silent(beats, 3, since=95.0, now=100.0, hang=10.0) == []


def test_torn_files_are_taken_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank-0.beat").write_text('{"rank": 0, "pi')
    (tmp_path / "rank-0.exit").write_text("")
    (tmp_path / "rank-1.exit").write_text("75")
    assert read_beats(tmp_path, 2) == {}
    assert read_exits(tmp_path, 2) == (None, 75)
