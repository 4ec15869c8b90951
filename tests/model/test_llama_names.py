"""Promises: the rotary switches of every age mean what `transformers` makes of them; buffers of old
files are passed over; a switch or tensor that we do not have is refused by name."""

import dataclasses

import pytest
import torch
from transformers import LlamaConfig

from eyas.model import initial_weights
from eyas.model.llama_names import from_llama, to_llama
from eyas.recipe import UsageError
from eyas.shape import ModelShape

SHAPE = ModelShape(
    name="llama",
    n_layers=2,
    d_model=48,
    n_heads=6,
    n_kv_heads=2,
    head_dim=8,
    d_ff=72,
    vocab_size=131,
    max_sequence=64,
    block="sequential",
    norm="rmsnorm",
    activation="swiglu",
    n_norms=2,
    tied=False,
    norm_eps=1e-6,
)
LLAMA3 = dataclasses.replace(
    SHAPE,
    rope_theta=500_000.0,
    rope_scaling="llama3",
    rope_factor=8.0,
    rope_low=1.0,
    rope_high=4.0,
    rope_original=32,
)


def written(shape):
    return to_llama(shape, initial_weights(shape, seed=9))


def test_rotary_switches_are_written_for_old_readers_and_new_ones():
    config, state = written(LLAMA3)
    assert config["rope_theta"] == 500_000.0
    for reader in ("rope_scaling", "rope_parameters"):
        table = config[reader]
        assert (table["rope_type"], table["factor"]) == ("llama3", 8.0)
        others = {k: v for k, v in config.items() if k not in ("rope_scaling", "rope_parameters")}
        assert from_llama(others | {reader: table}, state)[0] == LLAMA3
    plain, _ = written(SHAPE)
    assert plain["rope_scaling"] is None
    assert LlamaConfig(**config).rope_parameters["rope_theta"] == 500_000.0


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 300.0},
        {"rope_theta": 300.0, "rope_parameters": {"rope_type": "default"}},
        {"rope_theta": 300.0, "rope_parameters": {"rope_type": "default", "rope_theta": 20.0}},
        {"rope_parameters": {"rope_theta": 20.0, "partial_rotary_factor": 1.0}},
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {
            "rope_scaling": {"type": "linear", "factor": 2},
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20.0},
        },
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 1,
                "high_freq_factor": 4,
            },
            "original_max_position_embeddings": 16,
        },
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 1,
                "high_freq_factor": 4,
            }
        },
        {},
    ],
    ids=str,
)
def test_rotary_switches_are_read_in_the_order_of_transformers(rope):
    config, state = written(SHAPE)
    for name in ("rope_theta", "rope_scaling", "rope_parameters"):
        del config[name]
    copied = {k: dict(v) if isinstance(v, dict) else v for k, v in rope.items()}
    theirs = LlamaConfig(**config, **copied)
    theirs.standardize_rope_params()  # as its rotary embedding does before it looks
    meant = theirs.rope_parameters
    shape, _ = from_llama(config | rope, state)
    assert shape.rope_theta == meant["rope_theta"]
    assert shape.rope_scaling == meant["rope_type"].replace("default", "none")
    assert shape.rope_factor == meant.get("factor", 1.0)
    assert shape.rope_original == meant.get("original_max_position_embeddings", 0)


def test_what_is_left_out_is_what_transformers_takes():
    multi_head = dataclasses.replace(SHAPE, n_kv_heads=6)
    config, state = written(multi_head)
    named = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    few = {n: config[n] for n in (*named, "num_attention_heads", "model_type")}
    assert from_llama(few, state)[0] == dataclasses.replace(multi_head, max_sequence=2048)
    defaults = LlamaConfig(**few)
    assert defaults.num_key_value_heads == 6
    assert defaults.rms_norm_eps == multi_head.norm_eps
    assert defaults.tie_word_embeddings is False


def test_frequencies_in_old_files_are_passed_over():
    config, state = written(SHAPE)
    buffers = {
        f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.zeros(4) for layer in (0, 1)
    }
    assert from_llama(config, state | buffers)[0] == SHAPE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias is True and mlp_bias False; we have only both"),
        ({"mlp_bias": True}, "attention_bias is False and mlp_bias True"),
        ({"head_dim": 16}, "head_dim 16 x num_attention_heads 6 is 96, not hidden_size 48"),
        ({"pretraining_tp": 2}, "pretraining_tp is 2; we have only 1"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; we have only silu, swish"),
        ({"num_key_value_heads": 4}, "num_attention_heads 6 is no multiple of num_key_value_heads"),
        ({"num_attention_heads": 7}, "hidden_size 48 is no multiple of num_attention_heads 7"),
        ({"sliding_window": 16}, "sliding_window is not a switch that we know"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000 for"),
        ({"rope_scaling": {"rope_type": "longrope"}}, r"rope_scaling\.rope_type is 'longrope'; we"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0}},
            r"rope_scaling\.low_freq_factor is missing",
        ),
    ],
)
def test_a_switch_that_we_do_not_have_is_refused_by_name(change, message):
    config, state = written(SHAPE)
    with pytest.raises(UsageError, match=f"the Llama configuration cannot be read: {message}"):
        from_llama(config | change, state)


def test_missing_unknown_and_misshapen_tensors_are_named():
    config, state = written(SHAPE)
    gate = "model.layers.1.mlp.gate_proj.weight"
    with pytest.raises(UsageError, match=f"the Llama checkpoint does not fit.*{gate} is missing"):
        from_llama(config, {k: v for k, v in state.items() if k != gate})
    with pytest.raises(UsageError, match=rf"{gate} is \(48, 72\) instead of \(72, 48\)"):
        from_llama(config, state | {gate: state[gate].t()})
    with pytest.raises(UsageError, match=r"q_norm\.weight is not known"):
        from_llama(config, state | {"model.layers.0.self_attn.q_norm.weight": torch.zeros(8)})
    with pytest.raises(UsageError, match=r"lm_head\.weight differs from model\.embed_tokens"):
        from_llama(config | {"tie_word_embeddings": True}, state)
