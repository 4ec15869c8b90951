"""Products with a weight whose gradient is added straight to where it is kept.

Autograd makes each weight's gradient as a tensor of its own and then adds it to `grad`: an array
more, and a pass over it. For the embedding, whose gradient has few rows, that array is as large as
the vocabulary. Where `accumulate_into` names the place, the matrix product adds to it itself, and
the look-up adds its rows only (Megatron-LM's fused gradient accumulation). Everywhere else, under
autocast too, these are `F.linear` and `F.embedding`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Embedding", "Linear", "accumulate_into"]


def accumulate_into(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Let `gradient` be the parameter's `grad`, and let backward add to it in place. Only
    `backward` does: `torch.autograd.grad` of such a weight finds nothing, and adds to what the
    others keep; hooks on it are not called."""
    parameter.grad = gradient
    cast(Any, parameter).accumulates = True


class Linear(nn.Linear):
    """`nn.Linear` by the rule above."""

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return self.product(x)
        if not _in_place(self.weight, x):
            return F.linear(x, self.weight, self.bias)
        return self.product(x) + self.bias

    def product(self, x: Tensor) -> Tensor:
        """Without the bias, which ranks that hold slices add once, after their sum."""
        if not _in_place(self.weight, x):
            return F.linear(x, self.weight)
        y: Tensor = _Linear.apply(x, self.weight)
        return y


class Embedding(nn.Embedding):
    """`nn.Embedding` by the rule above."""

    def forward(self, ids: Tensor) -> Tensor:
        if not _keeps(self.weight):  # autocast leaves a look-up alone
            return F.embedding(ids, self.weight)
        rows: Tensor = _LookUp.apply(ids, self.weight)
        return rows


def _keeps(weight: Tensor) -> bool:
    wanted = weight.requires_grad and torch.is_grad_enabled()
    return wanted and getattr(weight, "accumulates", False)


def _in_place(weight: Tensor, x: Tensor) -> bool:
    kept = _keeps(weight) and x.dtype == weight.dtype
    return kept and not torch.is_autocast_enabled(x.device.type)


def _kept(weight: Tensor) -> Tensor:
    """Held from the forward pass on: what activation checkpointing and other hooks on saved tensors
    bring back for the weight is another tensor, without `grad`."""
    if weight.grad is None:
        raise RuntimeError(
            "the place of a kept gradient was taken away: zero_grad(set_to_none=False)"
        )
    return weight.grad


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kept = _kept(weight)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dy = gradients[0]
        ctx.kept.addmm_(dy.flatten(0, -2).t(), x.flatten(0, -2))
        return (dy @ weight if ctx.needs_input_grad[0] else None), None


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.kept = _kept(weight)
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        (ids,) = ctx.saved_tensors
        ctx.kept.index_add_(0, ids.flatten(), gradients[0].flatten(0, -2))
        return None, None
