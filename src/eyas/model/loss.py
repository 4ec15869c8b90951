"""The loss: cross-entropy with z-loss, summed over the targets that count, in bounded memory.

Sums, not means: a step that is split over micro-batches and ranks divides once, by the tokens of
the whole step. The z-loss, `z_loss * log(Z)^2` a token, holds the normaliser near one (Mesh
TensorFlow; Chowdhery et al. 2022, PaLM, section 5).

Plain cross-entropy holds three arrays as large as all the logits (log-softmax, its gradient, that
of the logits). `projected_loss` holds the logits of one chunk of tokens, turns them into their
gradient where they stand and multiplies that by features and weights at once, in the forward pass
(the way of Liger's fused linear cross-entropy, Hsu et al. 2024). On a CPU nine tenths of its time
are the three matrix products, so what counts is their shape: a chunk has rows enough for them to
run at the machine's rate, and every product is written straight into its place. Tokens that do not
count cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["loss", "projected_loss"]

_CHUNK_ROWS = 512  # tokens a chunk: with 128 the products take 5 to 10 % more time
_CHUNK_NUMBERS = 2**22  # small vocabularies: logits a chunk, 16 MiB in float32


def loss(
    logits: Tensor, targets: Tensor, mask: Tensor | None = None, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Summed loss (float32 scalar, differentiable) and how many targets count (int64 scalar).

    `logits` ... x V, `targets` ... int64, `mask` ... bool: True where the target counts. A target
    outside the vocabulary under a False mask is fine. float64 logits give a float64 loss. Raises
    ValueError when shapes disagree, `mask` is not bool or a target that counts is outside the
    vocabulary.
    """
    _check("logits", logits, targets, mask, logits.shape[-1])
    logits_NV, targets_N, counted_N = _flat(logits, targets, mask)
    total: Tensor = _Loss.apply(logits_NV, targets_N, counted_N, float(z_loss))
    return total, counted_N.sum()


def projected_loss(
    features: Tensor,
    head_weight_VD: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    z_loss: float = 0.0,
    head_gradient_VD: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `loss(features @ head_weight.T, ...)`, without ever holding all the logits.

    `features` ... x D (`Network.features`), `head_weight_VD` (`Network.head_weight_VD`). When a
    gradient is wanted it is computed in the forward pass already and given away by backward, which
    therefore runs once and has no second derivative.

    `head_gradient_VD`: where a training loop accumulates the gradient of the head. The gradient of
    the summed loss itself (an upstream gradient of 1) is then added to it in this call, and
    autograd gets none for the head: no array of V x D is made. RuntimeError if backward then
    brings an upstream gradient other than 1.
    """
    _check("features", features, targets, mask, head_weight_VD.shape[0])
    if head_gradient_VD is not None and head_gradient_VD.shape != head_weight_VD.shape:
        raise ValueError(
            f"head_gradient_VD {tuple(head_gradient_VD.shape)} for a head of "
            f"{tuple(head_weight_VD.shape)}"
        )
    x_ND, targets_N, counted_N = _flat(features, targets, mask)
    enabled = torch.is_grad_enabled()
    wants = (enabled and features.requires_grad, enabled and head_weight_VD.requires_grad)
    into_VD = head_gradient_VD if wants[1] else None
    total: Tensor = _ProjectedLoss.apply(
        x_ND, head_weight_VD, targets_N, counted_N, float(z_loss), wants, into_VD
    )
    return total, counted_N.sum()


def _check(
    what: str, inputs: Tensor, targets: Tensor, mask: Tensor | None, vocab_size: int
) -> None:
    if inputs.shape[:-1] != targets.shape:
        raise ValueError(f"{what} {tuple(inputs.shape)} for targets {tuple(targets.shape)}")
    if mask is not None and mask.shape != targets.shape:
        raise ValueError(f"mask {tuple(mask.shape)} for targets {tuple(targets.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask is {mask.dtype}; it must be torch.bool, True where a target counts")
    outside = (targets < 0) | (targets >= vocab_size)
    if mask is not None:
        outside &= mask
    if outside.any():
        found = int(targets[outside][0])
        raise ValueError(
            f"target {found} under a True mask is outside the vocabulary, 0 to {vocab_size - 1}"
        )


def _flat(inputs: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs with one row a token, targets and mask as vectors."""
    if mask is None:
        mask = torch.ones_like(targets, dtype=torch.bool)
    return inputs.reshape(-1, inputs.shape[-1]), targets.flatten(), mask.flatten()


def _parts(counted_N: Tensor, rows: int) -> Sequence[slice | Tensor]:
    """Indices of the tokens that count, in pieces of at most `rows` and of nearly the same size."""
    number = int(counted_N.sum())
    pieces = max(1, -(-number // max(1, rows)))
    rows = max(1, -(-number // pieces))
    if number == counted_N.numel():
        return [slice(start, start + rows) for start in range(0, number, rows)]
    return counted_N.nonzero().squeeze(1).split(rows) if number else []


def _chunk_rows(vocab_size: int) -> int:
    return max(_CHUNK_ROWS, _CHUNK_NUMBERS // vocab_size)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """In what softmax and sums are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _consume(logits_NV: Tensor, targets_N: Tensor, z_loss: float, gradient: bool) -> Tensor:
    """Summed loss of logits, which are overwritten: with their gradient, if that is asked for.

    With Z the normaliser and p the softmax: loss = log Z - logit[target] + z (log Z)^2 and
    d loss / d logit = p (1 + 2 z log Z) - [target].
    """
    targets_N1 = targets_N.unsqueeze(1)
    largest_N1 = logits_NV.amax(1, keepdim=True)
    logits_NV.sub_(largest_N1)
    chosen_N1 = logits_NV.gather(1, targets_N1)
    sum_N1 = logits_NV.exp_().sum(1, keepdim=True)
    log_sum_N1 = sum_N1.log()
    log_z_N1 = log_sum_N1 + largest_N1
    if gradient:
        logits_NV.mul_((1 + 2 * z_loss * log_z_N1) / sum_N1)
        logits_NV.scatter_add_(1, targets_N1, torch.full_like(log_z_N1, -1.0))
    return (log_sum_N1 - chosen_N1 + z_loss * log_z_N1.square()).sum()


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, targets_N: Tensor, counted_N: Tensor, z_loss: float
    ) -> Tensor:
        ctx.save_for_backward(logits_NV, targets_N, counted_N)
        ctx.z_loss = z_loss
        dtype = _accumulator(logits_NV.dtype)
        total = logits_NV.new_zeros((), dtype=dtype)
        for part in _parts(counted_N, _chunk_rows(logits_NV.shape[1])):
            logits = logits_NV[part].to(dtype, copy=True)
            total += _consume(logits, targets_N[part], z_loss, gradient=False)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits_NV, targets_N, counted_N = ctx.saved_tensors
        out_NV = torch.empty_like(logits_NV)
        if not counted_N.all():
            out_NV.zero_()
        for part in _parts(counted_N, _chunk_rows(logits_NV.shape[1])):
            logits = logits_NV[part].to(_accumulator(logits_NV.dtype), copy=True)
            _consume(logits, targets_N[part], ctx.z_loss, gradient=True)
            out_NV[part] = logits.mul_(grads[0]).to(out_NV.dtype)
        return out_NV, None, None, None


class _ProjectedLoss(torch.autograd.Function):
    """`wants`: gradients of features, of the head (under `no_grad` the context does not say so)."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        w_VD: Tensor,
        targets_N: Tensor,
        counted_N: Tensor,
        z_loss: float,
        wants: tuple[bool, bool],
        into_VD: Tensor | None,
    ) -> Tensor:
        kind = x_ND.device.type
        dtype = x_ND.dtype  # of logits as multiplied, and of the product that makes dx
        if torch.is_autocast_enabled(kind) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(kind)
        accumulator = _accumulator(dtype)
        dx_ND = torch.zeros_like(x_ND) if wants[0] else None
        dw_VD, beta = into_VD, 1.0
        if wants[1] and into_VD is None:
            dw_VD, beta = torch.empty_like(w_VD, dtype=accumulator), 0.0
        with torch.autocast(kind, enabled=False):
            rounded_VD = w_VD.to(dtype)
            total = x_ND.new_zeros((), dtype=accumulator)
            logits_NV = x_ND.new_empty(0, dtype=accumulator)
            for part in _parts(counted_N, _chunk_rows(w_VD.shape[0])):
                x = x_ND[part]
                if len(logits_NV) != len(x):  # the same memory for all chunks but the last
                    logits_NV = logits_NV.resize_(len(x), len(w_VD))
                _product(x.to(dtype), rounded_VD.T, logits_NV)
                total += _consume(logits_NV, targets_N[part], z_loss, any(wants))
                if dx_ND is not None:
                    dx_ND[part] = (logits_NV.to(dtype) @ rounded_VD).to(dx_ND.dtype)
                if dw_VD is not None:  # beta 0: what stands there is not read
                    dw_VD.addmm_(logits_NV.T.to(dw_VD.dtype), x.to(dw_VD.dtype), beta=beta)
                    beta = 1.0
        if dw_VD is not None and beta == 0.0:
            dw_VD.zero_()
        ctx.given = into_VD is not None
        ctx.gradients = (dx_ND, None if ctx.given else dw_VD)
        ctx.weight_dtype = w_VD.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "backward ran before through this projected_loss, which computes its gradients "
                "once, in the forward pass, and gives them away; call projected_loss again"
            )
        # Autograd keeps an array as .grad without a copy when nobody else holds it.
        (dx_ND, dw_VD), ctx.gradients = ctx.gradients, None
        upstream = float(grads[0])
        if upstream != 1.0:
            if ctx.given:
                raise RuntimeError(
                    f"an upstream gradient of {upstream} for a projected_loss that has added the "
                    "gradient for 1 to head_gradient_VD; call backward on the sum itself"
                )
            for gradient in (dx_ND, dw_VD):
                if gradient is not None:
                    gradient.mul_(upstream)
        if dw_VD is not None:
            dw_VD = dw_VD.to(ctx.weight_dtype)
        return dx_ND, dw_VD, None, None, None, None, None


def _product(x_ND: Tensor, w_DV: Tensor, out_NV: Tensor) -> None:
    """Written into its place; rounded to the inputs' dtype on the way, if that is another."""
    if x_ND.dtype == out_NV.dtype:
        torch.mm(x_ND, w_DV, out=out_NV)
    else:
        out_NV.copy_(x_ND @ w_DV)
