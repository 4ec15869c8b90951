"""Every layout computes what one process computes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from tests.gloo import run_ranks
from tests.train.ranks import Case, Trained, few_steps

from eyas.recipe import Train
from eyas.shape import Layout, ModelShape

MULTI_QUERY = ModelShape(
    name="mqa",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=64,
    vocab_size=97,
    max_sequence=64,
)
GROUPED = dataclasses.replace(MULTI_QUERY, name="gqa", n_kv_heads=2, n_norms=2, tied=False)
OTHERS = [
    dataclasses.replace(
        MULTI_QUERY,
        name="falcon-rw",
        n_kv_heads=4,
        n_norms=2,
        block="sequential",
        positions="alibi",
        bias=True,
    ),
    dataclasses.replace(
        MULTI_QUERY,
        name="jurassic",
        n_kv_heads=4,
        n_norms=2,
        block="sequential",
        positions="learned",
        bias=True,
    ),
    dataclasses.replace(
        MULTI_QUERY,
        name="llama",
        n_kv_heads=2,
        n_norms=2,
        block="sequential",
        norm="rmsnorm",
        activation="swiglu",
        tied=False,
    ),
    # Biases of one kv head that all ranks share, in a parallel block.
    dataclasses.replace(MULTI_QUERY, name="biased", n_norms=2, bias=True),
]
SHAPES = [MULTI_QUERY, GROUPED, *OTHERS]
KEYS = Train(weight_decay=0.1, grad_clip=0.3, z_loss=1e-3)
LOW = dataclasses.replace(KEYS, precision="bfloat16")
STEPS = 6
LAYOUTS = [
    Layout(1, 1, 3),
    Layout(1, 2, 6),
    Layout(2, 1, 12),
    Layout(1, 3, 2),
    Layout(2, 2, 2),
    Layout(4, 1, 6),
]
CASES = [Case(shape, layout, KEYS, True) for shape in SHAPES for layout in LAYOUTS]
CASES += [Case(MULTI_QUERY, layout, KEYS) for layout in LAYOUTS]
CASES += [Case(MULTI_QUERY, Layout(2, 1, 12), LOW)]
CASES += [Case(shape, Layout(1, 1, 12), KEYS, True) for shape in SHAPES]
CASES += [Case(MULTI_QUERY, Layout(1, 1, 12), KEYS)]


@functools.cache
def _world(world: int) -> dict[Case, list[Trained]]:
    """All cases of as many ranks, run once: case to what each rank came to."""
    cases = [case for case in CASES if case.layout.world == world]
    ranks = run_ranks(few_steps, world, cases, STEPS, timeout=120)
    return {case: [rank[n] for rank in ranks] for n, case in enumerate(cases)}


def _ranks(case: Case) -> list[Trained]:
    return _world(case.layout.world)[case]


def _alone(shape: ModelShape, double: bool = False) -> Trained:
    return _ranks(Case(shape, Layout(1, 1, 12), KEYS, double))[0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda lay: f"tp{lay.tensor}dp{lay.data}mb{lay.micro_batch}"
)
def test_every_layout_equals_one_process_in_float64(shape: ModelShape, layout: Layout) -> None:
    alone = _alone(shape, double=True)
    for rank in _ranks(Case(shape, layout, KEYS, True)):
        for ours, theirs in zip(rank.results, alone.results, strict=True):
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-9)
            assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-9)
            assert ours.tokens == theirs.tokens
            assert ours.sums == (layout.world,)
        for tensor, (offset, part) in rank.weights.items():
            whole = alone.weights[tensor][1]
            box = tuple(slice(o, o + n) for o, n in zip(offset, part.shape, strict=True))
            np.testing.assert_allclose(part, whole[box], rtol=0, atol=1e-9, err_msg=tensor)


@pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda lay: f"tp{lay.tensor}dp{lay.data}mb{lay.micro_batch}"
)
def test_float32_differs_by_rounding_only(layout: Layout) -> None:
    alone = _alone(MULTI_QUERY)
    results = _ranks(Case(MULTI_QUERY, layout, KEYS))[0].results
    assert results[0].loss == pytest.approx(alone.results[0].loss, rel=1e-6)
    for ours, theirs in zip(results, alone.results, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-4)


@pytest.mark.parametrize("layout", [Layout(2, 2, 2), Layout(4, 1, 6), Layout(1, 3, 2)])
def test_ranks_that_hold_the_same_slice_hold_the_same_bits(layout: Layout) -> None:
    ranks = _ranks(Case(MULTI_QUERY, layout, KEYS))
    for name, (offset, part) in ranks[0].weights.items():
        for other in ranks[1:]:
            if other.weights[name][0] == offset:
                np.testing.assert_array_equal(other.weights[name][1], part, err_msg=name)


def test_bfloat16_trains_close_to_float32_on_float32_masters() -> None:
    low = _ranks(Case(MULTI_QUERY, Layout(2, 1, 12), LOW))[0]
    for ours, theirs in zip(low.results, _alone(MULTI_QUERY).results, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=2e-2)
        assert ours.loss != theirs.loss
    assert all(part.dtype == np.float32 for _, part in low.weights.values())
