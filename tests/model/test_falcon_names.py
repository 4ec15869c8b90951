"""Promises: kv heads are read by the switch and written as one for multi-query; old files are read
as they were meant; a switch or tensor that we do not have is refused by name."""

import dataclasses

import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM

from eyas.model import initial_weights
from eyas.model.falcon_names import from_falcon, to_falcon
from eyas.recipe import UsageError
from eyas.shape import ModelShape

SEVEN = ModelShape(
    name="falcon",
    n_layers=3,
    d_model=48,
    n_heads=6,
    n_kv_heads=1,
    head_dim=8,
    d_ff=192,
    vocab_size=131,
    max_sequence=64,
)
FORTY = dataclasses.replace(SEVEN, n_kv_heads=3, n_norms=2)
RW = dataclasses.replace(
    SEVEN, n_kv_heads=6, block="sequential", n_norms=2, positions="alibi", bias=True
)


def weights(shape):
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in initial_weights(shape, seed=9).items()
    }


def written(shape):
    return to_falcon(shape, weights(shape))


def old(config, model_type):
    """As the first files of the Falcon models name their switches."""
    names = {
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_kv_heads": "n_head_kv",
    }
    kept = {"vocab_size", "hidden_size", "layer_norm_epsilon", "alibi", "bias", "multi_query"}
    values = {
        names.get(n, n): v for n, v in config.items() if n in kept | {"parallel_attn", *names}
    }
    return values | {
        "model_type": model_type,
        "architectures": ["RWForCausalLM"],
        "apply_residual_connection_post_layernorm": False,
        "auto_map": {"AutoConfig": "configuration_RW.RWConfig"},
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "bos_token_id": 11,
        "eos_token_id": 11,
        "initializer_range": 0.02,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.27.4",
        "use_cache": True,
    }


def test_multi_query_is_written_with_one_kv_head_and_read_by_the_switch():
    config, state = written(SEVEN)
    assert config["multi_query"] is True
    assert config["num_kv_heads"] == 1
    assert config["new_decoder_architecture"] is False
    assert FalconConfig(multi_query=True).num_kv_heads == 71  # as transformers writes it
    assert from_falcon(config | {"num_kv_heads": 6}, state)[0].n_kv_heads == 1
    sequential, state = written(dataclasses.replace(RW, n_kv_heads=1))
    assert (sequential["multi_query"], sequential["num_kv_heads"]) == (True, 1)
    assert from_falcon(sequential | {"num_kv_heads": 6}, state)[0].n_kv_heads == 1


def test_multi_head_of_the_old_architecture_is_read_by_the_switch():
    config, state = written(RW)
    assert (config["multi_query"], config["num_kv_heads"]) == (False, 6)
    assert from_falcon(config | {"num_kv_heads": 1}, state)[0] == RW


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (SEVEN, (False, True, None)),
        (dataclasses.replace(SEVEN, n_norms=2), (True, True, 2)),
        (dataclasses.replace(SEVEN, n_kv_heads=6), (True, True, 1)),
        (FORTY, (True, True, 2)),
        (RW, (False, False, None)),
    ],
)
def test_the_architecture_written_is_the_published_one(shape, expected):
    config, state = written(shape)
    names = ("new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn")
    assert tuple(config[name] for name in names) == expected
    assert (
        state.keys() | {"lm_head.weight"}
        == FalconForCausalLM(FalconConfig(**config)).state_dict().keys()
    )


def test_the_fused_rows_are_those_of_each_variant():
    for shape in (SEVEN, FORTY, RW):
        tensors, (_, state) = weights(shape), written(shape)
        parts = [
            tensors[f"blocks.1.attention.{part}.weight"].split(8)
            for part in ("query", "key", "value")
        ]
        rows = []
        for group in range(shape.n_kv_heads):
            per_group = 6 // shape.n_kv_heads
            rows += parts[0][group * per_group : (group + 1) * per_group]
            rows += [parts[1][group], parts[2][group]]
        fused = state["transformer.h.1.self_attention.query_key_value.weight"]
        assert torch.equal(fused, torch.cat(rows))


def test_a_tied_head_is_left_out_and_accepted_when_equal():
    config, state = written(SEVEN)
    assert "lm_head.weight" not in state
    embedding = state["transformer.word_embeddings.weight"]
    assert from_falcon(config, state | {"lm_head.weight": embedding.clone()})[0] == SEVEN
    with pytest.raises(UsageError, match=r"lm_head\.weight differs from transformer\.word_embed"):
        from_falcon(config, state | {"lm_head.weight": embedding + 1})
    with pytest.raises(UsageError, match=r"lm_head\.weight is \(130, 48\) instead of \(131, 48\)"):
        from_falcon(config, state | {"lm_head.weight": embedding[:-1]})
    # a group without data for one of the two cannot compare them
    without = state | {"lm_head.weight": embedding.to("meta")}
    assert from_falcon(config, without)[0] == SEVEN


def test_old_files_are_read_as_their_class_meant_them():
    config, state = written(SEVEN)
    seven = old(config, "RefinedWebModel")
    assert seven["n_layer"] == 3
    assert from_falcon(seven, state)[0] == dataclasses.replace(SEVEN, max_sequence=2048)
    config, state = written(RW)
    rw = old(config, "RefinedWebModel")
    assert from_falcon(rw, state)[0] == dataclasses.replace(RW, max_sequence=2048)
    config, state = written(FORTY)
    forty = old(config, "RefinedWeb")
    assert "new_decoder_architecture" not in forty
    del forty["multi_query"]
    assert from_falcon(forty, state)[0] == dataclasses.replace(FORTY, max_sequence=2048)


@pytest.mark.parametrize("switch", ["multi_query", "parallel_attn"])
def test_an_old_file_must_say_what_its_class_took_otherwise(switch):
    config, state = written(SEVEN)
    values = old(config, "RefinedWebModel")
    del values[switch]
    with pytest.raises(UsageError, match=f"{switch} is missing"):
        from_falcon(values, state)


def test_older_names_are_read_and_must_agree_with_the_present_ones():
    config, state = written(SEVEN)
    older = config | {"n_embed": config["hidden_size"], "n_layer": 3, "n_head": 6, "n_head_kv": 1}
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_kv_heads"):
        del older[name]
    assert from_falcon(older, state)[0] == SEVEN
    assert from_falcon(config | {"n_layer": 3}, state)[0] == SEVEN
    with pytest.raises(UsageError, match="n_layer is 2 and num_hidden_layers is 3"):
        from_falcon(config | {"n_layer": 2}, state)


def test_what_changes_no_number_is_let_pass():
    config, state = written(SEVEN)
    harmless = {
        "_name_or_path": "somewhere",
        "attention_dropout": 0.1,
        "hidden_dropout": 0.1,
        "bos_token_id": 1,
        "eos_token_id": [1, 2],
        "id2label": {"0": "LABEL_0"},
        "quantization_config": None,
        "rope_scaling": None,
        "temperature": 0.7,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.33.0",
    }
    assert from_falcon(config | harmless, state)[0] == SEVEN


def test_with_alibi_no_rotary_scaling_is_read():
    config, state = written(RW)
    yarn = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    assert from_falcon(config | yarn, state)[0] == RW


def test_null_means_what_transformers_makes_of_it():
    config, state = written(SEVEN)
    nulls = ("max_position_embeddings", "layer_norm_epsilon", "num_kv_heads", "rope_parameters")
    nulls += ("ffn_hidden_size", "num_ln_in_parallel_attn", "activation", "alibi", "bias")
    shape, _ = from_falcon(config | dict.fromkeys(nulls), state)
    assert shape == dataclasses.replace(SEVEN, max_sequence=2048)
    assert FalconConfig(multi_query=None).multi_query is None  # and so no multi-query
    config, state = written(RW)
    shape, _ = from_falcon(config | {"multi_query": None, "parallel_attn": None}, state)
    assert shape == RW


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "relu"}, "activation is 'relu'; we have only gelu, gelu_python"),
        ({"model_type": "llama"}, "model_type is 'llama'; we have only 'falcon'"),
        ({"sliding_window": 128}, "sliding_window is not a switch that we know"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}; we have only"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is True; we have only False"),
        ({"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_"),
        ({"rope_scaling": {"type": "dynamic"}}, r"rope_scaling\.rope_type is 'dynamic'; we have"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, r"rope_scaling\.factor is '2'; a nu"),
        ({"rope_scaling": "linear"}, "rope_scaling is no table"),
        ({"rope_parameters": {"rope_type": "yarn"}}, r"rope_parameters\.rope_type is 'yarn'"),
        ({"rope_parameters": {"factor": 2.0}}, r"rope_parameters\.factor is not a switch"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, r"partial_rotary_factor is not"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; we have only 1"),
        ({"rope_parameters": {"rope_theta": "big"}}, "rope_theta is 'big'; a number"),
        ({"rope_parameters": [1]}, "rope_parameters is no table"),
        ({"num_attention_heads": 5}, "hidden_size 48 is no multiple of num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; a whole number of at least 1"),
        ({"num_attention_heads": "6"}, "num_attention_heads is '6'"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000 for 21 tensors"),
        ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon is '1e-5'; a number"),
        ({"bias": "no"}, "bias is 'no'; true or false is meant"),
        ({"num_ln_in_parallel_attn": 2}, r"num_ln_in_parallel_attn is 2; legal is 1 \(2 needs new"),
        (
            {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 3},
            "num_ln_in_parallel_attn is 3; legal is 1 or 2",
        ),
        (
            {"new_decoder_architecture": True, "num_kv_heads": 4},
            "num_attention_heads 6 is no multiple of num_kv_heads 4",
        ),
        (
            {"new_decoder_architecture": True, "parallel_attn": False},
            "parallel_attn is false; new_decoder_architecture has only parallel blocks",
        ),
    ],
)
def test_a_switch_that_we_do_not_have_is_refused_by_name(change, message):
    config, state = written(SEVEN)
    with pytest.raises(UsageError, match=f"the Falcon configuration cannot be read: .*{message}"):
        from_falcon(config | change, state)


@pytest.mark.parametrize(
    "change",
    [
        {"num_ln_in_parallel_attn": 2},
        {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 3},
        {"new_decoder_architecture": True, "parallel_attn": False},
        {"new_decoder_architecture": True, "parallel_attn": False, "num_ln_in_parallel_attn": 1},
    ],
    ids=str,
)
def test_combinations_that_we_refuse_do_not_run_in_transformers_either(change):
    config, _ = written(SEVEN)
    network = FalconForCausalLM(FalconConfig(**config | change))
    with pytest.raises((AttributeError, UnboundLocalError)):
        network(torch.zeros(1, 4, dtype=torch.long))


def test_missing_unknown_and_misshapen_tensors_are_named():
    config, state = written(RW)
    for name in ("self_attention.query_key_value.bias", "post_attention_layernorm.weight"):
        full = f"transformer.h.1.{name}"
        with pytest.raises(UsageError, match=rf"{full} is missing"):
            from_falcon(config, {k: v for k, v in state.items() if k != full})
        with pytest.raises(UsageError, match=rf"{full} is \(3,\) instead of \("):
            from_falcon(config, state | {full: torch.zeros(3)})
    with pytest.raises(UsageError, match=r"transformer\.h\.0\.bias is not known"):
        from_falcon(config, state | {"transformer.h.0.bias": torch.zeros(1)})
    with pytest.raises(UsageError, match=r"query_key_value\.bias is not known"):
        from_falcon(config | {"bias": False}, state)
    ours = weights(RW)
    del ours["norm.bias"]
    with pytest.raises(UsageError, match=r"the model does not fit its shape: norm\.bias is missin"):
        to_falcon(RW, ours)
    untied = dataclasses.replace(SEVEN, tied=False)
    config, state = written(untied)
    del state["lm_head.weight"]
    with pytest.raises(UsageError, match=r"lm_head\.weight is missing"):
        from_falcon(config, state)
