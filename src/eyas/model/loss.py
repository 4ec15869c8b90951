"""The loss: cross-entropy with z-loss, summed over the targets that count, in bounded memory.

Sums, not means: a step that is split over micro-batches and ranks divides once, by the tokens of
the whole step. The z-loss, `z_loss * log(Z)^2` a token, holds the normaliser near one (Mesh
TensorFlow; Chowdhery et al. 2022, PaLM, section 5). Plain cross-entropy makes two more arrays as
large as the logits (the log-softmax and its gradient); here rows are taken a chunk at a time, and
`projected_loss` also makes the logits themselves only a chunk at a time, computing their gradient
at once (the way of Liger's fused linear cross-entropy, Hsu et al. 2024).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["loss", "projected_loss"]

_CHUNK_NUMBERS = 2**22  # logits a chunk: 16 MiB in float32 ...
_CHUNK_ROWS = 128  # ... but at least so many rows, below which the products get slow


def loss(
    logits: Tensor, targets: Tensor, mask: Tensor | None = None, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Summed loss (float32 scalar, differentiable) and how many targets count (int64 scalar).

    `logits` ... x V, `targets` ... int64, `mask` ... bool: True where the target counts. A target
    outside the vocabulary under a False mask is fine. Raises ValueError when shapes disagree.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"logits {tuple(logits.shape)} for targets {tuple(targets.shape)}")
    weight_N, count = _weights(targets, mask)
    total = _Loss.apply(logits.flatten(0, -2), targets.flatten(), weight_N, float(z_loss))
    return total, count


def projected_loss(
    features: Tensor,
    head_weight_VD: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """As `loss(features @ head_weight.T, ...)`, without ever holding all the logits.

    `features` ... x D (`Network.features`), `head_weight_VD` (`Network.head_weight_VD`). When a
    gradient is wanted it is computed in the forward pass already.
    """
    if features.shape[:-1] != targets.shape:
        raise ValueError(f"features {tuple(features.shape)} for targets {tuple(targets.shape)}")
    weight_N, count = _weights(targets, mask)
    total = _ProjectedLoss.apply(
        features.flatten(0, -2), head_weight_VD, targets.flatten(), weight_N, float(z_loss)
    )
    return total, count


def _weights(targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """1.0 for each target that counts, 0.0 for the others; and their number."""
    if mask is None:
        mask = torch.ones_like(targets, dtype=torch.bool)
    if mask.shape != targets.shape:
        raise ValueError(f"mask {tuple(mask.shape)} for targets {tuple(targets.shape)}")
    return mask.flatten().float(), mask.sum()


def _chunk_rows(vocab_size: int) -> int:
    return max(_CHUNK_ROWS, _CHUNK_NUMBERS // vocab_size)


def _chunk(
    logits_NV: Tensor, targets_N: Tensor, weight_N: Tensor, z_loss: float, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Summed loss of one chunk of float32 logits and, if asked for, its gradient in their place.

    With Z the normaliser and p the softmax: loss = log Z - logit[target] + z (log Z)^2 and
    d loss / d logit = p (1 + 2 z log Z) - [target].
    """
    counted_N = weight_N > 0
    targets_N1 = torch.where(counted_N, targets_N, 0).unsqueeze(1)
    log_z_N = torch.logsumexp(logits_NV, dim=1)
    chosen_N = logits_NV.gather(1, targets_N1).squeeze(1)
    each_N = log_z_N - chosen_N + z_loss * log_z_N.square()
    total = torch.where(counted_N, each_N, 0.0).sum()
    if not gradient:
        return total, None
    scale_N = weight_N * (1 + 2 * z_loss * log_z_N)
    logits_NV.sub_(log_z_N.unsqueeze(1)).exp_().mul_(scale_N.unsqueeze(1))
    logits_NV.scatter_add_(1, targets_N1, -weight_N.unsqueeze(1))
    return total, logits_NV


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, targets_N: Tensor, weight_N: Tensor, z_loss: float
    ) -> Tensor:
        ctx.save_for_backward(logits_NV, targets_N, weight_N)
        ctx.z_loss = z_loss
        total = logits_NV.new_zeros((), dtype=torch.float32)
        rows = _chunk_rows(logits_NV.shape[1])
        pieces = zip(
            logits_NV.split(rows), targets_N.split(rows), weight_N.split(rows), strict=True
        )
        for logits, targets, weight in pieces:
            total += _chunk(logits.float(), targets, weight, z_loss, gradient=False)[0]
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        logits_NV, targets_N, weight_N = ctx.saved_tensors
        out_NV = torch.empty_like(logits_NV)
        rows = _chunk_rows(logits_NV.shape[1])
        for start in range(0, logits_NV.shape[0], rows):
            part = slice(start, start + rows)
            logits = logits_NV[part].to(torch.float32, copy=True)
            _, gradient = _chunk(logits, targets_N[part], weight_N[part], ctx.z_loss, gradient=True)
            assert gradient is not None
            out_NV[part] = gradient.mul_(grads[0])
        return out_NV, None, None, None


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, w_VD: Tensor, targets_N: Tensor, weight_N: Tensor, z_loss: float
    ) -> Tensor:
        wanted = any(ctx.needs_input_grad[:2])
        total = x_ND.new_zeros((), dtype=torch.float32)
        dx_ND = torch.empty_like(x_ND) if wanted else None
        dw_VD = torch.zeros_like(w_VD, dtype=torch.float32) if wanted else None
        rows = _chunk_rows(w_VD.shape[0])
        for start in range(0, x_ND.shape[0], rows):
            part = slice(start, start + rows)
            logits_NV = (x_ND[part] @ w_VD.T).float()
            each, gradient = _chunk(logits_NV, targets_N[part], weight_N[part], z_loss, wanted)
            total += each
            if gradient is not None and dx_ND is not None and dw_VD is not None:
                gradient = gradient.to(x_ND.dtype)
                dx_ND[part] = gradient @ w_VD
                dw_VD.addmm_(gradient.T.to(dw_VD.dtype), x_ND[part].to(dw_VD.dtype))
        if wanted:
            ctx.save_for_backward(dx_ND, dw_VD)
            ctx.weight_dtype = w_VD.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        dx_ND, dw_VD = ctx.saved_tensors
        return dx_ND * grads[0], (dw_VD * grads[0]).to(ctx.weight_dtype), None, None, None
