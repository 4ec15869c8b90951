"""Our shape and tensor names and Hugging Face's for Falcon, both ways: pure mappings, no files.

In: a shape and tensors by our names (or a `config.json` and tensors by theirs). Out: the other.
Three switches make four kinds of block (transformers 5.24, `FalconDecoderLayer`, `_split_heads`):

| block                      | norms                                         | kv heads           |
| `new_decoder_architecture` | `num_ln_in_parallel_attn`: `input_layernorm`, | `num_kv_heads`     |
|                            | or `ln_attn` and `ln_mlp` (2, the default)    |                    |
| else `parallel_attn`       | `input_layernorm`                             | `multi_query`: 1,  |
| else (sequential)          | `input_layernorm`, `post_attention_layernorm` | or n_heads         |

Query, key and value are fused in one matrix. The new architecture has, for each kv head, its query
heads, then its key, then its value; multi-query all query heads, then the key, then the value;
multi-head for each head query, key, value. The last two are the first with one kv head and with as
many as query heads, so there is one row order, and rows are copied as they are.

`num_kv_heads` is read by the switch: `transformers` writes the number of heads beside
`multi_query: true`, where other readers trust it, so we read past it and write 1. Old files say
`RefinedWebModel` (7B, RW) or `RefinedWeb` (40B, the new architecture) for `falcon`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eyas.shape import ModelShape, parameter_table

from .pieces import Naming, Piece, own, renamed, tensors_from, tensors_to
from .switches import NEEDED, Switch, Switches, read_switches, refuse, rope_config, rope_shape

__all__ = ["MODEL_TYPES", "from_falcon", "to_falcon", "why_not_falcon"]

MODEL_TYPES = ("falcon", "RefinedWeb", "RefinedWebModel")

# transformers' names of activations (`activations.py`) that are ours, but for rounding.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}

_SWITCHES = Switches(
    read={
        "vocab_size": Switch("count"),
        "hidden_size": Switch("count"),
        "num_hidden_layers": Switch("count"),
        "num_attention_heads": Switch("count"),
        "num_kv_heads": Switch("count", None),
        "ffn_hidden_size": Switch("count", None),
        "max_position_embeddings": Switch("count", 2048),
        "num_ln_in_parallel_attn": Switch("count", None),
        "layer_norm_epsilon": Switch("number", 1e-5),
        "activation": Switch("word", "gelu", _ACTIVATIONS),
        "new_decoder_architecture": Switch("flag", False),
        "multi_query": Switch("flag", True),
        "parallel_attn": Switch("flag", True),
        "alibi": Switch("flag", False),
        "bias": Switch("flag", False),
        "tie_word_embeddings": Switch("flag", True),
    },
    fixed={
        "model_type": MODEL_TYPES,
        "apply_residual_connection_post_layernorm": (False,),
    },
    harmless=frozenset(),
    aliases={
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
)

_NAMING = Naming(
    family="Falcon",
    prefix="transformer.",
    embedding="transformer.word_embeddings.weight",
    ignored="",
)


def why_not_falcon(shape: ModelShape) -> list[str]:
    """What about a shape Falcon cannot say; empty if it can."""
    reasons = []
    if shape.norm != "layernorm":
        reasons.append(f'norm is "{shape.norm}", Falcon has layernorm')
    if shape.activation not in ("gelu", "gelu_tanh"):
        reasons.append(f'activation is "{shape.activation}", Falcon has gelu or gelu_tanh')
    if shape.positions not in ("rotary", "alibi"):
        reasons.append(f'positions are "{shape.positions}", Falcon has rotary or alibi')
    if shape.block == "sequential" and shape.n_kv_heads not in (1, shape.n_heads):
        reasons.append(
            f"n_kv_heads is {shape.n_kv_heads}, Falcon's sequential blocks have 1 or "
            f"{shape.n_heads} (n_heads)"
        )
    if shape.head_dim % 2:
        # FalconConfig demands it of ALiBi models too.
        reasons.append(f"head_dim {shape.head_dim} is odd, Falcon has even ones")
    return reasons


def to_falcon(
    shape: ModelShape, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our tensors as a Falcon configuration and state dict; dtypes are kept.

    The configuration has no token ids, dtype or version: whoever writes the folder adds them.
    Sequential blocks, and multi-query with one norm, are written in the old architecture as RW and
    Falcon-7B are, everything else in the new one. A tied output projection is left out of the
    state. Raises UsageError naming a tensor that is missing, unknown or of a wrong shape.
    """
    return _config(shape), tensors_to(shape, tensors, _pieces(shape))


def from_falcon(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A Falcon configuration and state dict as our shape and tensors; dtypes are kept. Raises
    UsageError naming a switch that is unknown or that we do not have, and a tensor that is missing,
    unknown or of a wrong shape."""
    shape = _shape(read_switches("Falcon", config, _switches(config.get("model_type"))))
    if shape.n_layers > len(state):  # a number that is absurd would take as long to list
        refuse("Falcon", [f"num_hidden_layers is {shape.n_layers} for {len(state)} tensors"])
    return shape, tensors_from(shape, state, _pieces(shape), _NAMING)


def _config(shape: ModelShape) -> dict[str, Any]:
    new = shape.block == "parallel" and not (shape.n_kv_heads == 1 and shape.n_norms == 1)
    return {
        "architectures": ["FalconForCausalLM"],
        "model_type": "falcon",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_kv_heads": shape.n_kv_heads,
        "ffn_hidden_size": shape.d_ff,
        "new_decoder_architecture": new,
        "multi_query": shape.n_kv_heads == 1,
        "parallel_attn": shape.block == "parallel",
        "num_ln_in_parallel_attn": shape.n_norms if new else None,
        "alibi": shape.positions == "alibi",
        "bias": shape.bias,
        "activation": "gelu" if shape.activation == "gelu" else "gelu_pytorch_tanh",
        "layer_norm_epsilon": shape.norm_eps,
        **rope_config(shape),
        "max_position_embeddings": shape.max_sequence,
        "tie_word_embeddings": shape.tied,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }


def _switches(model_type: Any) -> Switches:
    """With the defaults of the old classes: RefinedWeb knows only the new architecture, and
    RefinedWebModel means sequential multi-head blocks where today's default is the opposite, so
    there a file must say which."""
    read = dict(_SWITCHES.read)
    if model_type == "RefinedWeb":
        read["new_decoder_architecture"] = Switch("flag", True)
    if model_type == "RefinedWebModel":
        read |= {name: Switch("flag", NEEDED) for name in ("multi_query", "parallel_attn")}
    return dataclasses.replace(_SWITCHES, read=read)


def _shape(values: Mapping[str, Any]) -> ModelShape:
    heads, width = values["num_attention_heads"], values["hidden_size"]
    new, norms = values["new_decoder_architecture"], values["num_ln_in_parallel_attn"]
    sequential = not new and not values["parallel_attn"]
    if new:
        kv_heads, norms = values["num_kv_heads"] or heads, norms or 2
    else:
        kv_heads = 1 if values["multi_query"] else heads
        norms = 2 if sequential else norms or 1
    problems = []
    if width % heads:
        problems.append(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    if heads % kv_heads:
        problems.append(f"num_attention_heads {heads} is no multiple of num_kv_heads {kv_heads}")
    if new and not values["parallel_attn"]:
        problems.append("parallel_attn is false; new_decoder_architecture has only parallel blocks")
    if norms not in ((1, 2) if new or sequential else (1,)):
        legal = "1 or 2" if new else "1 (2 needs new_decoder_architecture)"
        problems.append(f"num_ln_in_parallel_attn is {norms}; legal is {legal}")
    refuse("Falcon", problems)
    return ModelShape(
        name="falcon",
        n_layers=values["num_hidden_layers"],
        d_model=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=width // heads,
        d_ff=values["ffn_hidden_size"] or 4 * width,
        vocab_size=values["vocab_size"],
        max_sequence=values["max_position_embeddings"],
        block="sequential" if sequential else "parallel",
        positions="alibi" if values["alibi"] else "rotary",
        activation=values["activation"],
        bias=values["bias"],
        n_norms=norms,
        tied=values["tie_word_embeddings"],
        norm_eps=values["layer_norm_epsilon"],
        **rope_shape("Falcon", values, rotary=not values["alibi"]),
    )


def _pieces(shape: ModelShape) -> list[Piece]:
    """Every tensor of theirs, in their order."""
    sizes = parameter_table(shape)

    def same(theirs: str, ours: str) -> list[Piece]:
        """The weight, and the bias where there is one."""
        return [
            renamed(f"{theirs}.{kind}", f"{ours}.{kind}", sizes[f"{ours}.{kind}"])
            for kind in ("weight", "bias")
            if f"{ours}.{kind}" in sizes
        ]

    pieces = same("transformer.word_embeddings", "embedding")
    for layer in range(shape.n_layers):
        theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
        for kind in ("weight", "bias") if shape.bias else ("weight",):
            parts = [f"{ours}.attention.{part}.{kind}" for part in ("query", "key", "value")]
            name = f"{theirs}.self_attention.query_key_value.{kind}"
            pieces.append(_fused(shape, name, parts, sizes))
        pieces += same(f"{theirs}.self_attention.dense", f"{ours}.attention.out")
        pieces += same(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.mlp.up")
        pieces += same(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.mlp.down")
        for norm, their_norm in _norms(shape).items():
            pieces += same(f"{theirs}.{their_norm}", f"{ours}.{norm}")
    pieces += same("transformer.ln_f", "norm")
    return pieces if shape.tied else pieces + same("lm_head", "head")


def _norms(shape: ModelShape) -> dict[str, str]:
    """Ours to theirs."""
    if shape.block == "sequential":
        return {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    if shape.n_norms == 1:
        return {"norm": "input_layernorm"}
    return {"attention_norm": "ln_attn", "mlp_norm": "ln_mlp"}


def _fused(
    shape: ModelShape, theirs: str, ours: Sequence[str], sizes: Mapping[str, tuple[int, ...]]
) -> Piece:
    """Query, key and value, weights or biases, as one tensor."""
    rows = sum(sizes[name][0] for name in ours)
    group = (shape.n_heads // shape.n_kv_heads * shape.head_dim, shape.head_dim, shape.head_dim)
    return Piece(
        theirs,
        (rows, *sizes[ours[0]][1:]),
        tuple(ours),
        functools.partial(_fuse, shape.n_kv_heads),
        functools.partial(_split, shape.n_kv_heads, group),
    )


def _fuse(groups: int, parts: Sequence[Tensor]) -> Tensor:
    """Rows by group: a kv head's query heads, its key, its value."""
    rest = parts[0].shape[1:]
    return torch.cat([part.reshape(groups, -1, *rest) for part in parts], dim=1).reshape(-1, *rest)


def _split(groups: int, group: tuple[int, ...], fused: Tensor) -> list[Tensor]:
    rest = fused.shape[1:]
    parts = fused.reshape(groups, -1, *rest).split(group, dim=1)
    return [own(part).reshape(-1, *rest) for part in parts]
