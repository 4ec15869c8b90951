"""Our shape and tensor names and Hugging Face's for GPT-2, both ways: pure mappings, no files.

In: a shape and tensors by our names (or a `config.json` and tensors by theirs). Out: the other.
GPT-2 is LayerNorm, GELU, learned positions, sequential blocks, biases everywhere, a key and value
for every head (Radford et al. 2019): the form in which Jurassic-1 shapes travel too. Its linear
layers are stored input by output (transformers' `Conv1D`), so every matrix is turned over, and
query, key and value stand beside each other in the columns of `c_attn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eyas.shape import ModelShape, parameter_table

from .pieces import Naming, Piece, own, renamed, tensors_from, tensors_to, transposed
from .switches import Switch, Switches, read_switches, refuse

__all__ = ["MODEL_TYPES", "from_gpt2", "to_gpt2", "why_not_gpt2"]

MODEL_TYPES = ("gpt2",)

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}

_SWITCHES = Switches(
    read={
        "vocab_size": Switch("count"),
        "n_positions": Switch("count", 1024),
        "n_embd": Switch("count"),
        "n_layer": Switch("count"),
        "n_head": Switch("count"),
        "n_inner": Switch("count", None),
        "activation_function": Switch("word", "gelu_tanh", _ACTIVATIONS),
        "layer_norm_epsilon": Switch("number", 1e-5),
        "tie_word_embeddings": Switch("flag", True),
    },
    fixed={
        "model_type": MODEL_TYPES,
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    # reorder_and_upcast_attn is about half precision: in float32 it only rounds otherwise.
    harmless=frozenset(
        """attn_pdrop embd_pdrop n_ctx reorder_and_upcast_attn resid_pdrop summary_activation
        summary_first_dropout summary_proj_to_labels summary_type summary_use_proj""".split()
    ),
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)

_NAMING = Naming(
    family="GPT-2",
    prefix="transformer.",
    embedding="transformer.wte.weight",
    # The causal mask and its filling, which older files hold.
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
)


def why_not_gpt2(shape: ModelShape) -> list[str]:
    """What about a shape GPT-2 cannot say; empty if it can."""
    reasons = []
    if shape.norm != "layernorm":
        reasons.append(f'norm is "{shape.norm}", GPT-2 has layernorm')
    if shape.activation not in ("gelu", "gelu_tanh"):
        reasons.append(f'activation is "{shape.activation}", GPT-2 has gelu or gelu_tanh')
    if shape.positions != "learned":
        reasons.append(f'positions are "{shape.positions}", GPT-2 has learned')
    if shape.block != "sequential":
        reasons.append(f'block is "{shape.block}", GPT-2 has sequential')
    if not shape.bias:
        reasons.append("bias is false, GPT-2 has biases")
    if shape.n_kv_heads != shape.n_heads:
        reasons.append(f"n_kv_heads is {shape.n_kv_heads}, GPT-2 has {shape.n_heads} (n_heads)")
    return reasons


def to_gpt2(
    shape: ModelShape, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our tensors as a GPT-2 configuration and state dict; dtypes are kept.

    The configuration has no token ids, dtype or version: whoever writes the folder adds them. A
    tied output projection is left out of the state. Raises UsageError naming a tensor that is
    missing, unknown or of a wrong shape.
    """
    return _config(shape), tensors_to(shape, tensors, _pieces(shape))


def from_gpt2(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A GPT-2 configuration and state dict as our shape and tensors; dtypes are kept. Raises
    UsageError naming a switch that is unknown or that we do not have, and a tensor that is missing,
    unknown or of a wrong shape."""
    shape = _shape(read_switches("GPT-2", config, _SWITCHES))
    if shape.n_layers > len(state):  # a number that is absurd would take as long to list
        refuse("GPT-2", [f"n_layer is {shape.n_layers} for {len(state)} tensors"])
    return shape, tensors_from(shape, state, _pieces(shape), _NAMING)


def _config(shape: ModelShape) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": shape.vocab_size,
        "n_positions": shape.max_sequence,
        "n_ctx": shape.max_sequence,
        "n_embd": shape.d_model,
        "n_layer": shape.n_layers,
        "n_head": shape.n_heads,
        "n_inner": shape.d_ff,
        "activation_function": "gelu" if shape.activation == "gelu" else "gelu_new",
        "layer_norm_epsilon": shape.norm_eps,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": shape.tied,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _shape(values: Mapping[str, Any]) -> ModelShape:
    heads, width = values["n_head"], values["n_embd"]
    if width % heads:
        refuse("GPT-2", [f"n_embd {width} is no multiple of n_head {heads}"])
    return ModelShape(
        name="gpt2",
        n_layers=values["n_layer"],
        d_model=width,
        n_heads=heads,
        n_kv_heads=heads,
        head_dim=width // heads,
        d_ff=values["n_inner"] or 4 * width,
        vocab_size=values["vocab_size"],
        max_sequence=values["n_positions"],
        block="sequential",
        positions="learned",
        activation=values["activation_function"],
        bias=True,
        n_norms=2,
        tied=values["tie_word_embeddings"],
        norm_eps=values["layer_norm_epsilon"],
    )


def _pieces(shape: ModelShape) -> list[Piece]:
    """Every tensor of theirs, in their order."""
    sizes = parameter_table(shape)

    def same(theirs: str, ours: str) -> Piece:
        return renamed(theirs, ours, sizes[ours])

    def norm(theirs: str, ours: str) -> list[Piece]:
        return [same(f"{theirs}.{kind}", f"{ours}.{kind}") for kind in ("weight", "bias")]

    def linear(theirs: str, ours: str) -> list[Piece]:
        weight = transposed(f"{theirs}.weight", f"{ours}.weight", sizes[f"{ours}.weight"])
        return [weight, same(f"{theirs}.bias", f"{ours}.bias")]

    pieces = [same("transformer.wte.weight", "embedding.weight")]
    pieces += [same("transformer.wpe.weight", "positions.weight")]
    for layer in range(shape.n_layers):
        theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
        pieces += norm(f"{theirs}.ln_1", f"{ours}.attention_norm")
        pieces += _fused(shape.d_model, f"{theirs}.attn.c_attn", f"{ours}.attention")
        pieces += linear(f"{theirs}.attn.c_proj", f"{ours}.attention.out")
        pieces += norm(f"{theirs}.ln_2", f"{ours}.mlp_norm")
        pieces += linear(f"{theirs}.mlp.c_fc", f"{ours}.mlp.up")
        pieces += linear(f"{theirs}.mlp.c_proj", f"{ours}.mlp.down")
    pieces += norm("transformer.ln_f", "norm")
    return pieces if shape.tied else [*pieces, same("lm_head.weight", "head.weight")]


def _fused(d_model: int, theirs: str, ours: str) -> list[Piece]:
    """Query, key and value beside each other: columns of the weight, then the biases."""

    def parts(kind: str) -> tuple[str, ...]:
        return tuple(f"{ours}.{part}.{kind}" for part in ("query", "key", "value"))

    def join(matrices: Sequence[Tensor]) -> Tensor:
        return torch.cat([matrix.t() for matrix in matrices], dim=1)

    def join_bias(biases: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(biases))

    def split(fused: Tensor) -> list[Tensor]:
        return [own(part.t()) for part in fused.split(d_model, dim=1)]

    def split_bias(fused: Tensor) -> list[Tensor]:
        return [own(part) for part in fused.split(d_model)]

    width = 3 * d_model
    return [
        Piece(f"{theirs}.weight", (d_model, width), parts("weight"), join, split),
        Piece(f"{theirs}.bias", (width,), parts("bias"), join_bias, split_bias),
    ]
