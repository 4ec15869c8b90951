"""Promises: the files of the first GPT-2 releases are read (no prefix, masks among the weights,
older names); a switch or tensor that we do not have is refused by name."""

import dataclasses

import pytest
import torch
from transformers import GPT2Config

from eyas.model import initial_weights
from eyas.model.gpt2_names import from_gpt2, to_gpt2
from eyas.recipe import UsageError
from eyas.shape import ModelShape

SHAPE = ModelShape(
    name="gpt2",
    n_layers=2,
    d_model=48,
    n_heads=6,
    n_kv_heads=6,
    head_dim=8,
    d_ff=192,
    vocab_size=131,
    max_sequence=64,
    block="sequential",
    positions="learned",
    activation="gelu_tanh",
    bias=True,
    n_norms=2,
)


def written(shape):
    return to_gpt2(shape, initial_weights(shape, seed=9))


def test_a_file_of_the_first_releases_is_read():
    config, state = written(SHAPE)
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64).tril() for layer in (0, 1)}
    masks |= {f"h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in (0, 1)}
    bare = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    published = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "bos_token_id": 130,
        "eos_token_id": 130,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "n_ctx": 64,
        "n_embd": 48,
        "n_head": 6,
        "n_layer": 2,
        "n_positions": 64,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 131,
    }
    shape, tensors = from_gpt2(published, bare | masks)
    assert shape == SHAPE
    assert all(torch.equal(tensors[n], t) for n, t in initial_weights(SHAPE, seed=9).items())
    with_prefix = {f"transformer.{name}": tensor for name, tensor in masks.items()}
    assert from_gpt2(config, state | with_prefix)[0] == SHAPE


def test_what_is_left_out_is_what_transformers_takes():
    config, state = written(dataclasses.replace(SHAPE, max_sequence=1024))
    few = {n: config[n] for n in ("vocab_size", "n_embd", "n_layer", "n_head", "model_type")}
    assert from_gpt2(few, state)[0] == dataclasses.replace(SHAPE, max_sequence=1024)
    assert GPT2Config(**few).activation_function == "gelu_new"
    names = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers"}
    names |= {"n_head": "num_attention_heads", "n_positions": "max_position_embeddings"}
    general = {names.get(name, name): value for name, value in config.items()}
    assert from_gpt2(general, state)[0] == dataclasses.replace(SHAPE, max_sequence=1024)


def test_query_key_and_value_stand_beside_each_other():
    tensors, (_, state) = initial_weights(SHAPE, seed=9), written(SHAPE)
    fused = state["transformer.h.1.attn.c_attn.weight"]
    assert fused.shape == (48, 144)
    for place, part in enumerate(("query", "key", "value")):
        columns = fused[:, place * 48 : (place + 1) * 48]
        assert torch.equal(columns.t(), tensors[f"blocks.1.attention.{part}.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_attn_weights": False}, "scale_attn_weights is False; we have only True"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True; we have only False"),
        (
            {"activation_function": "relu"},
            "activation_function is 'relu'; we have only gelu, gelu_",
        ),
        ({"n_head": 7}, "n_embd 48 is no multiple of n_head 7"),
        ({"n_head": None}, "n_head is missing"),
        ({"n_layer": 10**9}, "n_layer is 1000000000 for"),
        ({"n_inner": 0}, "n_inner is 0; a whole number of at least 1"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3 and n_layer is 2"),
        ({"rotary_dim": 8}, "rotary_dim is not a switch that we know"),
    ],
)
def test_a_switch_that_we_do_not_have_is_refused_by_name(change, message):
    config, state = written(SHAPE)
    with pytest.raises(UsageError, match=f"the GPT-2 configuration cannot be read: {message}"):
        from_gpt2(config | change, state)


def test_missing_unknown_and_misshapen_tensors_are_named():
    config, state = written(SHAPE)
    name = "transformer.h.1.attn.c_attn.bias"
    with pytest.raises(UsageError, match=f"the GPT-2 checkpoint does not fit.*{name} is missing"):
        from_gpt2(config, {k: v for k, v in state.items() if k != name})
    weight = "transformer.h.1.mlp.c_fc.weight"
    with pytest.raises(UsageError, match=rf"{weight} is \(192, 48\) instead of \(48, 192\)"):
        from_gpt2(config, state | {weight: state[weight].t()})
    with pytest.raises(
        UsageError, match=r"transformer\.wpe\.weight is \(64, 48\) instead of \(32,"
    ):
        from_gpt2(config | {"n_positions": 32}, state)
    with pytest.raises(UsageError, match=r"transformer\.h\.2\.ln_1\.weight is not known"):
        from_gpt2(config, state | {"h.2.ln_1.weight": torch.zeros(48)})
