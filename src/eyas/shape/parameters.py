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
    for layer in range(shape.n_layers):
        table |= {f"blocks.{layer}.{name}": size for name, size in _block(shape).items()}
    table |= _norm("norm", shape.d_model)
    if not shape.tied:
        table["head.weight"] = (shape.vocab_size, shape.d_model)
    return table


def parameters(shape: ModelShape) -> int:
    """How many numbers the network has; tied ones once."""
    block = sum(math.prod(size) for size in _block(shape).values())
    ends = (1 if shape.tied else 2) * shape.vocab_size * shape.d_model + 2 * shape.d_model
    return shape.n_layers * block + ends


def matmul_parameters(shape: ModelShape) -> int:
    """Weights that a token is multiplied with: every matrix, the output projection once (tied or
    not); not the look-up of the embedding, not the norms."""
    block = sum(math.prod(size) for size in _block(shape).values() if len(size) == 2)
    return shape.n_layers * block + shape.vocab_size * shape.d_model


def flops_per_token(shape: ModelShape, sequence: int) -> float:
    """FLOPs of forward and backward for one token of a sample of `sequence` tokens.

    6 a matrix weight (2 forward, 4 backward) and 12 n_layers n_heads head_dim sequence for the
    products of attention: Chowdhery et al. 2022 (PaLM), appendix B; Narayanan et al. 2021
    (Megatron-LM, SC'21) without recomputation. By that convention the causal mask earns no
    discount, and norms, activations and the optimizer are not counted.
    """
    attention = 12 * shape.n_layers * shape.n_heads * shape.head_dim * sequence
    return float(6 * matmul_parameters(shape) + attention)


def _block(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    d_model, head_dim = shape.d_model, shape.head_dim
    table: dict[str, tuple[int, ...]] = {
        "attention.query.weight": (shape.n_heads * head_dim, d_model),
        "attention.key.weight": (shape.n_kv_heads * head_dim, d_model),
        "attention.value.weight": (shape.n_kv_heads * head_dim, d_model),
        "attention.out.weight": (d_model, shape.n_heads * head_dim),
        "mlp.up.weight": (shape.d_ff, d_model),
        "mlp.down.weight": (d_model, shape.d_ff),
    }
    names = ("norm",) if shape.n_norms == 1 else ("attention_norm", "mlp_norm")
    for name in names:
        table |= _norm(name, d_model)
    return table


def _norm(name: str, d_model: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d_model,), f"{name}.bias": (d_model,)}
