"""Safetensors files by byte ranges: what the reference writes is read, what is torn is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from eyas.checkpoint import CheckpointError, hf_file
from eyas.checkpoint.hf_file import read_header, read_rows, read_tensor, value_pieces

STATE = {
    "b.weight": torch.arange(35, dtype=torch.float32).reshape(7, 5),
    "a.weight": torch.linspace(-3, 3, 24).bfloat16().reshape(4, 3, 2),
    "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "scalar": torch.tensor(2.5),
    "nothing": torch.zeros(0, 3),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(STATE, tmp_path / "x.safetensors", {"format": "pt"})
    return tmp_path / "x.safetensors"


def write(file: Path, table: Any, body: bytes) -> None:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("piece", [1, 4, 2**20])
def test_every_value_is_that_of_the_reference_however_it_is_read(
    file: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_file, "PIECE", piece)
    found = read_header(file)
    assert found.keys() == STATE.keys()
    for name, tensor in STATE.items():
        stored = found[name]
        assert (stored.shape, stored.dtype) == (tuple(tensor.shape), tensor.dtype)
        assert torch.equal(read_tensor(stored), tensor)
        whole = read_tensor(stored, torch.float32)
        assert whole.dtype == torch.float32
        assert torch.equal(whole, tensor.float())
        pieces = list(value_pieces(stored))
        assert all(0 < len(part) <= piece for part in pieces)
        assert torch.equal(torch.cat([torch.empty(0), *pieces]), tensor.float().reshape(-1))
    for first, last in ((0, 7), (2, 5), (6, 7), (3, 3)):
        rows = read_rows(found["b.weight"], first, last)
        assert torch.equal(rows, STATE["b.weight"][first:last])
        rows = read_rows(found["a.weight"], first // 2, last // 2, torch.float32)
        assert torch.equal(rows, STATE["a.weight"][first // 2 : last // 2].float())


def test_a_file_cut_anywhere_or_lengthened_is_refused(file: Path) -> None:
    data = file.read_bytes()
    cuts = sorted({0, 1, 7, 8, 9, len(data) // 2, *range(len(data) - 20, len(data))})
    for size in cuts:
        file.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match=r"x\.safetensors cannot be read as safetensors"):
            read_header(file)
    file.write_bytes(data + b"\0")
    with pytest.raises(CheckpointError, match=f"has {len(data) + 1} bytes, its header says"):
        read_header(file)


Header = dict[str, Any]


def overlap(table: Header) -> None:
    table["a"]["data_offsets"] = [4, 12]


def hole(table: Header) -> None:
    table["b"]["data_offsets"] = [12, 20]


def short(table: Header) -> None:
    table["b"]["data_offsets"] = [8, 12]


def negative(table: Header) -> None:
    table["a"]["shape"] = [-2, -1]


def fraction(table: Header) -> None:
    table["a"]["shape"] = [2.0]


def truth(table: Header) -> None:
    table["a"]["shape"] = [True, 2]


def unknown_dtype(table: Header) -> None:
    table["a"]["dtype"] = "F4"


def dtype_of_another_kind(table: Header) -> None:
    table["a"]["dtype"] = ["F32"]


def three_offsets(table: Header) -> None:
    table["a"]["data_offsets"] = [0, 4, 8]


def no_shape(table: Header) -> None:
    del table["a"]["shape"]


def no_row(table: Header) -> None:
    table["a"] = None


@pytest.mark.parametrize(
    "damage",
    [
        overlap,
        hole,
        short,
        negative,
        fraction,
        truth,
        unknown_dtype,
        dtype_of_another_kind,
        three_offsets,
        no_shape,
        no_row,
    ],
)
def test_a_header_that_cannot_be_is_refused(
    tmp_path: Path, damage: Callable[[Header], None]
) -> None:
    table: Header = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
    }
    file = tmp_path / "x.safetensors"
    write(file, table, bytes(16))
    assert len(read_header(file)) == 2
    damage(table)
    write(file, table, bytes(16))
    with pytest.raises(CheckpointError, match=r"x\.safetensors cannot be read as safetensors"):
        read_header(file)


@pytest.mark.parametrize("text", [b"[]", b"7", b"{", b"\xff\xfe", b"[" * 100_000, b""])
def test_a_header_that_is_no_object_is_refused(tmp_path: Path, text: bytes) -> None:
    write(tmp_path / "x.safetensors", text, b"")
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        read_header(tmp_path / "x.safetensors")


def test_a_header_is_not_read_at_the_length_that_it_claims(tmp_path: Path) -> None:
    for length in (2**63, 2**64 - 1, 10**8 + 1):
        (tmp_path / "x").write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(CheckpointError, match="has 10 bytes and no whole header"):
            read_header(tmp_path / "x")


@given(at=st.integers(0, 10**6), value=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_no_byte_makes_another_error_than_ours(file: Path, at: int, value: int) -> None:
    data = bytearray(file.read_bytes())
    data[at % len(data)] = value
    changed = file.with_name("changed")
    changed.write_bytes(data)
    try:
        tensors = [read_tensor(stored) for stored in read_header(changed).values()]
    except CheckpointError:
        return
    assert len(tensors) == len(STATE)


def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_not_a_signal(file: Path) -> None:
    found = read_header(file)
    file.write_bytes(file.read_bytes()[:-60])
    last = max(found.values(), key=lambda stored: stored.start + stored.size)
    with pytest.raises(CheckpointError, match="became shorter"):
        read_tensor(last)
    file.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        read_tensor(found["half"])
