"""Masters: laid out, updated and saved as the optimizer and the checkpoint expect."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from eyas.model import Network, initial_slice, initial_weights
from eyas.recipe import Train
from eyas.shape import ModelShape, parameter_table, tensor_slices
from eyas.train.masters import Masters

SHAPE = ModelShape(
    name="small",
    n_layers=2,
    d_model=24,
    n_heads=4,
    n_kv_heads=2,
    head_dim=6,
    d_ff=40,
    vocab_size=31,
    max_sequence=64,
    n_norms=2,
    tied=False,
)
KEYS = Train(weight_decay=0.3, beta1=0.8, beta2=0.9)


def _masters(tensor: int = 1, rank: int = 0, shape: ModelShape = SHAPE) -> Masters:
    return Masters(
        shape,
        tensor,
        rank,
        KEYS,
        lambda name, offset, size: initial_slice(shape, 3, name, offset, size),
    )


def _network(masters: Masters) -> Network:
    network = Network(SHAPE)
    masters.install(network)
    return network


def test_the_update_is_torchs_adamw_with_decay_on_matrices_only() -> None:
    masters = _masters()
    network = _network(masters)
    plain = {n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()}
    groups = [
        {"params": [p for p in plain.values() if p.dim() == 2], "weight_decay": 0.3},
        {"params": [p for p in plain.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8)
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        for name, parameter in network.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            assert parameter.grad is not None
            parameter.grad.copy_(gradient)
            plain[name].grad = gradient * 0.5
        masters.update(0.01 * (step + 1), 0.5)
        for group in theirs.param_groups:
            group["lr"] = 0.01 * (step + 1)
        theirs.step()
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(parameter.detach(), plain[name].detach(), msg=name)


def test_initial_weights_are_those_of_the_model_room() -> None:
    network = _network(_masters())
    expected = initial_weights(SHAPE, 3)
    assert {n for n, _ in network.named_parameters()} == set(expected)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter.detach(), expected[name]), name


def test_backward_accumulates_into_the_vector() -> None:
    masters = _masters()
    network = _network(masters)
    for _ in range(2):
        network(torch.arange(8).view(1, 8)).sum().backward()
    once = masters.gradients.clone()
    masters.clear()
    network(torch.arange(8).view(1, 8)).sum().backward()
    torch.testing.assert_close(once, 2 * masters.gradients)
    assert float(once.abs().sum()) > 0


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_the_squared_norm_counts_a_shared_slice_once(tensor: int) -> None:
    total = 0.0
    for rank in range(tensor):
        masters = _masters(tensor, rank)
        for part in masters.slices(list(parameter_table(SHAPE))):
            if part.name.startswith("model."):
                part.tensor.fill_(0)  # padding between slices must not count either
        masters.gradients.copy_(masters.weights)
        for name, (_, size) in tensor_slices(SHAPE, tensor, rank).items():
            masters._places[name].of(masters.gradients).fill_(2.0)
            assert size
        total += masters.squared_norm()
    assert total == pytest.approx(4.0 * sum(p.numel() for p in Network(SHAPE).parameters()))


def test_key_and_value_are_partial_only_where_ranks_share_them() -> None:
    assert _masters(2).partials() == []
    [shared] = _masters(4).partials()
    assert shared.numel() == 2 * 2 * 6 * 24  # key and value, two layers, one head each
    assert len(_masters(2, 0, dataclasses.replace(SHAPE, n_kv_heads=1)).partials()) == 1


def test_shared_biases_are_partial_beside_their_matrices() -> None:
    matrices, biases = _masters(4, 0, dataclasses.replace(SHAPE, bias=True)).partials()
    assert matrices.numel() == 2 * 2 * 6 * 24
    assert biases.numel() == 2 * 2 * 16  # six numbers each, laid out in steps of sixteen


def test_what_is_saved_is_what_is_wanted_and_brings_everything_back() -> None:
    first = _masters(2, 1)
    first.gradients.normal_(generator=torch.Generator().manual_seed(1))
    first.update(0.01, 1.0)
    saved = {s.name: s for s in first.slices(list(parameter_table(SHAPE)))}
    wanted = first.wanted()
    assert {n: (s.offset, tuple(s.tensor.shape)) for n, s in saved.items()} == wanted
    second = _masters(2, 1)
    second.adopt({n: s.tensor.clone() for n, s in saved.items()}, 1)
    for masters in (first, second):
        masters.gradients.fill_(0.25)
        masters.update(0.02, 1.0)
    again = {s.name: s.tensor for s in second.slices(list(parameter_table(SHAPE)))}
    for name, part in saved.items():
        assert torch.equal(part.tensor, again[name]), name
