"""Promises: legality is one function, and the slices of all ranks are exactly the tensor."""

import dataclasses
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.recipe import UsageError
from eyas.shape import (
    Layout,
    check_layout,
    legal_layouts,
    parameter_table,
    preset_shape,
    slice_holders,
    tensor_slices,
)

NANO = preset_shape("nano-5m")


def test_two_processes_may_be_data_or_tensor_parallel():
    degrees = {(lay.tensor, lay.data) for lay in legal_layouts(NANO, 2, 16)}
    assert degrees == {(1, 2), (2, 1)}


@given(
    world=st.integers(1, 16),
    sequences=st.integers(1, 48),
    tensor=st.integers(0, 16),
    data=st.integers(0, 16),
    micro_batch=st.integers(0, 48),
)
@settings(max_examples=200, deadline=None)
def test_what_is_listed_is_what_is_accepted(world, sequences, tensor, data, micro_batch):
    layout = Layout(tensor, data, micro_batch)
    listed = legal_layouts(NANO, world, sequences)
    assert all(lay.world == world for lay in listed)
    if layout in listed:
        check_layout(NANO, layout, world, sequences)
    else:
        with pytest.raises(UsageError):
            check_layout(NANO, layout, world, sequences)


@pytest.mark.parametrize(
    ("layout", "world", "message"),
    [
        (Layout(3, 1, 1), 3, r"layout.tensor 3 .* legal are 1"),
        (Layout(2, 2, 1), 2, r"2 x layout.data 2 is 4, .* 2 processes; layout.data must be 1"),
        (Layout(1, 5, 1), 5, r"layout.data 5 does not divide the 16 .* legal are 1"),
        (Layout(1, 2, 3), 2, r"micro_batch 3 does not divide the 8 .* legal are 1, 2, 4, 8"),
    ],
)
def test_illegal_layouts_name_the_legal_values(layout, world, message):
    with pytest.raises(UsageError, match=message):
        check_layout(NANO, layout, world, 16)


def test_seventy_one_heads_cannot_be_halved():
    seven_b = preset_shape("falcon-7b")
    assert {lay.tensor for lay in legal_layouts(seven_b, 8, 64)} == {1}
    with pytest.raises(UsageError, match="71 query heads"):
        tensor_slices(seven_b, 2, 0)


@pytest.mark.parametrize(
    "preset",
    ["nano-5m", "falcon-rw-1b", "falcon-40b", "falcon-180b", "jurassic-jumbo", "llama-8b"],
)
@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_slices_of_all_ranks_cover_each_tensor_evenly(preset, degree):
    shape = preset_shape(preset)
    if shape.n_heads % degree:
        pytest.skip(f"{shape.n_heads} heads have no {degree} equal parts")
    holders = slice_holders(shape, degree)
    ranks = [tensor_slices(shape, degree, rank) for rank in range(degree)]
    for name, size in parameter_table(shape).items():
        pieces = [rank[name] for rank in ranks]
        distinct = set(pieces)
        assert sum(prod(part) for _, part in distinct) == prod(size)
        assert len(pieces) == holders[name] * len(distinct)
        for offset, part in distinct:
            assert all(o + n <= s for o, n, s in zip(offset, part, size, strict=True))


def test_the_cuts_are_megatrons():
    cut = tensor_slices(NANO, 2, 1)
    assert cut["blocks.0.attention.query.weight"] == ((128, 0), (128, 256))
    assert cut["blocks.0.attention.out.weight"] == ((0, 128), (256, 128))
    assert cut["blocks.0.mlp.up.weight"] == ((512, 0), (512, 256))
    assert cut["blocks.0.mlp.down.weight"] == ((0, 512), (256, 512))
    assert cut["blocks.0.attention.key.weight"] == ((0, 0), (64, 256))
    assert cut["embedding.weight"] == ((0, 0), (8192, 256))
    assert cut["norm.bias"] == ((0,), (256,))


def test_kv_heads_go_with_the_query_heads_that_read_them():
    shape = dataclasses.replace(NANO, n_heads=8, n_kv_heads=2, head_dim=32)
    for degree in (1, 2, 4, 8):
        for rank in range(degree):
            cut = tensor_slices(shape, degree, rank)
            (first, _), (rows, _) = cut["blocks.0.attention.query.weight"]
            (kv_first, _), (kv_rows, _) = cut["blocks.0.attention.key.weight"]
            heads = range(first // 32, (first + rows) // 32)
            read = sorted({head // 4 for head in heads})
            assert read == list(range(kv_first // 32, (kv_first + kv_rows) // 32))
    assert slice_holders(shape, 8)["blocks.3.attention.value.weight"] == 4


def test_biases_go_with_their_rows_and_the_gate_with_up():
    shape = dataclasses.replace(
        preset_shape("llama-1b"), bias=True, positions="learned", norm="layernorm"
    )
    cut = tensor_slices(shape, 4, 3)
    assert cut["blocks.2.attention.query.bias"] == ((1536,), (512,))
    assert cut["blocks.2.attention.key.bias"] == ((384,), (128,))
    assert cut["blocks.2.attention.value.bias"] == ((384,), (128,))
    assert cut["blocks.2.mlp.up.bias"] == ((6144,), (2048,))
    assert cut["blocks.2.mlp.gate.bias"] == ((6144,), (2048,))
    assert cut["blocks.2.mlp.gate.weight"] == cut["blocks.2.mlp.up.weight"]
    assert cut["blocks.2.mlp.gate.weight"] == ((6144, 0), (2048, 2048))
    for name, size in (
        ("blocks.2.attention.out.bias", (2048,)),
        ("blocks.2.mlp.down.bias", (2048,)),
        ("blocks.2.mlp_norm.bias", (2048,)),
        ("positions.weight", (8192, 2048)),
    ):
        assert cut[name] == ((0,) * len(size), size)
        assert slice_holders(shape, 4)[name] == 4
    wide = tensor_slices(shape, 32, 5)  # four ranks share a kv head
    assert wide["blocks.0.attention.key.bias"] == ((64,), (64,))
    assert slice_holders(shape, 32)["blocks.0.attention.key.bias"] == 4


@pytest.mark.parametrize(
    ("preset", "degrees"),
    [
        ("falcon-rw-1b", {1, 2, 4, 8}),
        ("falcon-180b", {1, 2, 4, 8}),
        ("jurassic-jumbo", {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96}),
        ("llama-8b", {1, 2, 4, 8, 16, 32}),
        ("nano-10m", {1, 2, 4}),
        ("nano-125m", {1, 2, 3, 4, 6, 12}),
    ],
)
def test_tensor_degrees_of_the_presets(preset, degrees):
    world = max(degrees)
    assert {lay.tensor for lay in legal_layouts(preset_shape(preset), world, world)} == degrees
