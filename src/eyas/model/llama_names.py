"""Our shape and tensor names and Hugging Face's for Llama, both ways: pure mappings, no files.

In: a shape and tensors by our names (or a `config.json` and tensors by theirs). Out: the other.
Llama is RMSNorm, SwiGLU, rotary positions in the same half-split form, sequential blocks, any
number of kv heads (transformers 5.24, `modeling_llama`); every tensor has one of ours, so this is a
renaming. `attention_bias` and `mlp_bias` are one switch here and must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from eyas.shape import ModelShape, parameter_table

from .pieces import Naming, Piece, renamed, tensors_from, tensors_to
from .switches import Switch, Switches, read_switches, refuse, rope_config, rope_shape

__all__ = ["MODEL_TYPES", "from_llama", "to_llama", "why_not_llama"]

MODEL_TYPES = ("llama",)

_SWITCHES = Switches(
    read={
        "vocab_size": Switch("count"),
        "hidden_size": Switch("count"),
        "intermediate_size": Switch("count"),
        "num_hidden_layers": Switch("count"),
        "num_attention_heads": Switch("count"),
        "num_key_value_heads": Switch("count", None),
        "head_dim": Switch("count", None),
        "max_position_embeddings": Switch("count", 2048),
        "rms_norm_eps": Switch("number", 1e-6),
        "hidden_act": Switch("word", "swiglu", {"silu": "swiglu", "swish": "swiglu"}),
        "attention_bias": Switch("flag", False),
        "mlp_bias": Switch("flag", False),
        "tie_word_embeddings": Switch("flag", False),
    },
    fixed={"model_type": MODEL_TYPES, "pretraining_tp": (1, None)},
    harmless=frozenset({"max_sequence_length"}),
)

_NAMING = Naming(
    family="Llama",
    prefix="model.",
    embedding="model.embed_tokens.weight",
    # The frequencies of the rotary positions, which files of transformers before 4.32 hold.
    ignored=r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
)

_BLOCK = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.out",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "mlp_norm",
}


def why_not_llama(shape: ModelShape) -> list[str]:
    """What about a shape Llama cannot say; empty if it can."""
    llama = {
        "norm": "rmsnorm",
        "activation": "swiglu",
        "positions": "rotary",
        "block": "sequential",
    }
    return [
        f'{name} is "{getattr(shape, name)}", Llama has {legal}'
        for name, legal in llama.items()
        if getattr(shape, name) != legal
    ]


def to_llama(
    shape: ModelShape, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our tensors as a Llama configuration and state dict; dtypes are kept.

    The configuration has no token ids, dtype or version: whoever writes the folder adds them. A
    tied output projection is left out of the state. Raises UsageError naming a tensor that is
    missing, unknown or of a wrong shape.
    """
    return _config(shape), tensors_to(shape, tensors, _pieces(shape))


def from_llama(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A Llama configuration and state dict as our shape and tensors; dtypes are kept. Raises
    UsageError naming a switch that is unknown or that we do not have, and a tensor that is missing,
    unknown or of a wrong shape."""
    shape = _shape(read_switches("Llama", config, _SWITCHES))
    if shape.n_layers > len(state):  # a number that is absurd would take as long to list
        refuse("Llama", [f"num_hidden_layers is {shape.n_layers} for {len(state)} tensors"])
    return shape, tensors_from(shape, state, _pieces(shape), _NAMING)


def _config(shape: ModelShape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        **rope_config(shape),
        "max_position_embeddings": shape.max_sequence,
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
        "pretraining_tp": 1,
        "tie_word_embeddings": shape.tied,
        "attention_dropout": 0.0,
    }


def _shape(values: Mapping[str, Any]) -> ModelShape:
    heads, width = values["num_attention_heads"], values["hidden_size"]
    kv_heads = values["num_key_value_heads"] or heads
    head_dim = values["head_dim"] or width // heads
    problems = []
    if width % heads:
        problems.append(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    elif head_dim * heads != width:
        problems.append(
            f"head_dim {head_dim} x num_attention_heads {heads} is {head_dim * heads}, not "
            f"hidden_size {width}; we have only equal ones"
        )
    if heads % kv_heads:
        problems.append(
            f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}"
        )
    if values["attention_bias"] != values["mlp_bias"]:
        problems.append(
            f"attention_bias is {values['attention_bias']} and mlp_bias {values['mlp_bias']}; "
            "we have only both or none"
        )
    refuse("Llama", problems)
    return ModelShape(
        name="llama",
        n_layers=values["num_hidden_layers"],
        d_model=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=head_dim,
        d_ff=values["intermediate_size"],
        vocab_size=values["vocab_size"],
        max_sequence=values["max_position_embeddings"],
        block="sequential",
        norm="rmsnorm",
        activation=values["hidden_act"],
        bias=values["mlp_bias"],
        n_norms=2,
        tied=values["tie_word_embeddings"],
        norm_eps=values["rms_norm_eps"],
        **rope_shape("Llama", values, rotary=True),
    )


def _pieces(shape: ModelShape) -> list[Piece]:
    """Every tensor of theirs, in their order."""
    modules = {"model.embed_tokens": "embedding"}
    for layer in range(shape.n_layers):
        modules |= {f"model.layers.{layer}.{t}": f"blocks.{layer}.{o}" for t, o in _BLOCK.items()}
    modules |= {"model.norm": "norm", "lm_head": "head"}
    sizes = parameter_table(shape)
    return [
        renamed(f"{theirs}.{kind}", f"{ours}.{kind}", sizes[f"{ours}.{kind}"])
        for theirs, ours in modules.items()
        for kind in ("weight", "bias")
        if f"{ours}.{kind}" in sizes
    ]
