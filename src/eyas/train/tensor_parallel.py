"""Tensor parallelism put around the modules of a plain network, as in Megatron-LM (Shoeybi et al.
2019): f copies in front of the cut matrices and sums gradients, g sums behind them and copies
gradients.

Attention and MLP of a block run on this rank's heads and columns, so each of their results is a
partial sum. In a parallel block, where both are added to the same residual, the two partial sums
are added first and summed over the ranks once: one all-reduce a block forward (g, on the MLP's way
out; attention hands its part over and adds nothing itself), and where one norm feeds both, one
backward (f, on the norm's way out). A sequential block has two of each. The biases of the two
matrices that lead back to the residual stream are whole on every rank and added after the sum.
Embeddings, norms and output projection run whole on every rank and, their inputs and incoming
gradients being equal there, end with equal gradients; so do those two biases. Key and value
projections that several ranks hold (multi-query) read the same input but serve different query
heads: their gradients are partial, and `Engine` sums them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, autograd, nn

from eyas.model import Network

from .mesh import Mesh

__all__ = ["parallelise"]


def parallelise(network: Network, mesh: Mesh) -> None:
    """Put the collectives into `network`, whose attention and MLP weights are slices."""
    if mesh.layout.tensor == 1:
        return
    for block in network.blocks:
        parts = dict(block.named_children())
        for norm in ("norm", "attention_norm", "mlp_norm"):
            if norm in parts:
                parts[norm].register_forward_hook(_copy_to(mesh))
        attention: Any = parts["attention"]
        mlp: Any = parts["mlp"]
        heads = attention.query.weight.shape[0] // network.shape.head_dim
        attention.first_head = mesh.tensor_rank * heads
        last = (attention.out, mlp.down)
        for linear in last:  # added on every rank, its bias would be summed as often
            linear.forward = linear.product
        if network.shape.block == "parallel":
            _sum_once(attention, mlp, last, mesh)
        else:
            attention.register_forward_hook(_sum_and_add(last[:1], mesh))
            mlp.register_forward_hook(_sum_and_add(last[1:], mesh))


def _copy_to(mesh: Mesh) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        copied: Tensor = _Copy.apply(output, mesh)
        return copied

    return hook


def _sum_and_add(linears: Sequence[nn.Linear], mesh: Mesh) -> Any:
    """g on a module's way out, then the biases that were left."""

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        summed: Tensor = _Sum.apply(output, mesh)
        for linear in linears:
            if linear.bias is not None:
                summed = summed + linear.bias
        return summed

    return hook


def _sum_once(attention: nn.Module, mlp: nn.Module, last: Sequence[nn.Linear], mesh: Mesh) -> None:
    """`x + attention(a) + mlp(m)` becomes `x + 0 + g(attention(a) + mlp(m))`."""
    held: list[Tensor] = []
    sum_and_add = _sum_and_add(last, mesh)

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        held.append(output)
        return output.new_zeros(())

    def add(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        both: Tensor = sum_and_add(module, inputs, held.pop() + output)
        return both

    attention.register_forward_hook(keep)
    mlp.register_forward_hook(add)


class _Copy(autograd.Function):
    """f: the identity, whose gradient is summed over the tensor ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: Mesh) -> Tensor:
        ctx.mesh = mesh
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].clone()
        ctx.mesh.sum_tensor(gradient)
        return gradient, None


class _Sum(autograd.Function):
    """g: the sum over the tensor ranks, in place, whose gradient is the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: Mesh) -> Tensor:
        ctx.mark_dirty(x)
        mesh.sum_tensor(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
