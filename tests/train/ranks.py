"""What ranks do in the tests of this room; imported by the processes that `tests.gloo` starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import eyas.train.engine as engine_module
import eyas.train.prepare as prepare_module
from eyas.model import projected_loss
from eyas.recipe import Recipe, Train
from eyas.shape import Layout, ModelShape, slice_holders
from eyas.store import Store, open_store
from eyas.tokens import skip_samples
from eyas.train import Engine, Mesh, StepResult, train

SEQUENCE = 12
BATCH = 12


def batch(shape: ModelShape, step: int) -> tuple[Tensor, Tensor]:
    """The same for every layout; the number of valid targets differs a lot from row to row."""
    generator = torch.Generator().manual_seed(100 + step)
    ids = torch.randint(0, shape.vocab_size, (BATCH, SEQUENCE + 1), generator=generator)
    lengths = torch.randint(1, SEQUENCE + 1, (BATCH,), generator=generator)
    lengths[:2] = 1
    return ids, torch.arange(SEQUENCE) < lengths.unsqueeze(1)


@dataclass(frozen=True)
class Case:
    """What to train, how, and in which precision."""

    shape: ModelShape
    layout: Layout
    keys: Train
    double: bool = False


@dataclass(frozen=True)
class Trained:
    """What a layout came to: a result a step, and this rank's slices of the weights."""

    results: list[StepResult]
    weights: dict[str, tuple[tuple[int, ...], Any]]


def few_steps(rank: int, world: int, cases: list[Case], steps: int) -> list[Trained]:
    """A few AdamW steps of each case in turn: starting processes costs more than all of them."""
    return [_few_steps(case, steps) for case in cases]


def _few_steps(case: Case, steps: int) -> Trained:
    shape, layout = case.shape, case.layout
    engine_module.projected_loss = _double_loss if case.double else projected_loss  # type: ignore[assignment]
    dtype = torch.float64 if case.double else torch.float32
    shared = slice_holders(shape, layout.tensor)["blocks.0.attention.key.weight"]
    mesh = Mesh(layout, shared)
    engine = Engine(shape, mesh, case.keys, dtype)
    part = slice(mesh.data_rank * BATCH // layout.data, (mesh.data_rank + 1) * BATCH // layout.data)
    results = []
    for step in range(steps):
        ids, mask = batch(shape, step)
        results.append(engine.step(step, ids[part], mask[part], 1e-2, [1.0]))
    slices = engine.masters.slices([n for n, _ in engine.network.named_parameters()])
    weights = {s.name: (s.offset, s.tensor.numpy().copy()) for s in slices}
    return Trained(results, weights)


def _double_loss(
    x: Tensor,
    head_VD: Tensor,
    targets: Tensor,
    mask: Tensor,
    z_loss: float,
    head_gradient_VD: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The loss in plain PyTorch, in the precision of its input: also an oracle. The head's gradient
    comes by autograd."""
    logits = (x @ head_VD.T)[mask]
    log_z = logits.logsumexp(-1)
    total = F.cross_entropy(logits, targets[mask], reduction="sum") + z_loss * log_z.square().sum()
    return total, mask.sum()


def whole_run(rank: int, world: int, url: str, text: str, fault: str = "") -> dict[str, Any]:
    """`train` as this rank. Faults: "kill:STEP" (the last rank, as that step begins), "kill-put:N"
    (the last rank, at its Nth write of a checkpoint), "stop:STEP" (rank 0 is asked to stop),
    "nan:STEP" (a weight goes bad before that step), "amend" (the data plan, after rank 0 has opened
    it and before the last rank does)."""
    torch.set_num_threads(1)
    kind, _, number = fault.partition(":")
    last = rank == world - 1
    store: Store = open_store(url)
    if kind == "kill-put" and last:
        store = _Deadly(store, int(number))  # type: ignore[assignment]
    if kind == "nan":
        _spoil(int(number))
    if kind == "amend":
        _amend_between(store, last)
    result = train(
        Recipe.parse(text, "test"), store, stop=_asked(kind, int(number or -1), rank, last)
    )
    return result.to_dict()


def double_run(rank: int, world: int, url: str, text: str) -> dict[str, Any]:
    """`train` as this rank, weights and loss in float64."""
    torch.set_num_threads(1)
    engine_module.projected_loss = _double_loss  # type: ignore[assignment]
    recipe = Recipe.parse(text, "test")
    return train(recipe, open_store(url), dtype=torch.float64).to_dict()


def _amend_between(store: Store, last: bool) -> None:
    """The first time that ranks open the tokens, the last rank is late and finds another plan."""
    real = prepare_module.open_tokens

    def opened(*arguments: Any, **keys: Any) -> Any:
        prepare_module.open_tokens = real
        if last:
            dist.barrier()
            skip_samples(store, 60, 66, 5)
            return real(*arguments, **keys)
        tokens = real(*arguments, **keys)
        dist.barrier()
        return tokens

    prepare_module.open_tokens = opened  # type: ignore[assignment]


def _asked(kind: str, at: int, rank: int, last: bool) -> Callable[[], bool]:
    step = iter(range(10**6))

    def stop() -> bool:
        now = next(step)
        if kind == "kill" and now == at and last:
            os.kill(os.getpid(), signal.SIGKILL)
        return kind == "stop" and now == at and rank == 0

    return stop


class _Deadly:
    """A store that kills its process at the Nth write below checkpoints/data."""

    def __init__(self, store: Store, writes: int) -> None:
        self._store, self._left = store, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes) -> None:
        self._count(key)
        self._store.put(key, data)

    def put_chunks(self, key: str, chunks: Iterator[bytes]) -> int:
        self._count(key)
        return self._store.put_chunks(key, chunks)

    def _count(self, key: str) -> None:
        if key.startswith("checkpoints/data"):
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _spoil(at: int) -> None:
    """Before step `at` one weight of this rank becomes NaN."""
    plain = Engine.step

    def step(self: Engine, number: int, *arguments: Any) -> StepResult:
        if number == at:
            self.masters.weights[5] = float("nan")
        return plain(self, number, *arguments)

    Engine.step = step  # type: ignore[method-assign,assignment]
