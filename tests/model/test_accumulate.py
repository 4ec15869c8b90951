"""Gradients that are added where they are kept."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from eyas.model import Network, accumulate_into, initial_weights, network_from, projected_loss
from eyas.model.accumulate import Embedding, Linear
from eyas.shape import ModelShape

FALCON = ModelShape(
    name="falcon",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=64,
    vocab_size=97,
    max_sequence=16,
)
JURASSIC = dataclasses.replace(
    FALCON,
    name="jurassic",
    n_kv_heads=4,
    n_norms=2,
    block="sequential",
    positions="learned",
    bias=True,
)
LLAMA = dataclasses.replace(
    FALCON,
    name="llama",
    n_kv_heads=2,
    n_norms=2,
    block="sequential",
    norm="rmsnorm",
    activation="swiglu",
    tied=False,
)
SHAPES = [FALCON, JURASSIC, LLAMA]


def _network(shape: ModelShape, dtype: torch.dtype = torch.float64) -> Network:
    weights = initial_weights(shape, seed=3)
    return network_from(shape, {name: _moved(w).to(dtype) for name, w in weights.items()})


def _moved(weight: Tensor) -> Tensor:
    """First biases are zero and first norms the identity, where a mistake might not show."""
    return weight + 0.1 * torch.arange(len(weight)).sin() if weight.dim() == 1 else weight


def _kept(network: Network) -> dict[str, Tensor]:
    kept = {n: torch.zeros_like(p) for n, p in network.named_parameters()}
    for name, parameter in network.named_parameters():
        accumulate_into(parameter, kept[name])
    return kept


def _backward(network: Network, seed: int, factor: float = 1.0) -> None:
    ids = torch.randint(0, 97, (3, 12), generator=torch.Generator().manual_seed(seed))
    (network(ids).logsumexp(-1).sum() * factor).backward()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_added_gradients_equal_those_of_autograd_over_micro_batches(shape: ModelShape) -> None:
    plain, network = _network(shape), _network(shape)
    kept = _kept(network)
    for seed, factor in ((1, 1.0), (2, -0.5)):
        _backward(plain, seed, factor)
        _backward(network, seed, factor)
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(kept[name], parameter.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_gradients_stay_in_the_memory_they_were_given(shape: ModelShape) -> None:
    network = _network(shape)
    kept = _kept(network)
    _backward(network, 1)
    for name, parameter in network.named_parameters():
        assert parameter.grad is kept[name]
        assert kept[name].abs().sum() > 0


def test_float32_gradients_of_a_step_equal_float64_autograd() -> None:
    exact, network = _network(FALCON), _network(FALCON, torch.float32)
    kept = _kept(network)
    ids = torch.randint(0, 97, (3, 13), generator=torch.Generator().manual_seed(5))
    _backward_loss(exact, ids, into=False)
    _backward_loss(network, ids, into=True)
    for name, parameter in exact.named_parameters():
        assert parameter.grad is not None
        error = (kept[name] - parameter.grad).norm() / parameter.grad.norm()
        assert error < 1e-5, name


def _backward_loss(network: Network, ids: Tensor, into: bool) -> None:
    head = network.head_weight_VD
    x_BTD = network.features(ids[:, :-1])
    projected_loss(x_BTD, head, ids[:, 1:], None, 1e-3, head.grad if into else None)[0].backward()


def test_the_look_up_adds_its_rows_only() -> None:
    """What stands in other rows is not even written: there a NaN stays a NaN and no other comes."""
    embedding = Embedding(5, 4)
    gradient = torch.zeros(5, 4)
    gradient[3] = torch.nan
    accumulate_into(embedding.weight, gradient)
    embedding(torch.tensor([[1, 1, 4]])).sum().backward()
    rows = [0.0, 2.0, 0.0, torch.nan, 1.0]
    expected = torch.tensor(rows).unsqueeze(1).expand(5, 4)
    torch.testing.assert_close(gradient, expected, equal_nan=True)


def test_under_autocast_the_gradient_arrives_all_the_same() -> None:
    torch.manual_seed(1)
    linear, x = Linear(8, 6, bias=False), torch.randn(3, 8)
    gradient = torch.zeros(6, 8)
    accumulate_into(linear.weight, gradient)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = linear(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    torch.testing.assert_close(gradient, x.sum(0).expand(6, 8), rtol=2e-2, atol=2e-2)


def test_a_weight_that_nobody_keeps_a_gradient_for_is_left_to_autograd() -> None:
    linear = Linear(8, 6)
    (found,) = torch.autograd.grad(linear(torch.ones(2, 8)).sum(), linear.weight)
    assert torch.equal(found, torch.full((6, 8), 2.0))
    assert linear.weight.grad is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_block_that_is_computed_again_in_backward_gives_the_same_gradients(
    reentrant: bool,
) -> None:
    plain, network = _network(FALCON), _network(FALCON)
    wanted, kept = _kept(plain), _kept(network)
    _backward(plain, 1)
    for block in network.blocks:
        forward = block.forward
        block.forward = functools.partial(checkpoint, forward, use_reentrant=reentrant)  # type: ignore[method-assign]
    _backward(network, 1)
    for name in wanted:
        torch.testing.assert_close(kept[name], wanted[name], rtol=1e-12, atol=1e-12)


def test_tensors_that_were_moved_away_and_back_give_the_same_gradients() -> None:
    plain, network = _network(LLAMA), _network(LLAMA)
    wanted, kept = _kept(plain), _kept(network)
    _backward(plain, 1)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.numpy().copy(), torch.from_numpy):
        _backward(network, 1)
    for name in wanted:
        torch.testing.assert_close(kept[name], wanted[name], rtol=1e-12, atol=1e-12)


def test_a_frozen_weight_gets_no_gradient() -> None:
    network = _network(FALCON)
    kept = _kept(network)
    network.embedding.requires_grad_(False)
    network.blocks[0].requires_grad_(False)
    _backward(network, 1)
    for name, gradient in kept.items():
        frozen = name.startswith(("embedding.", "blocks.0."))
        assert bool(gradient.any()) is not frozen, name


def test_a_gradient_that_was_thrown_away_is_told() -> None:
    network = _network(FALCON)
    _kept(network)
    network.zero_grad()
    with pytest.raises(RuntimeError, match=r"zero_grad\(set_to_none=False\)"):
        _backward(network, 1)
