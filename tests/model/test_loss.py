"""Promises: the loss and its gradients are those of plain autograd, in bounded memory."""

import sys

import pytest
import torch

import eyas.model
from eyas.model import loss, projected_loss

torch.set_num_threads(1)
module = sys.modules[eyas.model.loss.__module__]


@pytest.fixture
def data():
    g = torch.Generator().manual_seed(0)
    features = torch.randn(3, 17, 24, generator=g)
    head = torch.randn(301, 24, generator=g) * 0.4
    targets = torch.randint(0, 301, (3, 17), generator=g)
    mask = torch.rand(3, 17, generator=g) < 0.7
    return features, head, targets, mask


def plain(features, head, targets, mask, z_loss):
    """In float64 by autograd, from the definition."""
    features = features.double().requires_grad_()
    head = head.double().requires_grad_()
    logits = features @ head.T
    log_z = torch.logsumexp(logits, -1)
    each = log_z - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) + z_loss * log_z.square()
    total = each[mask].sum()
    total.backward()
    return total.detach(), features.grad, head.grad


@pytest.mark.parametrize("z_loss", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("chunk", [1, 301 * 5, 2**22])
@pytest.mark.parametrize("projected", [False, True])
def test_loss_and_gradients_equal_float64_autograd(data, monkeypatch, z_loss, chunk, projected):
    monkeypatch.setattr(module, "_CHUNK_NUMBERS", chunk)
    monkeypatch.setattr(module, "_CHUNK_ROWS", 1)
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, z_loss)
    x, w = features.clone().requires_grad_(), head.clone().requires_grad_()
    if projected:
        total, count = projected_loss(x, w, targets, mask, z_loss)
    else:
        total, count = loss(x @ w.T, targets, mask, z_loss)
    (total / 7).backward()
    assert total.dtype == torch.float32
    assert int(count) == int(mask.sum())
    assert float(total.detach()) == pytest.approx(float(wanted[0]), rel=1e-6)
    for found, exact in ((x.grad, wanted[1] / 7), (w.grad, wanted[2] / 7)):
        assert float((found - exact).norm() / exact.norm()) < 1e-5


def test_masked_targets_may_be_anything_and_change_nothing(data):
    features, head, targets, mask = data
    logits = features @ head.T
    wild = torch.where(mask, targets, -100)
    assert torch.equal(loss(logits, wild, mask)[0], loss(logits, targets, mask)[0])
    x = logits.clone().requires_grad_()
    loss(x, wild, mask)[0].backward()
    assert torch.all(x.grad[~mask] == 0)
    none = torch.zeros_like(mask)
    total, count = projected_loss(features, head, wild, none)
    assert (float(total), int(count)) == (0.0, 0)


def test_without_a_gradient_none_is_computed(data):
    features, head, targets, mask = data
    with torch.no_grad():
        total, _ = projected_loss(features, head, targets, mask, 1e-4)
    assert not total.requires_grad
    assert float(total) == pytest.approx(float(loss(features @ head.T, targets, mask, 1e-4)[0]))


def test_under_autocast_only_the_products_are_rounded(data):
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, 1e-4)
    x, w = features.clone().requires_grad_(), head.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = projected_loss(x, w, targets, mask, 1e-4)
    total.backward()
    assert total.dtype == x.grad.dtype == w.grad.dtype == torch.float32
    assert float(total.detach()) == pytest.approx(float(wanted[0]), rel=5e-3)
    for found, exact in ((x.grad, wanted[1]), (w.grad, wanted[2])):
        assert float((found - exact).norm() / exact.norm()) < 2e-2


def test_huge_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    total, _ = loss(logits, torch.tensor([1]), z_loss=0.0)
    total.backward()
    assert float(total.detach()) == pytest.approx(2e4)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("bad", ["targets", "mask"])
def test_shapes_that_disagree_are_refused(data, bad):
    features, head, targets, mask = data
    if bad == "targets":
        targets = targets[:, :-1]
    else:
        mask = mask[:, :-1]
    with pytest.raises(ValueError, match=bad):
        projected_loss(features, head, targets, mask)


def test_no_tensor_larger_than_a_chunk_of_logits_is_made(data, monkeypatch):
    """By torch's own account of every operation's output."""
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.setattr(module, "_CHUNK_NUMBERS", 301 * 8)
    monkeypatch.setattr(module, "_CHUNK_ROWS", 1)
    features, head, targets, mask = data

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.numbers = max(self.numbers, out.numel())
            return out

    x, w = features.clone().requires_grad_(), head.clone().requires_grad_()
    with Largest() as largest:
        projected_loss(x, w, targets, mask, 1e-4)[0].backward()
    assert largest.numbers == head.numel()
    assert head.numel() < targets.numel() * 301
