"""Which tensors a network has, by name and global shape, and what a token costs.

`parameter_table` is the single list of tensor names: the network registers exactly these, a
checkpoint stores exactly these, the planner counts exactly these. A name never changes.
"""

from __future__ import annotations

import math

from .model_shape import ModelShape

__all__ = ["flops_per_token", "matmul_parameters", "parameter_table", "parameters"]


def parameter_table(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Tensor name to global shape, in the order of the network. No head where it is tied."""
    table: dict[str, tuple[int, ...]] = {"embedding.weight": (shape.vocab_size, shape.d_model)}
    if shape.positions == "learned":
        table["positions.weight"] = (shape.max_sequence, shape.d_model)
    for layer in range(shape.n_layers):
        table |= {f"blocks.{layer}.{name}": size for name, size in _block(shape).items()}
    table |= _norm(shape, "norm")
    if not shape.tied:
        table["head.weight"] = (shape.vocab_size, shape.d_model)
    return table


def parameters(shape: ModelShape) -> int:
    """How many numbers the network has; tied ones once."""
    rows = shape.vocab_size * (1 if shape.tied else 2)
    if shape.positions == "learned":
        rows += shape.max_sequence
    ends = rows * shape.d_model + _numbers(_norm(shape, "norm"))
    return shape.n_layers * _numbers(_block(shape)) + ends


def matmul_parameters(shape: ModelShape) -> int:
    """Weights that a token is multiplied with: every matrix, the output projection once (tied or
    not); not the look-up of the embedding and of learned positions, not biases and norms."""
    block = sum(math.prod(size) for size in _block(shape).values() if len(size) == 2)
    return shape.n_layers * block + shape.vocab_size * shape.d_model


def flops_per_token(shape: ModelShape, sequence: int) -> float:
    """FLOPs of forward and backward for one token of a sample of `sequence` tokens.

    6 a matrix weight (2 forward, 4 backward) and 12 n_layers n_heads head_dim sequence for the
    products of attention: Chowdhery et al. 2022 (PaLM), appendix B; Narayanan et al. 2021
    (Megatron-LM, SC'21) without recomputation. By that convention the causal mask earns no
    discount, and norms, biases, positions, activations and the optimizer are not counted.
    """
    attention = 12 * shape.n_layers * shape.n_heads * shape.head_dim * sequence
    return float(6 * matmul_parameters(shape) + attention)


def _block(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    d_model, d_ff = shape.d_model, shape.d_ff
    queries, keys = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    table = (
        _linear(shape, "attention.query", queries, d_model)
        | _linear(shape, "attention.key", keys, d_model)
        | _linear(shape, "attention.value", keys, d_model)
        | _linear(shape, "attention.out", d_model, queries)
    )
    if shape.activation == "swiglu":
        table |= _linear(shape, "mlp.gate", d_ff, d_model)
    table |= _linear(shape, "mlp.up", d_ff, d_model) | _linear(shape, "mlp.down", d_model, d_ff)
    for name in ("norm",) if shape.n_norms == 1 else ("attention_norm", "mlp_norm"):
        table |= _norm(shape, name)
    return table


def _linear(shape: ModelShape, name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    table: dict[str, tuple[int, ...]] = {f"{name}.weight": (rows, columns)}
    return table | {f"{name}.bias": (rows,)} if shape.bias else table


def _norm(shape: ModelShape, name: str) -> dict[str, tuple[int, ...]]:
    table: dict[str, tuple[int, ...]] = {f"{name}.weight": (shape.d_model,)}
    return table | {f"{name}.bias": (shape.d_model,)} if shape.norm == "layernorm" else table


def _numbers(table: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(size) for size in table.values())
