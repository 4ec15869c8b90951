"""Promises: presets and overrides give the shape asked for; an impossible one names the legal."""

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
        ("falcon-7b", 6_921_720_704),
        ("falcon-11b", 11_102_822_400),
        ("falcon-40b", 41_303_293_952),
        ("falcon-180b", 178_557_088_768),
    ],
)
def test_published_presets_have_the_published_parameter_counts(preset, count):
    assert parameters(preset_shape(preset)) == count


@pytest.mark.parametrize(
    ("preset", "layers", "d_model", "head_dim", "heads", "kv_heads"),
    [  # shared/tables/models.csv
        ("falcon-7b", 32, 4544, 64, 71, 1),
        ("falcon-40b", 60, 8192, 64, 128, 8),
        ("falcon-180b", 80, 14848, 64, 232, 8),
    ],
)
def test_published_presets_have_the_published_shapes(
    preset, layers, d_model, head_dim, heads, kv_heads
):
    shape = preset_shape(preset)
    assert (shape.n_layers, shape.d_model, shape.head_dim) == (layers, d_model, head_dim)
    assert (shape.n_heads, shape.n_kv_heads) == (heads, kv_heads)
    assert shape.d_ff == 4 * d_model
    assert shape.vocab_size == 65_024


@pytest.mark.parametrize("preset", preset_names())
def test_the_count_is_the_sum_of_the_table(preset):
    shape = preset_shape(preset)
    total = 0
    for size in parameter_table(shape).values():
        product = 1
        for n in size:
            product *= n
        total += product
    assert parameters(shape) == total


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


def test_overrides_win_and_what_follows_from_them_follows():
    shape = model_shape(recipe(model={"preset": "nano-5m", "d_model": 512, "n_heads": 8}))
    assert (shape.d_model, shape.n_heads, shape.head_dim, shape.d_ff) == (512, 8, 64, 2048)
    assert shape.n_layers == 4


def test_max_sequence_is_the_presets_or_the_longer_data_sequence():
    assert model_shape(recipe(data={"sequence": 256})).max_sequence == 2048
    assert model_shape(recipe(data={"sequence": 4096})).max_sequence == 4096


def test_vocabulary_is_the_recipes_then_the_tokenizers_then_the_presets():
    assert model_shape(recipe()).vocab_size == 8192
    assert model_shape(recipe(), vocab_size=5000).vocab_size == 5000
    assert model_shape(recipe(model={"vocab_size": 5000}), vocab_size=5000).vocab_size == 5000
    assert model_shape(recipe(model={"vocab_size": 600})).vocab_size == 600


def test_a_vocabulary_that_is_not_the_tokenizers_is_an_error_naming_both():
    with pytest.raises(UsageError, match=r"600.*5000"):
        model_shape(recipe(model={"vocab_size": 600}), vocab_size=5000)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"preset": "falcon-8b"}, "falcon-7b, nano-1m"),
        ({"n_kv_heads": 3}, "n_kv_heads 3 does not divide n_heads 4; legal are 1, 2, 4"),
        ({"head_dim": 32}, "n_heads 4 x head_dim 32 is 128, not d_model 256; legal is n_heads 8"),
        ({"n_heads": 7}, "n_heads 7 does not divide d_model 256; legal n_heads are 1, 2, 4"),
        ({"d_model": 36, "n_heads": 4}, "head_dim 9 is odd"),
        ({"head_dim": 48}, "a head_dim that divides 256"),
    ],
)
def test_impossible_shapes_name_the_legal_values(keys, message):
    with pytest.raises(UsageError, match=message):
        model_shape(recipe(model=keys))


def test_a_shape_survives_json_and_unknown_keys_are_refused():
    shape = preset_shape("falcon-11b")
    assert ModelShape.from_dict(shape.to_dict()) == shape
    with pytest.raises(UsageError, match="alibi"):
        ModelShape.from_dict(shape.to_dict() | {"alibi": True})
    with pytest.raises(UsageError, match="d_ff"):
        ModelShape.from_dict({k: v for k, v in shape.to_dict().items() if k != "d_ff"})
    old = {k: v for k, v in shape.to_dict().items() if k not in ("rope_theta", "norm_eps")}
    assert ModelShape.from_dict(old).rope_theta == 10_000.0


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
