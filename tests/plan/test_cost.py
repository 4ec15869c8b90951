"""Promises: memory counts what the real network keeps; work divides as the layout says."""

import dataclasses
import math

import pytest
import torch

from eyas.model import Network, initial_weights, network_from
from eyas.plan import cost
from eyas.plan.cost import Work, memory_by_kind, seconds_by_kind
from eyas.shape import Layout, parameters, preset_shape, tensor_slices

torch.set_num_threads(1)
NANO = preset_shape("nano-1m")
VARIANTS = {
    "multi-query": NANO,
    "two norms, grouped": dataclasses.replace(NANO, n_norms=2, n_kv_heads=2, n_layers=3),
    "falcon-rw": dataclasses.replace(
        NANO, block="sequential", n_norms=2, n_kv_heads=4, positions="alibi", bias=True
    ),
    "jurassic": dataclasses.replace(
        NANO, block="sequential", n_norms=2, n_kv_heads=4, positions="learned", bias=True
    ),
    "llama": dataclasses.replace(
        NANO,
        block="sequential",
        n_norms=2,
        n_kv_heads=2,
        norm="rmsnorm",
        activation="swiglu",
        d_ff=384,
        tied=False,
    ),
    "multi-head, wide": dataclasses.replace(NANO, n_kv_heads=4, d_ff=777, tied=False),
}


def saved_bytes(network: Network, ids: torch.Tensor) -> int:
    """What autograd keeps of a forward pass, each storage once, parameters not."""
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = network.features(ids)
    kept[features.untyped_storage().data_ptr()] = features  # the loss keeps it
    kept[-1] = torch.empty_like(features)  # ... and makes its gradient at once
    return sum(t.untyped_storage().nbytes() for t in kept.values())


@pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS)
def test_activations_are_what_autograd_keeps(shape):
    network = network_from(shape, initial_weights(shape, 1)).requires_grad_(True)
    work = Work(shape, Layout(micro_batch=4), sequence=128, sequences=4)
    counted = saved_bytes(network, torch.zeros(4, 128, dtype=torch.int64))
    assert 4 * cost._saved_numbers(work) == pytest.approx(counted, rel=0.01)


def test_weights_gradients_and_moments_are_sixteen_bytes_a_parameter():
    kinds = memory_by_kind(Work(NANO, Layout(), 64, 8))
    state = kinds["weights"] + kinds["gradients"] + kinds["optimizer"]
    assert state == 16 * parameters(NANO)


def test_a_tensor_rank_keeps_only_its_slices():
    kinds = memory_by_kind(Work(NANO, Layout(tensor=2), 64, 8))
    numbers = sum(math.prod(size) for _, size in tensor_slices(NANO, 2, 0).values())
    assert kinds["weights"] == 4 * numbers
    assert numbers < parameters(NANO)


def test_activations_grow_with_the_micro_batch_and_not_with_the_batch():
    small, large, many = (
        memory_by_kind(Work(NANO, Layout(micro_batch=m), 64, n))["activations"]
        for m, n in ((1, 8), (4, 8), (1, 64))
    )
    assert large == pytest.approx(4 * small, rel=0.001)
    assert many == small


def test_seconds_go_with_the_rate_and_the_tokens():
    work = Work(NANO, Layout(micro_batch=2), 128, 8)
    slow, fast = (seconds_by_kind(work, rate) for rate in (1e10, 2e10))
    double = seconds_by_kind(dataclasses.replace(work, sequences=16), 1e10)
    for kind in ("matmul", "attention", "pointwise", "loss"):
        assert slow[kind] == pytest.approx(2 * fast[kind])
        assert double[kind] == pytest.approx(2 * slow[kind])
    assert double["optimizer"] == slow["optimizer"]


def test_matmul_time_is_the_flops_at_the_rate_torch_reaches():
    work = Work(NANO, Layout(), 128, 1)
    numbers = parameters(NANO) - NANO.d_model * (2 * NANO.n_layers + 2)
    wanted = 6 * numbers * 128 / (0.9 * 1e10)
    assert seconds_by_kind(work, 1e10)["matmul"] == pytest.approx(wanted)


def test_matmul_time_leaves_out_the_table_of_learned_positions():
    learned = dataclasses.replace(NANO, positions="learned")
    rotary, table = (seconds_by_kind(Work(s, Layout(), 128, 1), 1e10) for s in (NANO, learned))
    assert table["matmul"] == rotary["matmul"]
    assert table["optimizer"] > rotary["optimizer"]


def test_a_sequential_block_sums_twice_over_the_tensor_ranks():
    parallel = dataclasses.replace(NANO, n_norms=2)
    sequential = dataclasses.replace(parallel, block="sequential")
    one, two = (
        seconds_by_kind(Work(shape, Layout(tensor=2), 128, 8), 1e10)["communication"]
        for shape in (parallel, sequential)
    )
    assert two / one == pytest.approx(4 / 3, rel=0.05)


def test_one_rank_says_nothing_and_more_ranks_pay_for_it():
    alone, data, tensor = (
        seconds_by_kind(Work(NANO, layout, 128, 8), 1e10)["communication"]
        for layout in (Layout(), Layout(data=2), Layout(tensor=2))
    )
    assert alone == 0
    assert data > 4 * parameters(NANO) / 2e9
    assert tensor > 0
