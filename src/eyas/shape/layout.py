"""How a network is spread over processes: which layouts are legal, who holds which slice.

A world of ranks is a grid, tensor parallel fastest: rank = data_rank * tensor + tensor_rank.
Tensor parallelism cuts as Megatron-LM does (Shoeybi et al. 2019): query, key, value and the MLP's
first matrix (or gate and up) by output rows, their biases with them; the two that lead back to the
residual stream by input columns, heads kept whole; their biases, embedding, learned positions,
norms and output projection are on every rank. Where there are fewer kv heads than tensor ranks,
each rank holds the one kv head that its query heads read, and several ranks hold the same (Shazeer
2019 multi-query: the only one, on all).
"""

from __future__ import annotations

from dataclasses import dataclass

from eyas.recipe import UsageError

from .model_shape import ModelShape, divisors
from .parameters import parameter_table

__all__ = ["Layout", "check_layout", "legal_layouts", "slice_holders", "tensor_slices"]


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism. `micro_batch`: sequences a forward pass on one data rank."""

    tensor: int = 1
    data: int = 1
    micro_batch: int = 1

    @property
    def world(self) -> int:
        """Ranks: tensor x data."""
        return self.tensor * self.data


def check_layout(
    shape: ModelShape, layout: Layout, world: int, global_batch_sequences: int
) -> None:
    """Raise UsageError, naming every problem with the legal values, if the layout cannot run
    `global_batch_sequences` sequences a step on `world` ranks."""
    tensors = [t for t in divisors(world) if _tensor_is_legal(shape, t)]
    out = []
    if layout.tensor not in tensors:
        out.append(
            f"layout.tensor {layout.tensor} does not suit {shape.n_heads} query heads, "
            f"{shape.n_kv_heads} kv heads and d_ff {shape.d_ff} on {world} processes; "
            f"legal are {_listed(tensors)}"
        )
    elif layout.world != world:
        out.append(
            f"layout.tensor {layout.tensor} x layout.data {layout.data} is {layout.world}, but "
            f"there are {world} processes; layout.data must be {world // layout.tensor}"
        )
    if layout.data < 1 or global_batch_sequences % layout.data:
        legal = [d for d in divisors(world) if global_batch_sequences % d == 0]
        out.append(
            f"layout.data {layout.data} does not divide the {global_batch_sequences} sequences of "
            f"the global batch; legal are {_listed(legal)}"
        )
    elif layout.micro_batch not in (legal := divisors(global_batch_sequences // layout.data)):
        out.append(
            f"layout.micro_batch {layout.micro_batch} does not divide the "
            f"{global_batch_sequences // layout.data} sequences of a data rank; "
            f"legal are {_listed(legal)}"
        )
    if out:
        raise UsageError("; ".join(out))


def legal_layouts(shape: ModelShape, world: int, global_batch_sequences: int) -> list[Layout]:
    """Every layout that `check_layout` accepts, by tensor degree, then micro-batch."""
    return [
        Layout(tensor, world // tensor, micro_batch)
        for tensor in divisors(world)
        if _tensor_is_legal(shape, tensor) and global_batch_sequences % (world // tensor) == 0
        for micro_batch in divisors(global_batch_sequences // (world // tensor))
    ]


def tensor_slices(
    shape: ModelShape, tensor_degree: int, tensor_rank: int
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tensor name to (offset, shape) of what `tensor_rank` of `tensor_degree` holds; a tensor that
    is not cut has offset zero and its global shape. Raises UsageError for an illegal degree."""
    if not _tensor_is_legal(shape, tensor_degree):
        raise UsageError(
            f"layout.tensor {tensor_degree} cannot cut {shape.n_heads} query heads, "
            f"{shape.n_kv_heads} kv heads and d_ff {shape.d_ff} evenly"
        )
    if not 0 <= tensor_rank < tensor_degree:
        raise UsageError(f"tensor rank {tensor_rank} is not in 0..{tensor_degree - 1}")
    return {
        name: _cut(shape, name, size, tensor_degree, tensor_rank)
        for name, size in parameter_table(shape).items()
    }


def slice_holders(shape: ModelShape, tensor_degree: int) -> dict[str, int]:
    """Tensor name to how many neighbouring tensor ranks hold the same slice: 1 where the tensor is
    cut for each, `tensor_degree` where it is whole, between for kv heads that some ranks share."""
    own = tensor_slices(shape, tensor_degree, 0)
    holders = dict.fromkeys(own, 0)
    for rank in range(tensor_degree):
        for name, piece in tensor_slices(shape, tensor_degree, rank).items():
            holders[name] += piece == own[name]
    return holders


def _cut(
    shape: ModelShape, name: str, size: tuple[int, ...], degree: int, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and shape of a rank's slice. A bias is cut with the rows that it is added to; one that
    is added to a sum over the ranks is whole."""
    part = ".".join(name.split(".")[-3:-1])
    whole, is_matrix = (0,) * len(size), len(size) == 2
    if part in ("attention.query", "mlp.gate", "mlp.up"):
        rows = size[0] // degree
        return (rank * rows, *whole[1:]), (rows, *size[1:])
    if part in ("attention.out", "mlp.down") and is_matrix:
        columns = size[1] // degree
        return (0, rank * columns), (size[0], columns)
    if part in ("attention.key", "attention.value"):
        heads = max(1, shape.n_kv_heads // degree)
        first = rank * shape.n_kv_heads // degree
        return (first * shape.head_dim, *whole[1:]), (heads * shape.head_dim, *size[1:])
    return whole, size


def _tensor_is_legal(shape: ModelShape, tensor: int) -> bool:
    if tensor < 1 or shape.n_heads % tensor or shape.d_ff % tensor:
        return False
    return shape.n_kv_heads % tensor == 0 or tensor % shape.n_kv_heads == 0


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values)) if values else "none"
