"""The arithmetic behind the curves."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eyas.board.series import Point, downsample, resolve, smooth, ticks


def points(*values: float) -> list[Point]:
    return [Point(1, step, value) for step, value in enumerate(values)]


def test_a_later_attempt_wins_over_the_steps_that_it_does_again() -> None:
    first = [Point(1, step, 1.0) for step in range(1, 8)]
    second = [Point(2, step, 2.0) for step in range(5, 11)]
    history, replayed = resolve([*first, *second])
    assert [(p.step, p.attempt) for p in history] == [
        *((s, 1) for s in (1, 2, 3, 4)),
        *((s, 2) for s in range(5, 11)),
    ]
    assert [(p.step, p.attempt) for p in replayed] == [(5, 1), (6, 1), (7, 1)]


def test_steps_after_a_rollback_do_not_count_before_they_are_done_again() -> None:
    first = [Point(1, step, 1.0) for step in range(1, 10)]
    history, replayed = resolve([*first, Point(2, 4, 2.0)])
    assert [p.step for p in history] == [1, 2, 3, 4]
    assert [p.step for p in replayed] == [4, 5, 6, 7, 8, 9]


def test_a_step_written_twice_counts_once_as_last_written() -> None:
    assert resolve([Point(1, 3, 9.0), Point(1, 3, 5.0)]) == ([Point(1, 3, 5.0)], [])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60)), max_size=80))
def test_history_has_every_step_once_and_loses_nothing(pairs: list[tuple[int, int]]) -> None:
    every = {pair: Point(*pair, 0.0) for pair in pairs}
    history, replayed = resolve(list(every.values()))
    steps = [p.step for p in history]
    assert steps == sorted(set(steps))
    assert sorted((p.attempt, p.step) for p in [*history, *replayed]) == sorted(every)
    assert all(a.attempt <= b.attempt for a, b in pairwise(history))


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400),
    st.integers(4, 60),
)
def test_downsampling_keeps_ends_extremes_and_order(values: list[float], most: int) -> None:
    kept = downsample(points(*values), most)
    assert len(kept) <= most or len(values) <= most
    assert kept[0].step == 0
    assert kept[-1].step == len(values) - 1
    assert min(p.value for p in kept) == min(values)
    assert max(p.value for p in kept) == max(values)
    assert [p.step for p in kept] == sorted({p.step for p in kept})


def test_many_steps_come_down_to_two_thousand_with_their_one_spike() -> None:
    values = [1.0] * 200_000
    values[123_456] = 50.0
    kept = downsample(points(*values))
    assert len(kept) <= 2000
    assert Point(1, 123_456, 50.0) in kept


def test_smoothing_is_the_mean_of_the_neighbours() -> None:
    assert [p.value for p in smooth(points(0, 3, 6, 0), 1)] == [1.5, 3.0, 3.0, 3.0]


@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e5), st.integers(3, 10))
def test_ticks_are_round_few_and_inside(low: float, width: float, most: int) -> None:
    found = ticks(low, low + width, most)
    slack = width * 1e-6 + 1e-9
    assert 1 <= len(found) <= most + 1
    assert all(low - slack <= t <= low + width + slack for t in found)
    if len(found) > 1:
        step = found[1] - found[0]
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-3
