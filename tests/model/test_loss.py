"""Promises: the loss and its gradients are those of plain autograd, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import eyas.model
from eyas.model import loss, projected_loss

torch.set_num_threads(1)
module = sys.modules[eyas.model.loss.__module__]
BENCH = Path(__file__).parents[2] / "bench/loss_memory.py"
VOCAB, WIDTH = 301, 24

Data = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def data() -> Data:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(3, 17, WIDTH, generator=g)
    head = torch.randn(VOCAB, WIDTH, generator=g) * 0.4
    targets = torch.randint(0, VOCAB, (3, 17), generator=g)
    mask = torch.rand(3, 17, generator=g) < 0.7
    return features, head, targets, mask


@contextmanager
def pieces(chunk_rows: int) -> Iterator[None]:
    """Chunks of so many tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_NUMBERS", 1)
        patch.setattr(module, "_CHUNK_ROWS", chunk_rows)
        yield


def definition(logits: Tensor, targets: Tensor, mask: Tensor, z_loss: float) -> Tensor:
    logits, targets = logits[mask], targets[mask]
    log_z = torch.logsumexp(logits, -1)
    return (F.cross_entropy(logits, targets, reduction="none") + z_loss * log_z.square()).sum()


def plain(
    features: Tensor, head: Tensor, targets: Tensor, mask: Tensor, z_loss: float
) -> tuple[Tensor, Tensor, Tensor]:
    """In float64 by autograd, from the definition."""
    features = features.detach().double().requires_grad_()
    head = head.detach().double().requires_grad_()
    total = definition(features @ head.T, targets, mask, z_loss)
    total.backward()
    assert features.grad is not None
    assert head.grad is not None
    return total.detach(), features.grad, head.grad


def apart(found: Tensor | None, exact: Tensor) -> float:
    """Relative distance; from zero, the absolute one."""
    assert found is not None
    size = float(exact.norm())
    return float((found - exact).norm()) / (size or 1.0)


def leaves(data: Data) -> tuple[Tensor, Tensor]:
    return data[0].clone().requires_grad_(), data[1].clone().requires_grad_()


@pytest.mark.parametrize("z_loss", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("rows", [1, 5, 512])
@pytest.mark.parametrize("projected", [False, True])
def test_loss_and_gradients_equal_float64_autograd(
    data: Data, z_loss: float, rows: int, projected: bool
) -> None:
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, z_loss)
    x, w = leaves(data)
    with pieces(rows):
        if projected:
            total, count = projected_loss(x, w, targets, mask, z_loss)
        else:
            total, count = loss(x @ w.T, targets, mask, z_loss)
        (total / 7).backward()
    assert total.dtype == torch.float32
    assert int(count) == int(mask.sum())
    assert float(total.detach()) == pytest.approx(float(wanted[0]), rel=1e-6)
    assert apart(x.grad, wanted[1] / 7) < 1e-5
    assert apart(w.grad, wanted[2] / 7) < 1e-5


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    tokens=st.integers(0, 14),
    vocab=st.sampled_from([1, 2, 3, 7, 64, 257]),
    width=st.sampled_from([1, 5, 8]),
    rows=st.integers(1, 15),
    keep=st.sampled_from([None, 0.0, 0.5, 1.0]),
    z_loss=st.sampled_from([0.0, 1e-4, 0.3]),
    upstream=st.sampled_from([1.0, -2.5, 0.0, 1 / 3]),
    wants=st.sampled_from([(True, True), (True, False), (False, True)]),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    double=st.booleans(),
    turned=st.booleans(),
    projected=st.booleans(),
)
def test_whatever_the_sizes_pieces_and_gradients_wanted(
    seed: int,
    tokens: int,
    vocab: int,
    width: int,
    rows: int,
    keep: float | None,
    z_loss: float,
    upstream: float,
    wants: tuple[bool, bool],
    scale: float,
    double: bool,
    turned: bool,
    projected: bool,
) -> None:
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(tokens, width, generator=g, dtype=torch.float64)
    head = torch.randn(vocab, width, generator=g, dtype=torch.float64) * scale
    targets = torch.randint(0, vocab, (tokens,), generator=g)
    mask = None if keep is None else torch.rand(tokens, generator=g) < keep
    counted = torch.ones(tokens, dtype=torch.bool) if mask is None else mask
    dtype = torch.float64 if double else torch.float32
    x, w = features.to(dtype), head.to(dtype)
    if turned:  # columns lie together
        x, w = x.T.contiguous().T, w.T.contiguous().T
    wanted = plain(x, w, targets, counted, z_loss)
    x.requires_grad_(wants[0])
    w.requires_grad_(wants[1])
    with pieces(rows):
        if projected:
            total, count = projected_loss(x, w, targets, mask, z_loss)
        else:
            total, count = loss(x @ w.T, targets, mask, z_loss)
        (total * upstream).backward()
    close = 1e-12 if double else 2e-5
    assert total.dtype == dtype
    assert int(count) == int(counted.sum())
    # Logits are rounded in proportion to the largest; a sure target leaves nothing but that.
    rounding = close * (1 + (float((x @ w.T).detach().abs().max()) if tokens else 0.0))
    assert abs(float(total.detach()) - float(wanted[0])) <= (
        close * float(wanted[0]) + rounding * tokens
    )
    for leaf, other, want, exact in ((x, w, wants[0], wanted[1]), (w, x, wants[1], wanted[2])):
        if want:
            assert leaf.grad is not None
            error = float((leaf.grad - upstream * exact).norm())
            reach = float(other.detach().norm()) * max(1, tokens)
            assert error <= abs(upstream) * (close * float(exact.norm()) + rounding * reach)
        else:
            assert leaf.grad is None


@pytest.mark.parametrize("counted", [1, 6, 7, 8, 13, 14, 15])
def test_tokens_around_the_edges_of_chunks(data: Data, counted: int) -> None:
    features, head, targets, _ = data
    mask = torch.zeros(51, dtype=torch.bool)
    mask[torch.randperm(51, generator=torch.Generator().manual_seed(counted))[:counted]] = True
    mask = mask.view(3, 17)
    wanted = plain(features, head, targets, mask, 1e-2)
    x, w = leaves(data)
    with pieces(7):
        total, count = projected_loss(x, w, targets, mask, 1e-2)
        total.backward()
    assert int(count) == counted
    assert apart(total.detach(), wanted[0]) < 1e-6
    assert apart(x.grad, wanted[1]) < 1e-5
    assert apart(w.grad, wanted[2]) < 1e-5


@pytest.mark.parametrize("given_away", [False, True])
def test_an_embedding_that_is_the_head_too_gets_both_gradients(
    data: Data, given_away: bool
) -> None:
    _, head, targets, mask = data
    ids = targets.roll(1, 1)
    exact = head.double().requires_grad_()
    definition(torch.tanh(F.embedding(ids, exact)) @ exact.T, targets, mask, 1e-2).backward()
    assert exact.grad is not None
    w = head.clone().requires_grad_()
    if given_away:
        w.grad = torch.zeros_like(w)
    with pieces(7):
        features = torch.tanh(F.embedding(ids, w))
        projected_loss(features, w, targets, mask, 1e-2, w.grad)[0].backward()
    assert apart(w.grad, exact.grad) < 1e-5


def test_the_gradient_of_the_head_is_added_where_it_is_asked_for(data: Data) -> None:
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, 1e-2)
    x, w = leaves(data)
    into = torch.ones_like(head)
    with pieces(7):
        projected_loss(x, w, targets, mask, 1e-2, into)[0].backward()
    assert w.grad is None
    assert apart(into - 1, wanted[2]) < 1e-5
    assert apart(x.grad, wanted[1]) < 1e-5
    with torch.no_grad():
        projected_loss(x, w, targets, mask, 1e-2, into)
    assert apart(into - 1, wanted[2]) < 1e-5
    total, _ = projected_loss(x, w, targets, mask, 1e-2, into)
    with pytest.raises(RuntimeError, match=r"upstream gradient of 0\.5"):
        (total / 2).backward()


def test_nothing_counts(data: Data) -> None:
    features, head, targets, mask = data
    wild = torch.full_like(targets, -100)
    none = torch.zeros_like(mask)
    x, w = leaves(data)
    total, count = projected_loss(x, w, wild, none, 1e-2)
    total.backward()
    assert (float(total.detach()), int(count)) == (0.0, 0)
    assert torch.equal(x.grad, torch.zeros_like(x))  # type: ignore[arg-type]
    assert torch.equal(w.grad, torch.zeros_like(w))  # type: ignore[arg-type]
    logits = (features @ head.T).requires_grad_()
    total, count = loss(logits, wild, none, 1e-2)
    total.backward()
    assert (float(total.detach()), int(count)) == (0.0, 0)
    assert torch.equal(logits.grad, torch.zeros_like(logits))  # type: ignore[arg-type]


def test_masked_targets_may_be_anything_and_change_nothing(data: Data) -> None:
    features, head, targets, mask = data
    logits = features @ head.T
    wild = torch.where(mask, targets, -100)
    assert torch.equal(loss(logits, wild, mask)[0], loss(logits, targets, mask)[0])
    x = logits.clone().requires_grad_()
    loss(x, wild, mask)[0].backward()
    assert x.grad is not None
    assert torch.all(x.grad[~mask] == 0)


@pytest.mark.parametrize("target", [-1, VOCAB])
@pytest.mark.parametrize("projected", [False, True])
def test_a_target_that_counts_is_inside_the_vocabulary(
    data: Data, target: int, projected: bool
) -> None:
    features, head, targets, mask = data
    targets[tuple(mask.nonzero()[-1])] = target
    inputs = (features, head) if projected else (features @ head.T,)
    call: Any = projected_loss if projected else loss
    with pytest.raises(ValueError, match=f"target {target} .* 0 to 300"):
        call(*inputs, targets, mask)


def counter_of_products() -> FlopCounterMode:
    def in_place(_: Any, a: Any, b: Any, **__: Any) -> int:  # the counter knows no addmm_
        return 2 * int(a[0] * a[1] * b[1])

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: in_place})


@pytest.mark.parametrize(
    ("wants", "products"),
    [((False, False), 1), ((True, False), 2), ((False, True), 2), ((True, True), 3)],
)
def test_no_product_is_made_that_nobody_wants(
    data: Data, wants: tuple[bool, bool], products: int
) -> None:
    features, head, targets, mask = data
    one = 2 * int(mask.sum()) * head.numel()  # tokens that do not count cost nothing
    x, w = leaves(data)
    x.requires_grad_(wants[0])
    w.requires_grad_(wants[1])
    with pieces(7), counter_of_products() as counter:
        projected_loss(x, w, targets, mask, 1e-4)
    assert counter.get_total_flops() == products * one
    x, w = leaves(data)
    with (
        pieces(7),
        torch.no_grad(),
        counter_of_products() as counter,
    ):
        total, _ = projected_loss(x, w, targets, mask, 1e-4)
    assert counter.get_total_flops() == one
    assert not total.requires_grad
    assert float(total) == pytest.approx(float(loss(features @ head.T, targets, mask, 1e-4)[0]))


def test_float64_is_computed_in_float64_also_under_autocast(data: Data) -> None:
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, 1e-2)
    x, w = features.double().requires_grad_(), head.double().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = projected_loss(x, w, targets, mask, 1e-2)
    total.backward()
    assert total.dtype == torch.float64
    assert apart(total.detach(), wanted[0]) < 1e-14
    assert apart(x.grad, wanted[1]) < 1e-13
    assert apart(w.grad, wanted[2]) < 1e-13


@pytest.mark.parametrize("autocast", [False, True])
def test_in_bfloat16_only_the_products_are_rounded(data: Data, autocast: bool) -> None:
    features, head, targets, mask = data
    wanted = plain(features, head, targets, mask, 1e-4)
    dtype = torch.float32 if autocast else torch.bfloat16
    x, w = features.to(dtype).requires_grad_(), head.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        total, _ = projected_loss(x, w, targets, mask, 1e-4)
    total.backward()
    assert total.dtype == torch.float32
    assert x.grad is not None
    assert w.grad is not None
    assert x.grad.dtype == w.grad.dtype == dtype
    assert float(total.detach()) == pytest.approx(float(wanted[0]), rel=5e-3)
    assert apart(x.grad, wanted[1]) < 2e-2
    assert apart(w.grad, wanted[2]) < 2e-2


@pytest.mark.parametrize("z_loss", [0.0, 1e-4])
def test_huge_logits_stay_finite(z_loss: float) -> None:
    rows = [[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, -1e4]]
    head = torch.tensor(rows).T.contiguous().requires_grad_()
    targets = torch.tensor([1, 2, 0])
    x = torch.eye(3).requires_grad_()
    exact = plain(x, head, targets, torch.ones(3, dtype=torch.bool), z_loss)
    logits = torch.tensor(rows).requires_grad_()
    by_logits, _ = loss(logits, targets, z_loss=z_loss)
    projected, _ = projected_loss(x, head, targets, z_loss=z_loss)
    (by_logits + projected).backward()
    assert float(by_logits.detach()) == pytest.approx(float(exact[0]), rel=1e-6)
    assert float(projected.detach()) == pytest.approx(float(exact[0]), rel=1e-6)
    assert apart(head.grad, exact[2]) < 1e-5
    assert apart(logits.grad, exact[2].T) < 1e-5
    assert apart(x.grad, exact[1]) < 1e-5


def test_backward_runs_once(data: Data) -> None:
    _, _, targets, mask = data
    x, w = leaves(data)
    total, _ = projected_loss(x, w, targets, mask)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="call projected_loss again"):
        total.backward()


@pytest.mark.parametrize("bad", ["targets", "mask", "bool", "head_gradient"])
def test_what_does_not_fit_is_refused(data: Data, bad: str) -> None:
    features, head, targets, mask = data
    into = None
    if bad == "targets":
        targets = targets[:, :-1]
    elif bad == "mask":
        mask = mask[:, :-1]
    elif bad == "bool":
        mask = mask.float()
    else:
        into = torch.zeros(VOCAB, WIDTH + 1)
    with pytest.raises(ValueError, match=bad):
        projected_loss(features, head, targets, mask, head_gradient_VD=into)


class NewMemory(TorchDispatchMode):
    """Bytes of every array that an operation makes, by torch's own account."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        # Storages are held, so that no two have the same address; tensors are not, for autograd
        # copies a gradient that somebody else holds.
        self._storages = [tensor.untyped_storage() for tensor in known]
        self._places = {storage.data_ptr() for storage in self._storages}
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            storage = out.untyped_storage()
            if storage.data_ptr() not in self._places:
                self._storages.append(storage)
                self._places.add(storage.data_ptr())
                self.sizes.append(storage.nbytes())
        return out


@pytest.mark.parametrize(("given_away", "upstream"), [(False, 1.0), (False, 0.5), (True, 1.0)])
def test_logits_of_one_chunk_and_one_array_of_the_head_at_most_are_made(
    data: Data, given_away: bool, upstream: float
) -> None:
    _, head, targets, mask = data
    x, w = leaves(data)
    into = torch.zeros_like(head) if given_away else None
    number = int(mask.sum())
    rows = -(-number // -(-number // 7))  # chunks of at most 7, as equal as they can be
    of_head, of_chunk = 4 * head.numel(), 4 * rows * VOCAB
    assert 4 * x.numel() < of_chunk < of_head < 4 * VOCAB * number
    known = [x, w] if into is None else [x, w, into]
    with pieces(7), NewMemory(*known) as memory:
        total, _ = projected_loss(x, w, targets, mask, 1e-4, into)
        (total * upstream).backward()
    large = sorted(size for size in memory.sizes if size > 4 * x.numel())
    assert large == ([of_chunk] if given_away else [of_chunk, of_head])


@pytest.mark.slow
def test_peak_memory_of_a_process_is_a_fifth_of_plain_ones() -> None:
    """4,096 tokens, a prime vocabulary: all logits are 256 MiB, those of a chunk 32."""
    command = [sys.executable, str(BENCH), "--tokens=4096", "--vocab=16411", "--d-model=16"]
    done = subprocess.run(
        [*command, "--rounds=1", "--sides", "ours", "plain"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    sides = json.loads(done.stdout.splitlines()[-1])["sides"]
    assert sides["plain"]["peak_bytes"] > 2 * 4 * 4096 * 16411
    assert sides["ours"]["peak_bytes"] > 4 * 512 * 16411
    assert sides["ours"]["peak_to_plain"] < 0.2
