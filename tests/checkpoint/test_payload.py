from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as load_safetensors

from eyas.checkpoint import CheckpointError, Slice
from eyas.checkpoint import payload as payload_module
from eyas.checkpoint.payload import dtype_name, dtype_of, rechunk, tensor_pieces, write_payload
from eyas.store import crc32c

from .faults import Memory

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_read_by_the_safetensors_library_bit_for_bit(dtype):
    tensor = torch.arange(35).remainder(7).sub(2).to(dtype).reshape(5, 7)
    store = Memory()
    write_payload(store, "k", [("a.b", Slice.whole("a.b", tensor))], {"format": "eyas"})
    found = load_safetensors(store.get("k"))["a.b"]
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))
    assert dtype_of(dtype_name(dtype)) == dtype


def test_a_dtype_that_safetensors_lacks_is_refused_by_name():
    with pytest.raises(CheckpointError, match="complex64"):
        dtype_name(torch.complex64)


def test_each_chunk_and_the_whole_object_are_checksummed(monkeypatch):
    monkeypatch.setattr(payload_module, "CHUNK", 64)
    store = Memory()
    tensor = torch.randn(100)
    target, starts = write_payload(store, "k", [("a", Slice.whole("a", tensor))], {})
    data = store.get("k")
    assert target.size == len(data)
    assert target.crc32c == f"{crc32c(data):08x}"
    chunks = [data[i : i + 64] for i in range(0, len(data), 64)]
    assert list(target.crcs) == [f"{crc32c(chunk):08x}" for chunk in chunks]
    assert data[starts["a"] :] == tensor.numpy().tobytes()


def test_pieces_are_bounded_and_views_of_the_tensor(monkeypatch):
    monkeypatch.setattr(payload_module, "CHUNK", 64)
    tensor = torch.zeros(4, 25)
    pieces = list(tensor_pieces(tensor))
    assert max(len(piece) for piece in pieces) <= 64
    tensor.fill_(1.0)
    assert b"".join(pieces) == tensor.numpy().tobytes()


def test_a_tensor_that_is_not_contiguous_is_written_in_row_major_order():
    tensor = torch.arange(12.0).reshape(3, 4).t()
    assert b"".join(tensor_pieces(tensor)) == tensor.contiguous().numpy().tobytes()


@given(st.lists(st.binary(max_size=200), max_size=12))
def test_rechunking_keeps_the_bytes_and_makes_even_pieces(pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_module, "CHUNK", 64)
        found = list(rechunk(pieces))
    assert b"".join(found) == b"".join(pieces)
    assert all(len(piece) == 64 for piece in found[:-1])
    assert all(0 < len(piece) <= 64 for piece in found[-1:])
