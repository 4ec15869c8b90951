"""Our tensor names and Hugging Face's for Falcon, both ways: pure mappings, no files.

In: a shape and tensors by our names (or a `config.json` and tensors by theirs). Out: the other.
Theirs fuse query, key and value in one matrix whose row order depends on switches (transformers
5.24, `FalconAttention._split_heads`):
- `new_decoder_architecture`: for each kv head, its query heads, then its key, then its value;
- else `multi_query`: all query heads, then the key, then the value;
- else: for each head query, key, value (which is the first with as many kv heads as query heads).
Tensors are copied row for row: what comes back is bit for bit what went in. A switch that we cannot
honour is an error that names it, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from eyas.recipe import UsageError
from eyas.shape import ModelShape, parameter_table

__all__ = ["from_falcon", "to_falcon"]

_ALIASES = {
    "n_embed": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_head_kv": "num_kv_heads",
}

_NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")

_COUNTS = (
    *_NEEDED,
    "num_kv_heads",
    "ffn_hidden_size",
    "max_position_embeddings",
    "num_ln_in_parallel_attn",
)
_NUMBERS = ("layer_norm_epsilon", "rope_theta")

# Switches, their default in transformers, and the only values that our network means.
_FIXED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "model_type": ("falcon", ("falcon",)),
    "alibi": (False, (False, None)),
    "bias": (False, (False, None)),
    "parallel_attn": (True, (True,)),
    "activation": ("gelu", ("gelu",)),
    "apply_residual_connection_post_layernorm": (False, (False,)),
    "rope_scaling": (None, (None,)),
    "is_encoder_decoder": (False, (False,)),
    "chunk_size_feed_forward": (0, (0,)),
}

_READ = {
    *_ALIASES.values(),
    "vocab_size",
    "ffn_hidden_size",
    "layer_norm_epsilon",
    "max_position_embeddings",
    "multi_query",
    "new_decoder_architecture",
    "num_ln_in_parallel_attn",
    "rope_parameters",
    "rope_theta",
    "tie_word_embeddings",
}

# Nothing here changes what the network computes from ids.
_HARMLESS = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


def to_falcon(
    shape: ModelShape, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our tensors as a Falcon configuration and state dict; dtypes are kept.

    The configuration has no token ids, dtype or version: whoever writes the folder adds them.
    Multi-query with one norm is written as Falcon-7B is (with `num_kv_heads: 1`, which other
    readers trust), everything else in the new architecture. A tied output projection is left out
    of the state. Raises UsageError naming a tensor that is missing, unknown or of a wrong shape.
    """
    _check(tensors, parameter_table(shape), "the model")
    new = not (shape.n_kv_heads == 1 and shape.n_norms == 1)
    config: dict[str, Any] = {
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
        "parallel_attn": True,
        "num_ln_in_parallel_attn": shape.n_norms if new else None,
        "alibi": False,
        "bias": False,
        "activation": "gelu",
        "layer_norm_epsilon": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": shape.max_sequence,
        "tie_word_embeddings": shape.tied,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    state = {theirs: tensors[ours] for ours, theirs in _plain_names(shape).items()}
    for layer in range(shape.n_layers):
        parts = [tensors[name] for name in _qkv_names(layer)]
        state[_fused_name(layer)] = _fuse(shape, *parts)
    return config, state


def from_falcon(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A Falcon configuration and state dict as our shape and tensors; dtypes are kept.

    The number of kv heads is read by the switches, not trusted: `multi_query` of the old
    architecture means one, whatever `num_kv_heads` says. An `lm_head.weight` beside a tied
    embedding must equal it. Raises UsageError naming a switch that is unknown or that we do not
    have, and a tensor that is missing, unknown or of a wrong shape.
    """
    shape = _shape(_known(config))
    if shape.n_layers > len(state):
        raise UsageError(
            f"num_hidden_layers is {shape.n_layers}, the Falcon checkpoint has {len(state)} tensors"
        )
    names = _plain_names(shape)
    wanted = {theirs: parameter_table(shape)[ours] for ours, theirs in names.items()}
    rows = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim
    wanted |= {_fused_name(layer): (rows, shape.d_model) for layer in range(shape.n_layers)}
    extra = {"lm_head.weight"} if shape.tied else set()
    _check({k: v for k, v in state.items() if k not in extra}, wanted, "the Falcon checkpoint")
    if shape.tied and "lm_head.weight" in state:
        embedding = state["transformer.word_embeddings.weight"]
        if not torch.equal(state["lm_head.weight"], embedding):
            raise UsageError(
                "lm_head.weight differs from transformer.word_embeddings.weight although "
                "tie_word_embeddings is true; set it to false in config.json if the head is its own"
            )
    tensors = {ours: state[theirs] for ours, theirs in names.items()}
    for layer in range(shape.n_layers):
        parts = _split(shape, state[_fused_name(layer)])
        tensors |= dict(zip(_qkv_names(layer), parts, strict=True))
    return shape, {name: tensors[name] for name in parameter_table(shape)}


def _plain_names(shape: ModelShape) -> dict[str, str]:
    """Ours to theirs, for every tensor that is not part of the fused one."""
    names = {
        "embedding.weight": "transformer.word_embeddings.weight",
        "norm.weight": "transformer.ln_f.weight",
        "norm.bias": "transformer.ln_f.bias",
    }
    if not shape.tied:
        names["head.weight"] = "lm_head.weight"
    block = {
        "attention.out.weight": "self_attention.dense.weight",
        "mlp.up.weight": "mlp.dense_h_to_4h.weight",
        "mlp.down.weight": "mlp.dense_4h_to_h.weight",
    }
    norms = (
        {"norm": "input_layernorm"}
        if shape.n_norms == 1
        else {"attention_norm": "ln_attn", "mlp_norm": "ln_mlp"}
    )
    for ours, theirs in norms.items():
        block |= {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}
    for layer in range(shape.n_layers):
        names |= {f"blocks.{layer}.{o}": f"transformer.h.{layer}.{t}" for o, t in block.items()}
    return names


def _qkv_names(layer: int) -> list[str]:
    return [f"blocks.{layer}.attention.{part}.weight" for part in ("query", "key", "value")]


def _fused_name(layer: int) -> str:
    return f"transformer.h.{layer}.self_attention.query_key_value.weight"


def _fuse(shape: ModelShape, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One row order for all variants: a group is a kv head with its query heads, then key, value.
    Multi-query is one such group; as many kv heads as heads makes groups of query, key, value."""
    groups = shape.n_kv_heads
    parts = [part.reshape(groups, -1, shape.d_model) for part in (query, key, value)]
    return torch.cat(parts, dim=1).reshape(-1, shape.d_model).contiguous()


def _split(shape: ModelShape, fused: Tensor) -> list[Tensor]:
    group_rows = (shape.n_heads // shape.n_kv_heads) * shape.head_dim
    grouped = fused.reshape(shape.n_kv_heads, -1, shape.d_model)
    parts = grouped.split([group_rows, shape.head_dim, shape.head_dim], dim=1)
    return [part.reshape(-1, shape.d_model).contiguous() for part in parts]


def _known(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration by its present names, every switch one that we honour."""
    values = {_ALIASES.get(name, name): value for name, value in config.items()}
    problems = [
        f"{name} is not a switch that we know"
        for name in sorted(set(values) - _READ - _HARMLESS - set(_FIXED))
    ]
    problems += [f"{name} is missing" for name in _NEEDED if name not in values]
    for name, (default, legal) in _FIXED.items():
        value = values.get(name, default)
        if value not in legal:
            problems.append(f"{name} is {value!r}; we have only {legal[0]!r}")
    problems += _wrong_kinds(values)
    rope = values.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        rope = {}
        problems.append("rope_parameters is no table")
    problems += _wrong_kinds(rope)
    if rope.get("rope_type", "default") != "default":
        problems.append(f"rope_parameters.rope_type is {rope['rope_type']!r}; we have only default")
    problems += [
        f"rope_parameters.{name} is not a switch that we know"
        for name in sorted(set(rope) - {"rope_type", "rope_theta"})
    ]
    if problems:
        raise UsageError("the Falcon configuration cannot be read: " + "; ".join(problems))
    return {name: value for name, value in values.items() if value is not None}


def _wrong_kinds(values: Mapping[str, Any]) -> list[str]:
    """Counts and numbers that are none; null stands for the default where there is one."""
    given = {n: v for n, v in values.items() if v is not None or n in _NEEDED}
    return [
        f"{name} is {value!r}; a whole number of at least 1 is meant"
        for name, value in given.items()
        if name in _COUNTS and not (type(value) is int and value >= 1)
    ] + [
        f"{name} is {value!r}; a number is meant"
        for name, value in given.items()
        if name in _NUMBERS and type(value) not in (int, float)
    ]


def _shape(config: Mapping[str, Any]) -> ModelShape:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    new = bool(config.get("new_decoder_architecture"))
    norms = (config.get("num_ln_in_parallel_attn") or 2) if new else 1
    if new:
        kv_heads = config.get("num_kv_heads") or heads
    else:
        kv_heads = 1 if config.get("multi_query", True) else heads
    rope = config.get("rope_parameters") or {}
    return ModelShape(
        name="falcon",
        n_layers=config["num_hidden_layers"],
        d_model=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=width // heads,
        d_ff=config.get("ffn_hidden_size") or 4 * width,
        vocab_size=config["vocab_size"],
        max_sequence=config.get("max_position_embeddings", 2048),
        n_norms=norms,
        tied=config.get("tie_word_embeddings", True),
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta", 10_000.0)),
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
    )


def _check(tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Every tensor there, none more, each of its shape; the first few problems are named."""
    problems = [f"{name} is missing" for name in wanted if name not in tensors]
    problems += [f"{name} is not known" for name in tensors if name not in wanted]
    problems += [
        f"{name} is {tuple(tensors[name].shape)} instead of {size}"
        for name, size in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(size)
    ]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UsageError(f"{what} does not fit its shape: " + "; ".join(problems[:5]) + more)
