"""One training step of one rank, under any layout: from a batch to updated weights, or to an error
before anything was changed.

Gradients are sums over valid tokens, never means of means: micro-batches add, ranks add, and one
division by the valid tokens of the whole step, folded into the clipping factor, makes the mean. One
reduction over all ranks carries loss and token count together with whatever numbers the caller adds
(the digest of consumed data, the wish to stop).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eyas.model import Network, initial_slice, projected_loss
from eyas.recipe import EyasError, Train
from eyas.shape import ModelShape

from .masters import Masters
from .mesh import Mesh
from .tensor_parallel import parallelise

__all__ = ["Engine", "NonFinite", "StepResult"]


class NonFinite(EyasError):
    """The loss or the gradient of a step is not a number; nothing was updated. Running the same
    step again would give the same, so it is not retried."""

    exit_code = 93


@dataclass(frozen=True)
class StepResult:
    """A step over all ranks: mean loss a token, valid tokens, global gradient norm of the mean loss
    before clipping, and the summed numbers of the caller."""

    loss: float
    tokens: int
    grad_norm: float
    sums: tuple[float, ...]


class Engine:
    """Network, masters and optimizer of this rank, built from the recipe's seed. `dtype` is that of
    weights and moments; `keys.precision` is the arithmetic of the forward pass."""

    def __init__(
        self, shape: ModelShape, mesh: Mesh, keys: Train, dtype: torch.dtype = torch.float32
    ) -> None:
        self.mesh = mesh
        self._keys = keys
        self._device = f"cuda:{mesh.local_rank}" if torch.cuda.is_available() else "cpu"
        self.masters = Masters(
            shape,
            mesh.layout.tensor,
            mesh.tensor_rank,
            keys,
            lambda name, offset, size: initial_slice(shape, keys.seed, name, offset, size),
            dtype,
            self._device,
        )
        with torch.device("meta"):
            self.network = Network(shape)
        self.masters.install(self.network)
        parallelise(self.network, mesh)

    def step(
        self,
        number: int,
        ids: Tensor,
        mask: Tensor,
        lr: float,
        extra: Sequence[float] = (),
        document_ids: Tensor | None = None,
    ) -> StepResult:
        """Train on this data rank's part of a batch: `ids` int64 B x T+1, `mask` bool B x T (all
        False for a rank that has only padding). With `document_ids` B x T+1 attention stays inside
        a document.

        `extra` is summed over all ranks (each passes as many). Raises NonFinite, on every rank
        alike and before any update.
        """
        clock = self.mesh.clock
        with clock.phase("compute"):
            self.masters.clear()
            loss = self._accumulate(ids, mask, document_ids)
        sums = self._reduce([loss, float(mask.sum())], extra)
        total, tokens = sums[0], sums[1]
        with clock.phase("optimizer"):
            norm = self._norm() / max(tokens, 1.0)
            if not math.isfinite(total) or not math.isfinite(norm):
                raise NonFinite(
                    f"step {number}: the loss is {total / max(tokens, 1.0)}, the gradient norm "
                    f"{norm}; nothing was updated and the last commit is whole. Lower train.lr or "
                    f"look at the data with `eyas trace --step {number}`, then start again"
                )
            clip = min(1.0, self._keys.grad_clip / (norm + 1e-6))
            self.masters.update(lr, clip / max(tokens, 1.0))
        return StepResult(total / max(tokens, 1.0), int(tokens), norm, tuple(sums[2:]))

    def evaluate(
        self, ids: Tensor, mask: Tensor, document_ids: Tensor | None = None
    ) -> tuple[float, int]:
        """Summed loss without z-loss and valid tokens over all ranks."""
        with torch.no_grad(), self.mesh.clock.phase("compute"):
            parts = self._parts(ids, mask, document_ids)
            loss = sum(self._forward(*part, z_loss=0.0).item() for part in parts)
        sums = self._sum_once([float(loss), float(mask.sum())], ())
        return sums[0], int(sums[1])

    def _accumulate(self, ids: Tensor, mask: Tensor, document_ids: Tensor | None) -> float:
        loss = 0.0
        for part in self._parts(ids, mask, document_ids):
            summed = self._forward(*part, self._keys.z_loss)
            summed.backward()
            loss += summed.item()
        return loss

    def _forward(
        self, ids: Tensor, mask: Tensor, document_ids: Tensor | None, z_loss: float
    ) -> Tensor:
        inside = None if document_ids is None else document_ids[:, :-1]
        with self._autocast():
            features = self.network.features(ids[:, :-1], document_ids=inside)
            head = self.network.head_weight_VD
            return projected_loss(features, head, ids[:, 1:], mask, z_loss, head.grad)[0]

    def _parts(
        self, ids: Tensor, mask: Tensor, document_ids: Tensor | None
    ) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Micro-batches; the last may be smaller."""
        size = self.mesh.layout.micro_batch
        rows, masks = (x.to(self._device).split(size) for x in (ids, mask))
        if document_ids is None:
            return list(zip(rows, masks, [None] * len(rows), strict=True))
        return list(zip(rows, masks, document_ids.to(self._device).split(size), strict=True))

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if self._keys.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.partition(":")[0], dtype=torch.bfloat16)

    def _reduce(self, own: list[float], extra: Sequence[float]) -> list[float]:
        """Sum gradients over the ranks, and the numbers."""
        for partial in self.masters.partials():
            self.mesh.sum_shared(partial)
        self.mesh.sum_data(self.masters.gradients)
        return self._sum_once(own, extra)

    def _sum_once(self, own: list[float], extra: Sequence[float]) -> list[float]:
        """`own` is the same on all tensor ranks of a data rank and counts once; `extra` always."""
        counted = own if self.mesh.tensor_rank == 0 else [0.0] * len(own)
        box = torch.tensor([*counted, *extra], dtype=torch.float64)
        self.mesh.sum_world(box)
        return box.tolist()

    def _norm(self) -> float:
        """The global norm of the summed gradient."""
        box = torch.tensor([self.masters.squared_norm()], dtype=torch.float64)
        self.mesh.sum_tensor(box)
        return math.sqrt(box.item()) if box.item() >= 0 else math.nan
