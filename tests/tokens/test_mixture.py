"""Promises of the mixture: exact ratios in every cycle, no drift, no memory of what was read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.recipe import UsageError
from eyas.tokens.mixture import CYCLE, Mixture, cycle_counts

THREE_HUNDRED = {f"s{n}": 0.5 + n % 7 for n in range(300)}
MIXTURES = [
    {"a": 0.001, "b": 0.999},
    {"a": 1.0, "b": 1.0, "c": 1.0},
    {"a": 0.0004, "none": 0.0, "b": 0.7, "c": 0.2996},
    THREE_HUNDRED,
]


def _made(weights: dict[str, float]) -> Mixture:
    return Mixture(list(cycle_counts(weights).values()), "key")


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.floats(0.1, 1000) | st.just(0.0),
        min_size=1,
        max_size=40,
    ).filter(lambda weights: any(weights.values()))
)
@settings(deadline=None)
def test_counts_fill_the_cycle_and_are_within_one_of_the_exact_share(
    weights: dict[str, float],
) -> None:
    counts = cycle_counts(weights)
    assert sum(counts.values()) == CYCLE
    total = sum(weights.values())
    for name, weight in weights.items():
        assert abs(counts[name] - weight / total * CYCLE) < 1 + 1e-6
        assert (counts[name] == 0) == (weight == 0)


def test_a_weight_of_four_in_ten_thousand_is_honoured() -> None:
    counts = cycle_counts({"rare": 0.0004, "most": 0.9996})
    assert counts == {"rare": 419, "most": CYCLE - 419}


def test_weights_are_taken_as_written_and_in_any_unit() -> None:
    assert cycle_counts({"a": 0.1, "b": 0.2, "c": 0.7}) == cycle_counts({"a": 1, "b": 2, "c": 7})


def test_a_weight_that_comes_to_nothing_is_named() -> None:
    with pytest.raises(UsageError, match=r'of "tiny" is less than one sample in 1,048,576; give'):
        cycle_counts({"tiny": 1e-9, "most": 1.0})
    with pytest.raises(UsageError, match="every weight is 0"):
        cycle_counts({"a": 0.0})


@pytest.mark.parametrize("weights", MIXTURES, ids=["rare", "thirds", "four", "300"])
def test_every_cycle_holds_the_exact_counts_and_every_index_comes_once_and_in_order(
    weights: dict[str, float],
) -> None:
    mixture, counts = _made(weights), list(cycle_counts(weights).values())
    source, index = mixture.place(np.arange(2 * CYCLE))
    for number, count in enumerate(counts):
        mine = index[source == number]
        assert np.array_equal(mine, np.arange(2 * count))
        assert np.count_nonzero(source[:CYCLE] == number) == count


@given(st.integers(0, 10**15), st.sampled_from(range(len(MIXTURES))))
@settings(deadline=None, max_examples=40)
def test_a_position_means_the_same_wherever_reading_starts(start: int, which: int) -> None:
    mixture = _kept(which)
    positions = np.arange(start, start + 50)
    source, index = mixture.place(positions)
    alone = [mixture.place(positions[i : i + 1]) for i in range(50)]
    assert source.tolist() == [int(s[0]) for s, _ in alone]
    assert index.tolist() == [int(i[0]) for _, i in alone]
    before = mixture.taken(start)
    assert int(before.sum()) == start
    for s, i in zip(source.tolist(), index.tolist(), strict=True):
        assert i == before[s]
        before[s] += 1
    first = int(source[0])
    mine = source == first
    assert np.array_equal(mixture.position(first, index[mine]), positions[mine])


_CACHE: dict[int, Mixture] = {}


def _kept(which: int) -> Mixture:
    if which not in _CACHE:
        _CACHE[which] = _made(MIXTURES[which])
    return _CACHE[which]


def test_positions_are_spread_over_the_cycle() -> None:
    source, _ = _made({"a": 0.01, "b": 0.99}).place(np.arange(CYCLE))
    shares = (source.reshape(64, -1) == 0).mean(axis=1)
    assert 0.007 < shares.min() < shares.max() < 0.013


def test_seed_and_origin_decide_the_positions() -> None:
    counts = [CYCLE // 2, CYCLE // 2]
    one, other = Mixture(counts, "feistel-mixture-1/1/0"), Mixture(counts, "feistel-mixture-1/1/5")
    same = (one.place(np.arange(4096))[0] == other.place(np.arange(4096))[0]).mean()
    assert 0.4 < same < 0.6


def test_the_positions_never_change_under_their_name() -> None:
    source, _ = Mixture([CYCLE // 4, 3 * CYCLE // 4], "feistel-mixture-1/1/0").place(np.arange(24))
    assert "".join(map(str, source.tolist())) == PINNED


PINNED = "111101111111111111101101"


def test_one_source_needs_no_table() -> None:
    source, index = Mixture([0, CYCLE, 0], "key").place(np.array([0, 10**15]))
    assert (source.tolist(), index.tolist()) == ([1, 1], [0, 10**15])
    assert Mixture([0, CYCLE], "key").taken(7).tolist() == [0, 7]
