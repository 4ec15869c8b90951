"""Promises: initial weights are pure in (seed, name, element), so any slice can be made alone."""

import dataclasses
import hashlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.model import initial, initial_slice, initial_weights
from eyas.shape import parameter_table, preset_shape, tensor_slices

torch.set_num_threads(1)
NANO = preset_shape("nano-1m")
SHAPE = preset_shape("nano-5m")
WHOLE = initial_weights(NANO, seed=11)


def test_every_tensor_is_there_in_float32_and_of_its_shape():
    assert {n: tuple(t.shape) for n, t in WHOLE.items()} == parameter_table(NANO)
    assert {t.dtype for t in WHOLE.values()} == {torch.float32}


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_slice_has_the_bits_of_the_whole(data):
    name = data.draw(st.sampled_from(list(WHOLE)))
    size = WHOLE[name].shape
    offset = tuple(data.draw(st.integers(0, n - 1)) for n in size)
    part = tuple(data.draw(st.integers(0, n - o)) for n, o in zip(size, offset, strict=True))
    found = initial_slice(NANO, 11, name, offset, part)
    index = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
    assert torch.equal(found, WHOLE[name][index])


def test_every_tensor_parallel_rank_starts_from_the_same_network():
    for rank in range(2):
        for name, (offset, part) in tensor_slices(NANO, 2, rank).items():
            index = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
            assert torch.equal(initial_slice(NANO, 11, name, offset, part), WHOLE[name][index])


def test_only_the_rows_of_the_slice_are_made(monkeypatch):
    made = []
    draws = initial._draws
    monkeypatch.setattr(initial, "_draws", lambda k, s, n: made.append((s, n)) or draws(k, s, n))
    initial_slice(SHAPE, 1, "embedding.weight", (8000, 0), (3, 256))
    assert made == [(8000 * 256, 3 * 256)]


def test_chunks_do_not_show(monkeypatch):
    monkeypatch.setattr(initial, "_CHUNK", 1000)
    name = "blocks.1.mlp.up.weight"
    assert torch.equal(initial_weights(NANO, 11, [name])[name], WHOLE[name])


def test_seed_and_name_each_change_everything():
    name, other = "blocks.0.attention.key.weight", "blocks.1.attention.key.weight"
    assert (WHOLE[name] == initial_weights(NANO, 12, [name])[name]).sum() < 5
    assert (WHOLE[name] == WHOLE[other]).sum() < 5


def test_the_numbers_never_change():
    """A run resumed or compared by a later version starts from these bits."""
    digest = hashlib.sha256()
    for name in sorted(WHOLE):
        digest.update(WHOLE[name].numpy().tobytes())
    assert digest.hexdigest()[:16] == "e192832ef471bc1e"


def test_values_are_normal_with_the_documented_scale():
    flat = initial_slice(SHAPE, 5, "embedding.weight", (0, 0), (8192, 256)).flatten().double()
    n = len(flat)
    z = flat / 0.02
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs(z.pow(3).mean()) < 5 * math.sqrt(15 / n)
    assert abs(z.pow(4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert 4 < z.abs().max() < 4.48
    for cut, share in ((1.0, 0.841345), (2.0, 0.977250), (3.0, 0.998650)):
        assert abs((z < cut).double().mean() - share) < 5 * math.sqrt(share * (1 - share) / n)
    pairs = (z[:-1] * z[1:]).mean()
    assert abs(pairs) < 5 / math.sqrt(n)


def test_matrices_into_the_residual_stream_are_smaller_and_norms_the_identity():
    for name, tensor in WHOLE.items():
        if name.endswith(("out.weight", "down.weight")):
            assert tensor.std() == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
        elif tensor.dim() == 2:
            assert tensor.std() == pytest.approx(0.02, rel=0.03)
        else:
            assert torch.all(tensor == (0.0 if name.endswith("bias") else 1.0))


def test_a_slice_outside_the_tensor_is_refused():
    with pytest.raises(ValueError, match="not inside"):
        initial_slice(NANO, 1, "embedding.weight", (2000, 0), (100, 128))


def test_every_kind_of_tensor_begins_as_documented():
    """Gate and learned positions like any matrix, biases 0, the weights of either norm 1."""
    shape = dataclasses.replace(
        NANO,
        block="sequential",
        n_norms=2,
        positions="learned",
        norm="rmsnorm",
        activation="swiglu",
        bias=True,
    )
    tensors = initial_weights(shape, seed=11)
    assert {n: tuple(t.shape) for n, t in tensors.items()} == parameter_table(shape)
    for name, tensor in tensors.items():
        if name.endswith(".bias"):
            assert not tensor.any()
        elif tensor.dim() == 1:
            assert torch.all(tensor == 1)
    for name in ("positions.weight", "blocks.2.mlp.gate.weight"):
        assert tensors[name].std() == pytest.approx(0.02, rel=0.03)
        assert tensors[name].mean() == pytest.approx(0, abs=5 * 0.02 / tensors[name].numel() ** 0.5)
    assert not torch.equal(tensors["blocks.2.mlp.gate.weight"], tensors["blocks.2.mlp.up.weight"])
    for name in WHOLE.keys() & tensors.keys():
        assert torch.equal(tensors[name], WHOLE[name])  # no switch changes another tensor


def test_every_tensor_parallel_rank_of_every_kind_starts_from_the_same_network():
    shape = dataclasses.replace(
        NANO, positions="learned", activation="swiglu", bias=True, n_kv_heads=2
    )
    whole = initial_weights(shape, seed=11)
    for rank in range(4):
        for name, (offset, part) in tensor_slices(shape, 4, rank).items():
            index = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
            assert torch.equal(initial_slice(shape, 11, name, offset, part), whole[name][index])
