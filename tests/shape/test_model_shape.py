"""Promises: presets and overrides give the shape asked for; an impossible one names the legal."""

import dataclasses
import json
import math

import pytest

from eyas.recipe import Recipe, UsageError
from eyas.shape import (
    ModelShape,
    flops_per_token,
    matmul_parameters,
    model_shape,
    parameter_table,
    parameters,
    preset_names,
    preset_shape,
)


def recipe(**sections: dict) -> Recipe:
    return Recipe.build({"name": "test", "store": "runs/test", **sections})


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("falcon-rw-1b", 1_311_625_216),
        ("falcon-7b", 6_921_720_704),
        ("falcon-11b", 11_102_822_400),
        ("falcon-40b", 41_303_293_952),
        ("falcon-180b", 178_557_088_768),
        ("jurassic-large", 7_526_293_504),
        ("jurassic-jumbo", 177_951_790_080),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
    ],
)
def test_published_presets_have_the_published_parameter_counts(preset, count):
    assert parameters(preset_shape(preset)) == count


@pytest.mark.parametrize(
    ("preset", "layers", "d_model", "head_dim", "heads", "kv_heads", "d_ff", "vocab"),
    [
        ("falcon-rw-1b", 24, 2048, 64, 32, 32, 8192, 50_304),
        ("falcon-7b", 32, 4544, 64, 71, 1, 18_176, 65_024),
        ("falcon-11b", 60, 4096, 128, 32, 8, 16_384, 65_024),
        ("falcon-40b", 60, 8192, 64, 128, 8, 32_768, 65_024),
        ("falcon-180b", 80, 14_848, 64, 232, 8, 59_392, 65_024),
        ("jurassic-large", 32, 4096, 128, 32, 32, 16_384, 262_144),
        ("jurassic-jumbo", 76, 13_824, 144, 96, 96, 55_296, 262_144),
        ("llama-1b", 16, 2048, 64, 32, 8, 8192, 128_256),
        ("llama-8b", 32, 4096, 128, 32, 8, 14_336, 128_256),
    ],
)
def test_published_presets_have_the_published_shapes(
    preset, layers, d_model, head_dim, heads, kv_heads, d_ff, vocab
):
    shape = preset_shape(preset)
    assert (shape.n_layers, shape.d_model, shape.head_dim) == (layers, d_model, head_dim)
    assert (shape.n_heads, shape.n_kv_heads) == (heads, kv_heads)
    assert (shape.d_ff, shape.vocab_size) == (d_ff, vocab)


@pytest.mark.parametrize(
    ("presets", "switches"),
    [
        (("falcon-7b", "falcon-11b"), ("parallel", 1, "rotary", "layernorm", "gelu", False)),
        (("falcon-40b", "falcon-180b"), ("parallel", 2, "rotary", "layernorm", "gelu", False)),
        (("falcon-rw-1b",), ("sequential", 2, "alibi", "layernorm", "gelu", True)),
        (
            ("jurassic-large", "jurassic-jumbo"),
            ("sequential", 2, "learned", "layernorm", "gelu", True),
        ),
        (("llama-1b", "llama-8b"), ("sequential", 2, "rotary", "rmsnorm", "swiglu", False)),
        (
            ("nano-1m", "nano-5m", "nano-10m", "nano-125m"),
            ("parallel", 1, "rotary", "layernorm", "gelu", False),
        ),
    ],
)
def test_presets_are_of_their_family(presets, switches):
    for preset in presets:
        s = preset_shape(preset)
        assert (s.block, s.n_norms, s.positions, s.norm, s.activation, s.bias) == switches
        assert s.rope_scaling == "none"
        assert s.tied == (preset not in ("falcon-11b", "llama-8b"))


def test_contexts_and_bases_are_the_published_ones():
    found = {n: (preset_shape(n).max_sequence, preset_shape(n).rope_theta) for n in preset_names()}
    published = {
        "falcon-11b": (8192, 500_042.0),
        "llama-1b": (8192, 500_000.0),
        "llama-8b": (8192, 500_000.0),
    }
    assert found == dict.fromkeys(found, (2048, 10_000.0)) | published


@pytest.mark.parametrize(
    ("preset", "low", "high"),
    [("nano-1m", 0.9e6, 1.1e6), ("nano-10m", 9.8e6, 10.2e6), ("nano-125m", 121e6, 126e6)],
)
def test_small_presets_are_as_large_as_their_names_say(preset, low, high):
    shape = preset_shape(preset)
    assert low < parameters(shape) < high
    assert shape.n_kv_heads == 1
    assert shape.n_heads % 2 == 0


@pytest.mark.parametrize("preset", preset_names())
def test_the_count_is_the_sum_of_the_table(preset):
    shape = preset_shape(preset)
    assert parameters(shape) == sum(math.prod(size) for size in parameter_table(shape).values())


def test_the_demo_has_about_five_million_parameters_and_can_be_cut_in_two():
    shape = preset_shape("nano-5m")
    assert shape.vocab_size == 8192
    assert 4.5e6 < parameters(shape) < 5.5e6
    assert shape.n_heads % 2 == 0
    assert shape.d_ff == 4 * shape.d_model
    assert shape.n_kv_heads == 1
    assert shape.n_norms == 1
    assert shape.tied


def test_tensor_names_are_the_fixed_ones():
    one = preset_shape("nano-1m")
    assert list(parameter_table(one))[:10] == [
        "embedding.weight",
        "blocks.0.attention.query.weight",
        "blocks.0.attention.key.weight",
        "blocks.0.attention.value.weight",
        "blocks.0.attention.out.weight",
        "blocks.0.mlp.up.weight",
        "blocks.0.mlp.down.weight",
        "blocks.0.norm.weight",
        "blocks.0.norm.bias",
        "blocks.1.attention.query.weight",
    ]
    assert list(parameter_table(one))[-2:] == ["norm.weight", "norm.bias"]
    two = parameter_table(model_shape(recipe(model={"n_norms": 2, "tied": False})))
    assert "blocks.0.norm.weight" not in two
    assert {"blocks.0.attention_norm.bias", "blocks.0.mlp_norm.weight"} <= set(two)
    assert two["head.weight"] == (8192, 256)


def test_tensors_of_jurassic_are_in_the_order_of_the_network():
    table = parameter_table(preset_shape("jurassic-large"))
    names = list(table)
    assert names[:2] == ["embedding.weight", "positions.weight"]
    assert table["positions.weight"] == (2048, 4096)
    assert [n for n in names if n.startswith("blocks.31.")] == [
        f"blocks.31.{part}.{leaf}"
        for part in (
            "attention.query",
            "attention.key",
            "attention.value",
            "attention.out",
            "mlp.up",
            "mlp.down",
            "attention_norm",
            "mlp_norm",
        )
        for leaf in ("weight", "bias")
    ]
    assert table["blocks.31.mlp.up.bias"] == (16_384,)
    assert table["blocks.31.mlp.down.bias"] == (4096,)
    assert names[-2:] == ["norm.weight", "norm.bias"]


def test_tensors_of_llama_are_in_the_order_of_the_network():
    table = parameter_table(preset_shape("llama-8b"))
    assert [n for n in table if n.startswith("blocks.3.")] == [
        f"blocks.3.{part}.weight"
        for part in (
            "attention.query",
            "attention.key",
            "attention.value",
            "attention.out",
            "mlp.gate",
            "mlp.up",
            "mlp.down",
            "attention_norm",
            "mlp_norm",
        )
    ]
    assert table["blocks.3.mlp.gate.weight"] == table["blocks.3.mlp.up.weight"] == (14_336, 4096)
    assert table["blocks.3.attention.key.weight"] == (1024, 4096)
    assert list(table)[-2:] == ["norm.weight", "head.weight"]


def test_every_key_of_the_shape_can_be_set_in_a_recipe():
    keys = {
        "n_layers": 3,
        "d_model": 96,
        "n_heads": 6,
        "n_kv_heads": 3,
        "head_dim": 16,
        "d_ff": 200,
        "vocab_size": 700,
        "max_sequence": 4000,
        "n_norms": 2,
        "tied": False,
        "rope_theta": 5e5,
        "norm_eps": 1e-6,
        "block": "sequential",
        "positions": "rotary",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": True,
        "rope_scaling": "llama3",
        "rope_factor": 8.0,
        "rope_low": 2.0,
        "rope_high": 5.0,
        "rope_original": 512,
    }
    assert set(keys) == {f.name for f in dataclasses.fields(ModelShape)} - {"name"}
    shape = model_shape(recipe(model=keys | {"preset": "nano-1m", "licence": "Apache-2.0"}))
    assert shape == ModelShape(name="nano-1m", **keys)


def test_width_of_the_mlp_and_norms_follow_where_they_are_left_out():
    llama = {"activation": "swiglu", "norm": "rmsnorm", "block": "sequential"}
    assert model_shape(recipe(model=llama)).d_ff == 704  # 8/3 of 256 is 682.7
    assert model_shape(recipe(model=llama | {"d_model": 768, "n_heads": 12})).d_ff == 2048
    assert model_shape(recipe(model=llama)).n_norms == 2
    assert model_shape(recipe(model={"preset": "falcon-rw-1b", "block": "parallel"})).n_norms == 1
    assert model_shape(recipe(model={"preset": "falcon-40b", "block": "parallel"})).n_norms == 2


def test_overrides_win_and_what_follows_from_them_follows():
    shape = model_shape(recipe(model={"preset": "nano-5m", "d_model": 512, "n_heads": 8}))
    assert (shape.d_model, shape.n_heads, shape.head_dim, shape.d_ff) == (512, 8, 64, 2048)
    assert shape.n_layers == 4


def test_max_sequence_is_the_recipes_or_the_presets_or_the_longest_sequence():
    assert model_shape(recipe(data={"sequence": 256})).max_sequence == 2048
    assert model_shape(recipe(data={"sequence": 4096})).max_sequence == 4096
    longer = [{"tokens": 500_000, "sequence": 4096}]
    assert model_shape(recipe(data={"milestones": longer})).max_sequence == 4096
    keys = {"max_sequence": 1000}
    assert model_shape(recipe(model=keys, data={"sequence": 256})).max_sequence == 1000
    assert model_shape(recipe(model=keys, data={"sequence": 2048})).max_sequence == 2048


def test_learned_positions_must_reach_as_far_as_the_data():
    keys = {"positions": "learned", "max_sequence": 512}
    assert model_shape(recipe(model=keys, data={"sequence": 512})).max_sequence == 512
    message = r"model.max_sequence is 512, .* for 1024, .* of at least 1024, or .* at most 512"
    with pytest.raises(UsageError, match=message):
        model_shape(recipe(model=keys, data={"sequence": 1024}))
    milestones = [{"tokens": 500_000, "sequence": 1024}]
    with pytest.raises(UsageError, match="of at least 1024"):
        model_shape(recipe(model=keys, data={"sequence": 256, "milestones": milestones}))


def test_vocabulary_is_the_recipes_then_the_tokenizers_then_the_presets():
    assert model_shape(recipe()).vocab_size == 8192
    assert model_shape(recipe(), vocab_size=5000).vocab_size == 5000
    assert model_shape(recipe(model={"vocab_size": 5000}), vocab_size=5000).vocab_size == 5000
    assert model_shape(recipe(model={"vocab_size": 600})).vocab_size == 600


def test_a_vocabulary_that_is_not_the_tokenizers_is_an_error_naming_both():
    with pytest.raises(UsageError, match=r"600.*5000"):
        model_shape(recipe(model={"vocab_size": 600}), vocab_size=5000)


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("block", "serial", "parallel, sequential"),
        ("positions", "rope", "rotary, alibi, learned"),
        ("norm", "layer", "layernorm, rmsnorm"),
        ("activation", "relu", "gelu, gelu_tanh, swiglu"),
        ("rope_scaling", "yarn", "none, linear, llama3"),
        ("norm_eps", 0, "more than 0"),
        ("rope_factor", 0.5, "at least 1"),
        ("rope_low", 0, "more than 0"),
        ("n_norms", 3, "at most 2"),
        ("head_dim", 0, "at least 1"),
        ("bias", "yes", "write true or false"),
    ],
)
def test_a_word_or_number_that_is_not_legal_is_refused_with_its_key(key, value, legal):
    with pytest.raises(UsageError, match=f"model.{key}: .* is not legal; .*{legal}"):
        recipe(model={key: value})
    if isinstance(value, str) and key != "bias":
        with pytest.raises(UsageError, match=f'{key} is "{value}"; legal are {legal}'):
            dataclasses.replace(preset_shape("nano-1m"), **{key: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_theta": 0.0}, "rope_theta is 0.0; more than 0"),
        ({"norm_eps": -1.0}, "norm_eps is -1.0; more than 0"),
        ({"n_norms": 3}, "n_norms is 3; legal are 1, 2"),
        ({"rope_scaling": "linear", "rope_factor": 0.5}, "rope_factor is 0.5; at least 1"),
        ({"rope_scaling": "llama3", "rope_factor": 8.0}, "rope_original is 0; at least 1"),
        ({"d_ff": 0, "vocab_size": 0}, "d_ff is 0; at least 1; vocab_size is 0; at least 1"),
    ],
)
def test_numbers_of_a_stored_shape_are_checked_as_well(values, message):
    with pytest.raises(UsageError, match=message):
        ModelShape.from_dict(preset_shape("nano-1m").to_dict() | values)


def test_an_odd_width_of_heads_is_legal_where_nothing_is_turned():
    for positions in ("alibi", "learned"):
        keys = {"d_model": 36, "n_heads": 4, "positions": positions}
        assert model_shape(recipe(model=keys)).head_dim == 9


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"preset": "falcon-8b"}, "falcon-7b, falcon-rw-1b, jurassic-jumbo"),
        ({"n_kv_heads": 3}, "n_kv_heads 3 does not divide n_heads 4; legal are 1, 2, 4"),
        ({"head_dim": 32}, "n_heads 4 x head_dim 32 is 128, not d_model 256; legal is n_heads 8"),
        ({"n_heads": 7}, "n_heads 7 does not divide d_model 256; legal n_heads are 1, 2, 4"),
        ({"d_model": 36, "n_heads": 4}, "head_dim 9 is odd.* d_model 36: 2, 4, 6, 12, 18, 36"),
        ({"d_model": 127, "n_heads": 4}, "rotary positions need an even d_model"),
        ({"d_model": 10**12, "n_heads": 7}, "does not divide d_model 1000000000000"),
        ({"head_dim": 48}, "a head_dim that divides 256"),
        ({"d_model": 36, "n_heads": 5, "positions": "alibi"}, "legal n_heads are 1, 2, 3, 4$"),
        ({"d_model": 36, "n_heads": 5}, "legal n_heads are 1, 2, 3$"),
        ({"block": "sequential", "n_norms": 1}, "n_norms is 1; legal in a sequential block is 2"),
        ({"rope_scaling": "linear"}, 'rope_scaling "linear" needs rope_factor'),
        (
            {"rope_scaling": "llama3", "rope_low": 1.0},
            'rope_scaling "llama3" needs rope_factor, rope_original',
        ),
        (
            {"rope_scaling": "linear", "rope_factor": 2, "positions": "alibi"},
            'rope_scaling is "linear" but positions are "alibi"; legal is none',
        ),
        (
            {"rope_scaling": "linear", "rope_factor": 2, "positions": "learned"},
            'but positions are "learned"',
        ),
        ({"rope_factor": 2.0}, 'rope_scaling is "none"; legal with linear or llama3'),
        (
            {"rope_scaling": "linear", "rope_factor": 2, "rope_original": 8},
            'rope_original is 8 but rope_scaling is "linear"; legal with llama3',
        ),
        (
            {"rope_scaling": "llama3", "rope_factor": 2, "rope_original": 8, "rope_low": 4},
            "legal are 0 < rope_low < rope_high",
        ),
    ],
)
def test_impossible_shapes_name_the_legal_values(keys, message):
    with pytest.raises(UsageError, match=message):
        model_shape(recipe(model=keys))


@pytest.mark.parametrize("preset", preset_names())
def test_a_shape_survives_json(preset):
    shape = preset_shape(preset)
    assert ModelShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape


def test_unknown_and_missing_keys_of_a_stored_shape_are_named():
    stored = preset_shape("falcon-11b").to_dict()
    with pytest.raises(UsageError, match="does not know: alibi"):
        ModelShape.from_dict(stored | {"alibi": True})
    with pytest.raises(UsageError, match="d_ff"):
        ModelShape.from_dict({k: v for k, v in stored.items() if k != "d_ff"})


def test_a_shape_stored_before_there_were_other_families_is_read_as_what_it_was():
    stored = {
        "name": "nano-5m",
        "n_layers": 4,
        "d_model": 256,
        "n_heads": 4,
        "n_kv_heads": 1,
        "head_dim": 64,
        "d_ff": 1024,
        "vocab_size": 8192,
        "max_sequence": 2048,
        "n_norms": 1,
        "tied": True,
        "rope_theta": 10_000.0,
        "norm_eps": 1e-5,
    }
    assert ModelShape.from_dict(stored) == preset_shape("nano-5m")


def test_flops_count_every_matrix_once_and_attention():
    shape = preset_shape("falcon-40b")
    matrices = parameters(shape) - shape.n_layers * 4 * shape.d_model - 2 * shape.d_model
    assert matmul_parameters(shape) == matrices
    assert flops_per_token(shape, 2048) == 6 * matrices + 12 * 60 * 8192 * 2048


def test_untying_adds_parameters_but_no_flops():
    tied = model_shape(recipe(model={"tied": True}))
    untied = model_shape(recipe(model={"tied": False}))
    assert parameters(untied) - parameters(tied) == 8192 * 256
    assert flops_per_token(untied, 256) == flops_per_token(tied, 256)


def test_flops_do_not_count_look_ups_norms_and_biases():
    shape = preset_shape("jurassic-large")
    block = 4 * 4096 * 4096 + 2 * 4096 * 16_384
    assert matmul_parameters(shape) == 32 * block + 262_144 * 4096
    bare = dataclasses.replace(shape, bias=False, norm="rmsnorm", positions="alibi")
    assert parameters(bare) < parameters(shape)
    assert flops_per_token(bare, 2048) == flops_per_token(shape, 2048)


def test_flops_count_the_gate():
    shape = preset_shape("llama-8b")
    block = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14_336 * 4096
    assert matmul_parameters(shape) == 32 * block + 128_256 * 4096
    assert flops_per_token(shape, 8192) == 6 * matmul_parameters(shape) + 12 * 32 * 4096 * 8192
