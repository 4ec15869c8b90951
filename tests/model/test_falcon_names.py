"""Promises: our weights in `transformers`' Falcon give our logits; there and back loses no bit; a
switch that we do not have is refused by name."""

import dataclasses

import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM

from eyas.model import from_falcon, initial_weights, network_from, to_falcon
from eyas.recipe import UsageError
from eyas.shape import ModelShape, parameter_table, parameters

torch.set_num_threads(1)

OLD = ModelShape(
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
VARIANTS = {
    "7b": OLD,
    "11b": dataclasses.replace(OLD, n_kv_heads=2, tied=False, rope_theta=500_042.0),
    "40b": dataclasses.replace(OLD, n_kv_heads=3, n_norms=2, d_ff=100),
    "multi-query, two norms": dataclasses.replace(OLD, n_norms=2),
    "multi-head": dataclasses.replace(OLD, n_kv_heads=6, norm_eps=1e-3),
}
variants = pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS)


def weights(shape):
    g = torch.Generator().manual_seed(7)
    return {
        name: 5 * t if t.dim() == 2 else t + 0.3 * torch.randn(t.shape, generator=g)
        for name, t in initial_weights(shape, seed=9).items()
    }


def theirs(config, state):
    network = FalconForCausalLM(FalconConfig(**config)).eval()
    missing, unknown = network.load_state_dict(state, strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}
    return network


@variants
def test_our_weights_give_our_logits_in_transformers(shape):
    tensors = weights(shape)
    network = theirs(*to_falcon(shape, tensors))
    ids = torch.randint(0, 131, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = network_from(shape, tensors)(ids)
        other = network(ids).logits
    assert ours.std() > 0.3
    assert float((ours - other).abs().max()) < 1e-5


@pytest.mark.parametrize(
    "switches",
    [
        {"multi_query": True},
        {"multi_query": False},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
        {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1},
        {"new_decoder_architecture": True, "tie_word_embeddings": False, "num_kv_heads": 1},
        {"multi_query": True, "ffn_hidden_size": 72, "layer_norm_epsilon": 1e-3},
    ],
    ids=str,
)
def test_their_random_weights_give_their_logits_in_ours(switches):
    torch.manual_seed(3)
    config = FalconConfig(
        vocab_size=131, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, **switches
    )
    network = FalconForCausalLM(config).eval()
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape), alpha=0.1)
    network.tie_weights()
    shape, tensors = from_falcon(config.to_dict(), network.state_dict())
    assert parameters(shape) == sum(p.numel() for p in network.parameters())
    ids = torch.randint(0, 131, (2, 40))
    with torch.no_grad():
        ours, other = network_from(shape, tensors)(ids), network(ids).logits
    assert float((ours - other).abs().max()) < 1e-5 * max(1.0, float(other.abs().max()))


@variants
def test_there_and_back_gives_the_same_shape_and_bits(shape):
    tensors = weights(shape)
    back, found = from_falcon(*to_falcon(shape, tensors))
    assert back == shape
    assert list(found) == list(parameter_table(shape))
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@variants
def test_back_and_there_gives_the_same_bits(shape):
    config, state = to_falcon(shape, weights(shape))
    again, same = to_falcon(*from_falcon(config, state))
    assert again == config
    assert same.keys() == state.keys()
    assert all(torch.equal(same[name], state[name]) for name in state)


def test_multi_query_is_written_with_one_kv_head_and_read_by_the_switch():
    config, state = to_falcon(OLD, weights(OLD))
    assert config["multi_query"] is True
    assert config["num_kv_heads"] == 1
    assert config["new_decoder_architecture"] is False
    misleading = config | {"num_kv_heads": 6}  # as transformers writes it
    assert from_falcon(misleading, state)[0].n_kv_heads == 1


def test_a_tied_head_is_left_out_and_accepted_when_equal():
    config, state = to_falcon(OLD, weights(OLD))
    assert "lm_head.weight" not in state
    embedding = state["transformer.word_embeddings.weight"]
    assert from_falcon(config, state | {"lm_head.weight": embedding.clone()})[0] == OLD
    with pytest.raises(UsageError, match=r"lm_head\.weight differs"):
        from_falcon(config, state | {"lm_head.weight": embedding + 1})


def test_old_names_and_published_configurations_are_read():
    config, state = to_falcon(OLD, weights(OLD))
    del config["rope_parameters"], config["tie_word_embeddings"], config["ffn_hidden_size"]
    config["rope_scaling"] = None
    for old, new in (
        ("n_embed", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
    ):
        config[old] = config.pop(new)
    config |= {"torch_dtype": "bfloat16", "bos_token_id": 11, "auto_map": {}, "use_cache": True}
    config["max_position_embeddings"] = 64
    assert from_falcon(config, state)[0] == OLD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alibi": True}, "alibi is True; we have only False"),
        ({"bias": True}, "bias is True"),
        ({"parallel_attn": False}, "parallel_attn is False"),
        ({"activation": "relu"}, "activation is 'relu'"),
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"sliding_window": 128}, "sliding_window is not a switch that we know"),
        ({"quantization_config": {}}, "quantization_config is not a switch"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {"factor": 2.0}}, "rope_parameters.factor"),
        ({"num_attention_heads": 5}, "n_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; a whole number of at least 1"),
        ({"num_attention_heads": "6"}, "num_attention_heads is '6'"),
        ({"hidden_size": None}, "hidden_size is None"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000, the Falcon checkpoint has",
        ),
        ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon is '1e-5'; a number"),
        ({"rope_parameters": {"rope_theta": "big"}}, "rope_theta is 'big'"),
        ({"rope_parameters": [1]}, "rope_parameters is no table"),
    ],
)
def test_a_switch_that_we_do_not_have_is_refused_by_name(change, message):
    config, state = to_falcon(OLD, weights(OLD))
    with pytest.raises(UsageError, match=message):
        from_falcon(config | change, state)


def test_null_in_a_configuration_means_the_default():
    config, state = to_falcon(OLD, weights(OLD))
    nulls = dict.fromkeys(("max_position_embeddings", "layer_norm_epsilon", "num_kv_heads"))
    shape, _ = from_falcon(config | nulls | {"rope_parameters": None}, state)
    assert shape == dataclasses.replace(OLD, max_sequence=2048)


def test_missing_unknown_and_misshapen_tensors_are_named():
    config, state = to_falcon(OLD, weights(OLD))
    fused = "transformer.h.1.self_attention.query_key_value.weight"
    with pytest.raises(UsageError, match=rf"{fused} is missing"):
        from_falcon(config, {k: v for k, v in state.items() if k != fused})
    with pytest.raises(UsageError, match=r"h\.0\.bias is not known"):
        from_falcon(config, state | {"transformer.h.0.bias": torch.zeros(1)})
    with pytest.raises(UsageError, match=r"is \(64, 40\) instead of \(64, 48\)"):
        from_falcon(config, state | {fused: torch.zeros(64, 40)})
    with pytest.raises(UsageError, match="hidden_size is missing"):
        from_falcon({k: v for k, v in config.items() if k != "hidden_size"}, state)
    ours = weights(OLD)
    del ours["norm.bias"]
    with pytest.raises(UsageError, match=r"norm\.bias is missing"):
        to_falcon(OLD, ours)
    untied, state = to_falcon(VARIANTS["11b"], weights(VARIANTS["11b"]))
    del state["lm_head.weight"]
    with pytest.raises(UsageError, match=r"lm_head\.weight is missing"):
        from_falcon(untied, state)
