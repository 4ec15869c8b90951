"""Promises: whatever Falcon, Llama or GPT-2 `transformers` can build gives its logits in our
network, and ours give the same in `transformers`; there and back loses no bit; what cannot be said
in their form is refused by name."""

import dataclasses
import json
import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from eyas.model import (
    Cache,
    Network,
    family_of,
    from_hugging_face,
    initial_weights,
    network_from,
    to_hugging_face,
)
from eyas.recipe import UsageError
from eyas.shape import ModelShape, parameter_table, parameters, preset_names, preset_shape

torch.set_num_threads(1)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}
RW = {"multi_query": False, "parallel_attn": False, "alibi": True, "bias": True}
NEW = {"new_decoder_architecture": True}

FALCON = {
    "7b": {},
    "7b, num_kv_heads beside multi_query": {"num_kv_heads": 6},
    "7b, bias": {"bias": True},
    "7b, alibi": {"alibi": True},
    "7b, untied": {"tie_word_embeddings": False},
    "7b, narrow feed-forward": {"ffn_hidden_size": 72, "layer_norm_epsilon": 1e-3},
    "7b, one norm said": {"num_ln_in_parallel_attn": 1},
    "11b": {
        **NEW,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "tie_word_embeddings": False,
        "rope_theta": 500_042.0,
    },
    "40b": {**NEW, "num_kv_heads": 3},
    "40b, multi_query ignored": {**NEW, "num_kv_heads": 2, "multi_query": False},
    "40b, two norms said": {**NEW, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2},
    "40b, bias": {**NEW, "num_kv_heads": 2, "bias": True},
    "40b, alibi and bias": {**NEW, "num_kv_heads": 3, "alibi": True, "bias": True},
    "40b, kv heads as heads": {**NEW, "num_kv_heads": 6},
    "40b, kv heads left out": NEW,
    "40b, one kv head": {**NEW, "num_kv_heads": 1},
    "40b, one kv head, one norm": {**NEW, "num_kv_heads": 1, "num_ln_in_parallel_attn": 1},
    "multi-head": {"multi_query": False},
    "multi-head, bias, untied": {"multi_query": False, "bias": True, "tie_word_embeddings": False},
    "multi-head, alibi": {"multi_query": False, "alibi": True},
    "rw": RW,
    "rw, 8 heads": {**RW, "hidden_size": 64, "num_attention_heads": 8},
    "rw, 7 heads": {**RW, "hidden_size": 28, "num_attention_heads": 7},
    "rw, 12 heads": {**RW, "num_attention_heads": 12},
    "rw, one head": {**RW, "hidden_size": 8, "num_attention_heads": 1},
    "rw, two norms said": {**RW, "num_ln_in_parallel_attn": 2},
    "sequential, rotary": {"multi_query": False, "parallel_attn": False},
    "sequential, multi-query": {"parallel_attn": False},
    "sequential, multi-query, alibi": {"parallel_attn": False, "alibi": True, "bias": True},
    "gelu by its older name": {"activation": "gelu_python"},
    "tanh": {"activation": "gelu_pytorch_tanh"},
    "tanh, new": {"activation": "gelu_new", "bias": True},
    "tanh, python": {"activation": "gelu_python_tanh"},
    "tanh, fast": {"activation": "gelu_fast"},
    "tanh, accurate": {"activation": "gelu_accurate"},
    "linear": {"rope_parameters": LINEAR},
    "linear, as older versions wrote it": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama3": {**NEW, "num_kv_heads": 2, "rope_parameters": LLAMA3},
}
LLAMA = {
    "multi-head": {},
    "grouped": {"num_key_value_heads": 2},
    "multi-query": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": 3},
    "bias": {"attention_bias": True, "mlp_bias": True},
    "head_dim": {"head_dim": 8, "hidden_act": "swish"},
    "theta": {"rope_theta": 500_000.0},
    "linear": {"rope_parameters": LINEAR},
    "llama3": {"rope_parameters": LLAMA3, "num_key_value_heads": 2},
    "llama3, as older versions wrote it": {
        "rope_theta": 500.0,
        "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
    },
    "llama3 on a longer original": {
        "rope_parameters": {k: v for k, v in LLAMA3.items() if not k.startswith("original")},
    },
}
GPT2 = {
    "gelu_new": {},
    "gelu": {"activation_function": "gelu"},
    "gelu_pytorch_tanh": {"activation_function": "gelu_pytorch_tanh", "n_inner": 40},
    "untied": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    "odd head": {"n_embd": 15, "n_head": 3},
    "one head": {"n_embd": 16, "n_head": 1},
}
SIZES = {
    "falcon": {
        "vocab_size": 97,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "max_position_embeddings": 64,
    },
    "llama": {
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "max_position_embeddings": 64,
    },
    "gpt2": {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 64},
}
VARIANTS = {
    f"{family}: {name}": {"model_type": family, **SIZES[family], **switches}
    for family, table in (("falcon", FALCON), ("llama", LLAMA), ("gpt2", GPT2))
    for name, switches in table.items()
}
variants = pytest.mark.parametrize("switches", VARIANTS.values(), ids=VARIANTS)

IDS = torch.randint(0, 97, (2, 40), generator=torch.Generator().manual_seed(5))


def built(config):
    """The model of `transformers` that a `config.json` of these values would build."""
    values = json.loads(json.dumps(config))
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**values)).eval()


def randomised(config, seed=3):
    """Every parameter random, norms and biases included, at a scale that keeps logits near 1."""
    network = built(config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 2:
            parameter.data = noise * 1.5 / math.sqrt(network.config.hidden_size)
        else:
            parameter.data = 0.3 * noise + (1.0 if name.endswith("weight") else 0.0)
    network.tie_weights()
    return network


def theirs(config, state):
    network = built(config)
    missing, unknown = network.load_state_dict(state, strict=False)
    assert not unknown
    assert missing == (["lm_head.weight"] if config["tie_word_embeddings"] else [])
    network.tie_weights()
    return network


def logits(network, ids=IDS):
    with torch.no_grad():
        out = network(ids)
    return out if isinstance(network, Network) else out.logits


def same_bits(one, other):
    return (
        list(one) == list(other)
        and all(one[name].dtype == other[name].dtype for name in one)
        and all(torch.equal(one[name], other[name]) for name in one)
    )


@variants
def test_their_weights_give_their_logits_in_our_network(switches):
    network = randomised(switches)
    shape, tensors = from_hugging_face(network.config.to_dict(), network.state_dict())
    assert parameters(shape) == sum(p.numel() for p in network.parameters())
    other = logits(network)
    assert other.std() > 0.3
    assert float((logits(network_from(shape, tensors)) - other).abs().max()) < 1e-5
    # as save_pretrained writes it: what is as in the base class left out
    assert from_hugging_face(network.config.to_diff_dict(), network.state_dict())[0] == shape


@variants
def test_our_weights_give_our_logits_in_transformers_and_come_back_bit_for_bit(switches):
    network = randomised(switches)
    state = network.state_dict()
    shape, tensors = from_hugging_face(network.config.to_dict(), state)
    config, written = to_hugging_face(shape, tensors)
    assert config["model_type"] == family_of(shape) == switches["model_type"]
    assert ("lm_head.weight" in written) is not shape.tied
    assert written.keys() | {"lm_head.weight"} == state.keys()
    assert all(torch.equal(written[name], state[name]) for name in written)
    other = logits(theirs(config, written))
    assert float((logits(network_from(shape, tensors)) - other).abs().max()) < 1e-5
    again, found = from_hugging_face(json.loads(json.dumps(config)), written)
    assert again == shape
    assert list(found) == list(parameter_table(shape))
    assert same_bits(found, tensors)
    second, rewritten = to_hugging_face(again, found)
    assert second == config
    assert same_bits(rewritten, written)


@variants
def test_every_tensor_is_felt_by_the_logits(switches):
    """Otherwise equal logits would not show that a tensor came to its place."""
    network = randomised(switches)
    shape, tensors = from_hugging_face(network.config.to_dict(), network.state_dict())
    before = logits(network_from(shape, tensors))
    for name, tensor in tensors.items():
        # Without rotary positions a key's bias adds the same to every score of a query.
        if name.endswith("attention.key.bias") and shape.positions != "rotary":
            continue
        bent = tensors | {name: tensor.flip(0) * 1.5}
        assert float((logits(network_from(shape, bent)) - before).abs().max()) > 1e-3, name


@variants
def test_cached_greedy_generation_is_that_of_transformers(switches):
    network = randomised(switches)
    shape, tensors = from_hugging_face(network.config.to_dict(), network.state_dict())
    ids, count = IDS[:, :9], 14
    generated = network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    ours, cache = network_from(shape, tensors), Cache(capacity=9 + count)
    step, made = ids, [ids]
    for _ in range(count):
        with torch.no_grad():
            step = ours(step, cache)[:, -1].argmax(-1, keepdim=True)
        made.append(step)
    assert torch.equal(torch.cat(made, dim=1), generated)


@variants
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dtypes_are_kept_and_what_is_cut_owns_its_memory(switches, dtype):
    network = randomised(switches).to(dtype)
    state = network.state_dict()
    shape, tensors = from_hugging_face(network.config.to_dict(), state)
    _, written = to_hugging_face(shape, tensors)
    for made, given_ in ((tensors, state), (written, tensors)):
        sources = {tensor.data_ptr(): tensor for tensor in given_.values()}
        for name, tensor in made.items():
            assert tensor.dtype == dtype
            assert tensor.is_contiguous(), name
            assert tensor.untyped_storage().nbytes() == tensor.nbytes, name
            source = sources.get(tensor.data_ptr())
            assert source is None or source.shape == tensor.shape, name
        assert len({tensor.data_ptr() for tensor in made.values()}) == len(made)


@variants
def test_a_block_at_a_time_gives_the_whole_with_meta_tensors_for_the_rest(switches):
    network = randomised(switches)
    config, state = network.config.to_dict(), network.state_dict()
    shape, tensors = from_hugging_face(config, state)
    _, written = to_hugging_face(shape, tensors)

    def in_groups(convert, tensors, marks):
        found = {}
        like = {name: tensor.to("meta") for name, tensor in tensors.items()}
        all_meta = convert(like)
        assert all(tensor.is_meta for tensor in all_meta.values())
        for mark in (*marks, None):
            group = {
                name: tensor
                for name, tensor in tensors.items()
                if (mark in name if mark else not any(m in name for m in marks))
            }
            found |= {n: t for n, t in convert(like | group).items() if not t.is_meta}
        assert {n: t.shape for n, t in all_meta.items()} == {n: t.shape for n, t in found.items()}
        return {name: found[name] for name in all_meta}

    blocks = ("layers.0.", "layers.1.") if shape.norm == "rmsnorm" else ("h.0.", "h.1.")
    ours = in_groups(lambda some: from_hugging_face(config, some)[1], state, blocks)
    assert same_bits(ours, tensors)
    back = in_groups(lambda some: to_hugging_face(shape, some)[1], tensors, ("s.0.", "s.1."))
    assert same_bits(back, written)


@variants
def test_names_without_the_prefix_of_the_base_model_are_read(switches):
    network = randomised(switches)
    config, state = network.config.to_dict(), network.state_dict()
    prefix = f"{network.base_model_prefix}."
    bare = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    assert len(bare.keys() & state.keys()) <= 1  # the head
    _, tensors = from_hugging_face(config, state)
    assert same_bits(from_hugging_face(config, bare)[1], tensors)
    name = next(iter(bare))
    with pytest.raises(UsageError, match=f"{name} is there twice, with and without {prefix}"):
        from_hugging_face(config, state | {name: bare[name]})


def test_a_renamed_tensor_is_handed_on_unless_it_is_strided():
    network = randomised(VARIANTS["falcon: 7b"])
    config, state = network.config.to_dict(), network.state_dict()
    name = "transformer.h.0.mlp.dense_h_to_4h.weight"
    _, tensors = from_hugging_face(config, state)
    assert tensors["blocks.0.mlp.up.weight"].data_ptr() == state[name].data_ptr()
    strided = state | {name: state[name].t().contiguous().t()}
    _, again = from_hugging_face(config, strided)
    assert again["blocks.0.mlp.up.weight"].is_contiguous()
    assert same_bits(again, tensors)


@st.composite
def configurations(draw):
    """Any configuration of the three families that `transformers` can run."""
    family = draw(st.sampled_from(["falcon", "llama", "gpt2"]))
    heads = draw(st.integers(1, 9))
    # A norm over a handful of features can divide by nearly nothing, which magnifies any rounding.
    head_dims = [1, 3, 4, 16] if family == "gpt2" else [2, 4, 6, 16]
    width = heads * draw(st.sampled_from([c for c in head_dims if heads * c >= 16]))
    layers, vocab = draw(st.integers(1, 2)), draw(st.integers(2, 97))
    eps = draw(st.sampled_from([1e-6, 1e-5, 1e-2]))
    groups = draw(st.sampled_from([k for k in range(1, heads + 1) if heads % k == 0]))
    inner = draw(st.sampled_from([None, 1, 24, 100]))
    tied = draw(st.booleans())
    if family == "gpt2":
        return {
            "model_type": family,
            "vocab_size": vocab,
            "n_embd": width,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": draw(st.integers(40, 64)),
            "n_inner": inner,
            "activation_function": draw(st.sampled_from(["gelu", "gelu_new"])),
            "layer_norm_epsilon": eps,
            "tie_word_embeddings": tied,
        }
    config = {
        "model_type": family,
        "vocab_size": vocab,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": draw(st.integers(40, 64)),
        "rope_parameters": draw(
            st.sampled_from([None, {"rope_type": "default", "rope_theta": 300.0}, LINEAR, LLAMA3])
        ),
        "tie_word_embeddings": tied,
    }
    if family == "llama":
        bias = draw(st.booleans())
        return config | {
            "num_key_value_heads": draw(st.sampled_from([None, groups])),
            "intermediate_size": inner or 31,
            "rms_norm_eps": eps,
            "attention_bias": bias,
            "mlp_bias": bias,
        }
    new = draw(st.booleans())
    parallel = new or draw(st.booleans())
    return config | {
        "new_decoder_architecture": new,
        "multi_query": draw(st.booleans()),
        "parallel_attn": parallel,
        "num_kv_heads": draw(st.sampled_from([None, groups])) if new else None,
        "num_ln_in_parallel_attn": draw(
            st.sampled_from([None, 1, 2] if new or not parallel else [None, 1])
        ),
        "alibi": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "ffn_hidden_size": inner,
        "layer_norm_epsilon": eps,
        "activation": draw(st.sampled_from(["gelu", "gelu_new"])),
    }


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configurations(), st.integers(0, 2**31))
def test_any_legal_configuration_agrees_both_ways(config, seed):
    network = randomised(config, seed)
    shape, tensors = from_hugging_face(network.config.to_dict(), network.state_dict())
    written_config, written = to_hugging_face(shape, tensors)
    again, found = from_hugging_face(written_config, written)
    assert again == shape
    assert same_bits(found, tensors)
    ids = IDS[:1] % config["vocab_size"]
    ours, other = logits(network_from(shape, tensors), ids), logits(network, ids)
    scale = max(1.0, float(other.abs().max()))
    assert float((ours - other).abs().max()) < 1e-5 * scale
    back = logits(theirs(written_config, written), ids)
    assert float((ours - back).abs().max()) < 1e-5 * scale


@st.composite
def shapes(draw):
    """Any shape at all, most of them in no family."""
    heads = draw(st.integers(1, 6))
    head_dim = draw(st.integers(1, 6))
    block = draw(st.sampled_from(["parallel", "sequential"]))
    values = {
        "name": "any",
        "n_layers": draw(st.integers(1, 2)),
        "d_model": heads * head_dim,
        "n_heads": heads,
        "n_kv_heads": draw(st.sampled_from([k for k in range(1, heads + 1) if heads % k == 0])),
        "head_dim": head_dim,
        "d_ff": draw(st.integers(1, 9)),
        "vocab_size": draw(st.integers(1, 9)),
        "max_sequence": draw(st.integers(17, 99)),
        "block": block,
        "n_norms": 2 if block == "sequential" else draw(st.sampled_from([1, 2])),
        "positions": draw(st.sampled_from(["rotary", "alibi", "learned"])),
        "norm": draw(st.sampled_from(["layernorm", "rmsnorm"])),
        "activation": draw(st.sampled_from(["gelu", "gelu_tanh", "swiglu"])),
        "bias": draw(st.booleans()),
        "tied": draw(st.booleans()),
        "norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
    }
    if values["positions"] == "rotary":
        values["rope_theta"] = draw(st.sampled_from([10_000.0, 500.0]))
        values["rope_scaling"] = draw(st.sampled_from(["none", "linear", "llama3"]))
        if values["rope_scaling"] != "none":
            values["rope_factor"] = 4.0
        if values["rope_scaling"] == "llama3":
            values |= {"rope_low": 1.5, "rope_high": 3.0, "rope_original": 16}
    assume(values["positions"] != "rotary" or head_dim % 2 == 0)
    return ModelShape(**values)


@settings(max_examples=300, deadline=None)
@given(shapes())
def test_any_shape_comes_back_equal_or_is_in_no_family(shape):
    tensors = initial_weights(shape, seed=1)
    try:
        family = family_of(shape)
    except UsageError:
        no_family = r"in no family of transformers.*\(falcon: .*; llama: .*; gpt2: .*\)"
        with pytest.raises(UsageError, match=no_family):
            to_hugging_face(shape, tensors)
        return
    again, found = from_hugging_face(*to_hugging_face(shape, tensors))
    assert again == dataclasses.replace(shape, name=family)
    assert same_bits(found, tensors)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_a_hugging_face_form_of_the_same_tensors(name):
    shape = preset_shape(name)
    tensors = {n: torch.empty(s, device="meta") for n, s in parameter_table(shape).items()}
    config, state = to_hugging_face(shape, tensors)
    with torch.device("meta"):
        network = built(config)
    assert sum(p.numel() for p in network.parameters()) == parameters(shape)
    sizes = {n: t.shape for n, t in network.state_dict().items() if n in state or not shape.tied}
    assert {n: t.shape for n, t in state.items()} == sizes
    again, _ = from_hugging_face(config, network.state_dict())
    assert again == dataclasses.replace(shape, name=config["model_type"])


SHAPE = ModelShape(
    name="ours",
    n_layers=1,
    d_model=24,
    n_heads=6,
    n_kv_heads=6,
    head_dim=4,
    d_ff=32,
    vocab_size=97,
    max_sequence=64,
)
SEQUENTIAL = {"block": "sequential", "n_norms": 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"norm": "rmsnorm"},
            r'falcon: norm is "rmsnorm", Falcon has layernorm; llama: activation',
        ),
        (
            {"activation": "swiglu"},
            r'falcon: activation is "swiglu", Falcon has gelu or gelu_tanh;',
        ),
        (
            SEQUENTIAL | {"norm": "rmsnorm", "activation": "swiglu", "positions": "alibi"},
            r'llama: positions is "alibi", Llama has rotary;',
        ),
        ({"norm": "rmsnorm", "activation": "swiglu"}, r'llama: block is "parallel", Llama has seq'),
        (
            SEQUENTIAL | {"positions": "learned"},
            r'falcon: positions are "learned".*gpt2: bias is false, GPT-2 has biases\)',
        ),
        (
            SEQUENTIAL | {"positions": "learned", "bias": True, "n_kv_heads": 2},
            r"gpt2: n_kv_heads is 2, GPT-2 has 6 \(n_heads\)\)",
        ),
        (SEQUENTIAL | {"n_kv_heads": 2}, r"falcon: n_kv_heads is 2, Falcon's sequential blocks"),
        (
            {"positions": "alibi", "d_model": 18, "head_dim": 3},
            r"falcon: head_dim 3 is odd, Falcon has even ones;",
        ),
    ],
)
def test_a_shape_of_no_family_is_refused_with_the_reason_of_each(change, reason):
    shape = dataclasses.replace(SHAPE, **change)
    with pytest.raises(UsageError, match=f"model ours is in no family of transformers.*{reason}"):
        family_of(shape)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model_type is missing in the configuration; we have falcon, RefinedWeb, "),
        ({"model_type": "mistral"}, "model_type is 'mistral' .* RefinedWebModel, llama, gpt2"),
        ({"model_type": ["llama"]}, r"model_type is \['llama'\]"),
    ],
)
def test_an_unknown_model_type_is_refused_by_name(config, message):
    with pytest.raises(UsageError, match=message):
        from_hugging_face(config, {})


def test_of_many_problems_five_are_named_and_the_rest_counted():
    network = built({"model_type": "llama", **SIZES["llama"]})
    config, state = network.config.to_dict(), network.state_dict()
    with pytest.raises(UsageError) as error:
        from_hugging_face(config, {n: t for n, t in state.items() if ".layers.1." not in n})
    assert str(error.value).count("is missing") == 5
    assert str(error.value).endswith("; and 4 more")
    unknown = {f"made_up_{n}": n for n in range(7)}
    with pytest.raises(UsageError) as error:
        from_hugging_face(config | unknown, state)
    assert str(error.value).count("is not a switch that we know") == 5
    assert str(error.value).endswith("; and 2 more")


def test_tensors_of_different_dtypes_are_not_fused_in_silence():
    shape = dataclasses.replace(SHAPE, n_kv_heads=1)
    tensors = initial_weights(shape, seed=1)
    tensors["blocks.0.attention.key.weight"] = tensors["blocks.0.attention.key.weight"].bfloat16()
    with pytest.raises(UsageError, match=r"attention\.key\.weight is torch\.bfloat16"):
        to_hugging_face(shape, tensors)
