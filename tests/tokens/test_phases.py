"""Promises of milestones and caps: what changes when, and that nothing is read twice for it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.planned import BLOCK, WINDOW, known, phase, planned

from eyas.recipe import UsageError
from eyas.tokens.data_plan import DataPlan
from eyas.tokens.grid import Grid
from eyas.tokens.order import ShuffledOrder, carried
from eyas.tokens.plan_sources import PlanSources


def test_tokens_seen_add_up_over_every_change() -> None:
    plan = planned(
        known({"a": [90_000], "b": [90_000]}),
        phase(0, 10, a=1.0, b=1.0),
        phase(10, 7, batch=6, a=1.0, b=1.0),
        phase(17, 5, sequence=16, batch=6, a=1.0, b=2.0),
    )
    assert [s.tokens_seen for s in plan.segments] == [0, 320, 656]
    assert plan.tokens == 656 + 5 * 96
    assert [s.first_sample for s in plan.segments] == [0, 40, 82]
    assert [s.origin for s in plan.segments] == [0, 0, 82]


def test_a_source_that_reaches_its_epochs_is_left_out_and_the_others_share_by_weight() -> None:
    sources = known({"small": [400], "b": [40_000], "c": [40_000]}, {"small": 2, "b": 9, "c": 9})
    plan = planned(sources, phase(0, 400, small=0.5, b=0.3, c=0.2))
    first, second = plan.segments
    samples = first.sources[0].samples
    taken = int(first.taken(first.stop_sample)[0])
    assert taken <= 2 * samples < taken + 4, "as many whole steps as the cap allows"
    assert [s.weight for s in second.sources] == [0.5, 0.3, 0.2]
    counts = [s.count for s in second.sources]
    assert counts[0] == 0
    assert counts[1] / counts[2] == pytest.approx(1.5, abs=1e-5)
    assert second.first_step + second.steps == 400
    assert plan.epochs()["small"] == taken / samples
    (note,) = plan.notes()
    assert f'"small" has been seen {taken / samples:.2f} times at step {second.first_step}' in note
    assert "may be seen 2 times" in note


def test_a_cap_is_never_passed_and_never_missed_by_a_step() -> None:
    for cap in (0.3, 1, 1.7, 2):
        sources = known({"a": [500, 70], "b": [40_000]}, {"a": cap, "b": 9})
        plan = planned(sources, phase(0, 300, a=0.7, b=0.3))
        before, after = plan.segments
        most = int(cap * before.sources[0].samples)
        assert before.taken(before.stop_sample)[0] <= most
        longer = before.sample_after(before.stop_step + 1)
        assert before.taken(longer)[0] > most
        assert after.taken(after.stop_sample)[0] == before.taken(before.stop_sample)[0]


def test_a_milestone_that_asks_for_an_exhausted_source_again_leaves_it_out_too() -> None:
    sources = known({"a": [640], "b": [40_000]}, {"a": 1, "b": 9})
    plan = planned(
        sources,
        phase(0, 50, a=1.0, b=1.0),
        phase(50, 50, a=0.5, b=1.0),
        phase(100, 9, a=0.0, b=1.0),
    )
    assert plan.epochs()["a"] <= 1
    assert len(plan.notes()) == 1
    assert plan.segments[-1].sources[0].weight == 0


def test_a_run_that_no_source_can_feed_is_refused_with_what_would_be_legal() -> None:
    sources = known({"a": [640], "b": [1280]}, 1)
    with pytest.raises(UsageError, match="more than the sources") as caught:
        planned(sources, phase(0, 100, a=1.0, b=1.0))
    legal = int(str(caught.value).split("set train.tokens to ")[1].split()[0])
    steps, rest = divmod(legal, 32)
    assert not rest
    assert planned(sources, phase(0, steps, a=1.0, b=1.0)).steps == steps
    with pytest.raises(UsageError, match=r"train\.tokens"):
        planned(sources, phase(0, steps + 1, a=1.0, b=1.0))


def _epoch_reads(plan: DataPlan, sources: PlanSources) -> Counter[tuple[str, int, int, int]]:
    """How often each token (source, epoch, object, position) is a target."""
    reads: Counter[tuple[str, int, int, int]] = Counter()
    for step in range(plan.steps):
        segment = plan.segment(step)
        chosen = segment.selection(step)
        for number, source in enumerate(segment.sources):
            mine = chosen.index[chosen.source == number]
            grid = sources.grid(number, segment.sequence)
            places = ShuffledOrder(grid, segment.seed, WINDOW).places(mine)
            for i, epoch in enumerate((mine // grid.samples).tolist()):
                at = int(places.object[i])
                base = int(places.block[i]) * BLOCK
                reads.update(
                    (source.name, epoch, at, base + t)
                    for t in range(int(places.start[i]), int(places.stop[i]))
                )
    return reads


@pytest.mark.parametrize("sequences", [(8, 16, 32), (32, 8, 24), (64, 5, 64)])
def test_no_token_is_read_twice_in_an_epoch_however_the_sequence_changes(
    sequences: tuple[int, ...],
) -> None:
    sources = known({"a": [BLOCK * 20 + 7, BLOCK * 9], "b": [BLOCK * 3 + 5, 40]})
    phases = [phase(12 * i, 12, sequence, 5, a=0.6, b=0.4) for i, sequence in enumerate(sequences)]
    reads = _epoch_reads(planned(sources, *phases), sources)
    assert max(reads.values()) == 1


def test_what_a_change_of_sequence_leaves_unread_is_told() -> None:
    sources = known({"a": [BLOCK * 40], "b": [BLOCK * 2]})
    plan = planned(sources, phase(0, 2, a=0.5, b=0.5), phase(2, 2, 16, a=0.5, b=0.5))
    before, after = plan.segments
    read, begun = before.taken(8), after.taken(8)
    assert [s.samples for s in before.sources] == [320, 16]
    assert begun.tolist() == [16, 8], "the next window of 4 blocks, the next epoch"
    assert plan.notes() == [
        f'source "{name}": where data.sequence changes, at step 2, '
        f"{begun[i] / after.sources[i].samples - read[i] / before.sources[i].samples:.0%} of an "
        "epoch is left unread and counts as read"
        for i, name in enumerate("ab")
    ]
    whole = planned(sources, phase(0, 8, a=1.0, b=0.0), phase(8, 2, 16, a=1.0, b=0.0))
    assert whole.notes() == [], "the first window is read, the other source was not begun"


def test_a_source_without_a_token_is_no_obstacle_as_long_as_nothing_is_taken() -> None:
    sources = known({"a": [BLOCK * 9], "none": []})
    plan = planned(sources, phase(0, 2, a=1.0, none=0.0), phase(2, 2, sequence=16, a=1.0, none=0.0))
    assert plan.epochs()["none"] == 0.0


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=12),
    st.integers(3, 32),
    st.integers(3, 32),
    st.integers(0, 500),
)
@settings(deadline=None)
def test_after_a_change_of_sequence_a_source_goes_on_at_the_next_window(
    sizes: list[int], before: int, after: int, number: int
) -> None:
    old, new = Grid.cut(sizes, 32, before), Grid.cut(sizes, 32, after)
    first = carried(old, new, number, 1, 3)
    epoch = number // old.samples

    def blocks(grid: Grid, numbers: range) -> set[tuple[int, int]]:
        places = ShuffledOrder(grid, 1, 3).places(np.array(numbers, np.int64))
        return set(zip(places.object.tolist(), places.block.tolist(), strict=True))

    read = blocks(old, range(epoch * old.samples, number))
    left = blocks(new, range(first, (epoch + 1) * new.samples))
    assert not read & left
    unseen = old.blocks - len(read | left)
    assert 0 <= unseen < 3, "no more than the rest of one window is passed over"
    assert carried(old, old, epoch * old.samples, 1, 3) == epoch * old.samples
