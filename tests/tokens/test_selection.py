"""Promises of segments: which samples a step selects, of which source, and which rank gets them."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.planned import BLOCK, known, phase, planned

from eyas.recipe import UsageError
from eyas.tokens.data_plan import DataPlan
from eyas.tokens.grid import Places
from eyas.tokens.mixture import CYCLE
from eyas.tokens.order import ShuffledOrder
from eyas.tokens.selection import rank_rows, reading_order, unskipped


def _read(plan: DataPlan) -> dict[str, list[int]]:
    """Numbers within each source, as the plan reads them."""
    found: dict[str, list[int]] = defaultdict(list)
    for step in range(plan.steps):
        segment = plan.segment(step)
        chosen = segment.selection(step)
        assert len(chosen.samples) == len(chosen.source) == len(chosen.index) == segment.batch
        for source, index in zip(chosen.source.tolist(), chosen.index.tolist(), strict=True):
            found[segment.sources[source].name].append(index)
    return found


def test_a_step_selects_its_batch_with_source_and_number_within_it() -> None:
    plan = planned(known({"a": [5000]}), phase(0, 10))
    chosen = plan.segment(7).selection(7)
    assert chosen.samples.tolist() == chosen.index.tolist() == [28, 29, 30, 31]
    assert (chosen.samples.dtype, chosen.source.dtype, chosen.index.dtype) == (
        np.int64,
        np.int16,
        np.int64,
    )
    assert not chosen.source.any()


def test_every_source_is_read_in_order_without_gap_over_every_change_of_weights_and_batch() -> None:
    plan = planned(
        known({"a": [9000], "b": [7000, 300], "c": [4000]}),
        phase(0, 60, a=0.6, b=0.3, c=0.1),
        phase(60, 30, batch=9, a=0.6, b=0.3, c=0.1),
        phase(90, 50, batch=9, a=0.1, b=0.1, c=0.8),
        phase(140, 20, batch=5, a=1.0, b=1.0, c=0.0),
    )
    for indices in _read(plan).values():
        assert indices == list(range(len(indices)))


def test_a_change_of_the_batch_alone_goes_on_in_the_same_cycle() -> None:
    sources = known({"a": [9000], "b": [9000]})
    plain = planned(sources, phase(0, 90, a=0.3, b=0.7))
    ramp = planned(sources, phase(0, 30, a=0.3, b=0.7), phase(30, 30, batch=8, a=0.3, b=0.7))
    assert _read(plain) == _read(ramp)
    assert {s.origin for s in ramp.segments} == {0}
    assert [s.first_sample for s in ramp.segments] == [0, 120]


def test_ratios_are_exact_in_each_cycle_of_a_segment() -> None:
    segment = planned(
        known({"a": [10**7], "b": [10**7]}, epochs=10.0**6),
        phase(0, 3 * 2**10, 8, 2**10, a=0.001, b=0.999),
    ).segments[0]
    taken = [segment.taken(cycle * CYCLE) for cycle in range(4)]
    assert [(b - a).tolist() for a, b in itertools.pairwise(taken)] == [[1049, CYCLE - 1049]] * 3


ranges = st.lists(st.integers(0, 200), max_size=12, unique=True).map(sorted)


@given(ranges, st.integers(1, 50))
@settings(deadline=None)
def test_skipped_ranges_are_jumped_over_and_nothing_else(edges: list[int], count: int) -> None:
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    skipped = tuple((a, b) for a, b in pairs if not any(a == stop for _, stop in pairs))
    out = {n for first, stop in skipped for n in range(first, stop)}
    expected = [n for n in range(500) if n not in out][:count]
    assert unskipped(np.arange(count), skipped).tolist() == expected


@given(st.integers(1, 60), st.integers(1, 17))
def test_ragged_parts_cover_the_batch_and_differ_by_one_at_most(batch: int, world: int) -> None:
    parts = [rank_rows(batch, rank, world, ragged=True) for rank in range(world)]
    assert [n for part in parts for n in range(part.first, part.stop)] == list(range(batch))
    sizes = [part.stop - part.first for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert {part.height for part in parts} == {max(sizes)}


def test_without_ragged_parts_are_equal_or_the_world_is_refused_with_what_is_legal() -> None:
    parts = [rank_rows(12, rank, 4) for rank in range(4)]
    assert [(p.first, p.stop, p.height) for p in parts] == [
        (0, 3, 3),
        (3, 6, 3),
        (6, 9, 3),
        (9, 12, 3),
    ]
    with pytest.raises(
        UsageError, match=r"12 sequences .* by 5 .* 1, 2, 3, 4, 6, 12, or any with data\.ragged"
    ):
        rank_rows(12, 0, 5)
    with pytest.raises(UsageError, match="rank 4 is not in a world of 4"):
        rank_rows(12, 4, 4)


def test_a_rank_reads_few_blocks_of_a_batch() -> None:
    source = known({"a": [BLOCK * 400], "b": [BLOCK * 300]})
    segment = planned(source, phase(0, 1, 4, 256, a=1.0, b=1.0)).segments[0]
    chosen = segment.selection(0)
    places = [
        ShuffledOrder(source.grid(n, 4), 1, 8).places(chosen.index[chosen.source == n])
        for n in range(2)
    ]
    joined = Places(*(np.concatenate([getattr(p, f) for p in places]) for f in FIELDS))
    of = np.sort(chosen.source)
    rows = reading_order(of, joined)
    keys = list(zip(of.tolist(), joined.object.tolist(), joined.block.tolist(), strict=True))
    ordered = [keys[row] for row in rows]
    assert ordered == sorted(keys)
    whole = len(set(keys))
    for rank in range(8):
        part = rank_rows(256, rank, 8)
        assert len(set(ordered[part.first : part.stop])) <= whole / 8 + 2


FIELDS = ("object", "block", "start", "stop")
