"""Safetensors files read by byte ranges, so that memory holds only what was asked for.

`safetensors.safe_open` maps the file: pages that were read count as this process's memory until the
system takes them back, and a file that another program cuts short kills the reader (SIGBUS). Here
the header is read and checked against the file's size, and values come with `preadv` into memory of
ours, converted in pieces of at most `PIECE` elements where another dtype is wanted.

The format (https://github.com/huggingface/safetensors#format): u64 length of the header, the header
as JSON, the bytes of all tensors one after another without holes, little-endian, row-major.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .errors import CheckpointError
from .payload import dtype_of

__all__ = ["PIECE", "StoredTensor", "read_header", "read_rows", "read_tensor", "value_pieces"]

PIECE = 2**20
"""Elements converted at a time."""

_LONGEST_HEADER = 100 * 10**6  # that of the reference implementation


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its bytes begin at `start`."""

    file: Path
    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elements * self.dtype.itemsize

    def like(self) -> torch.Tensor:
        """A meta tensor of this shape and dtype."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file. Raises CheckpointError for a file that is none, is torn or
    cut short, or whose tensors overlap, leave holes or do not have the bytes of their shape."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            word = opened.read(8)
            length = struct.unpack("<Q", word)[0] if len(word) == 8 else size
            if length > min(size - 8, _LONGEST_HEADER):
                raise _unreadable(file, f"it has {size} bytes and no whole header")
            text = opened.read(length)
    except OSError as error:
        raise _unreadable(file, error.strerror) from error
    try:
        table = json.loads(text)
        rows = {name: _row(row) for name, row in table.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(file, f"its header is damaged ({error})") from error
    except CheckpointError as error:
        raise _unreadable(file, error) from error
    found, at = {}, 0
    for name, (dtype, shape, begin, end) in sorted(rows.items(), key=lambda row: row[1][2:]):
        stored = StoredTensor(file, 8 + length + begin, dtype, shape)
        if begin != at or end - begin != stored.size:
            raise _unreadable(
                file, f"{name} {list(shape)} {dtype} is said to be in bytes {begin} to {end}"
            )
        found[name], at = stored, end
    if 8 + length + at != size:
        raise _unreadable(file, f"it has {size} bytes, its header says {8 + length + at}")
    return found


def read_tensor(stored: StoredTensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The whole tensor, in its own dtype or converted to `dtype`. Raises CheckpointError."""
    return read_rows(stored, 0, _rows(stored), dtype).reshape(stored.shape)


def read_rows(
    stored: StoredTensor, first: int, last: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Rows `first` to `last` (not included) along the first dimension. Raises CheckpointError."""
    row = stored.elements // max(1, _rows(stored))
    shape = (last - first, *stored.shape[1:]) if stored.shape else ()
    result = torch.empty(shape, dtype=dtype or stored.dtype)
    flat = result.view(-1)
    if result.dtype == stored.dtype:
        _read_into(stored, first * row, flat)
        return result
    staging = torch.empty(min(PIECE, flat.numel()), dtype=stored.dtype)
    for at in range(0, flat.numel(), PIECE):
        part = staging[: min(PIECE, flat.numel() - at)]
        _read_into(stored, first * row + at, part)
        flat[at : at + PIECE].copy_(part)
    return result


def value_pieces(stored: StoredTensor) -> Iterator[torch.Tensor]:
    """All values in order, flat, at most PIECE at a time, each piece in memory of its own."""
    for at in range(0, stored.elements, PIECE):
        part = torch.empty(min(PIECE, stored.elements - at), dtype=stored.dtype)
        _read_into(stored, at, part)
        yield part


def _rows(stored: StoredTensor) -> int:
    return stored.shape[0] if stored.shape else 1


def _read_into(stored: StoredTensor, element: int, flat: torch.Tensor) -> None:
    """Fill a flat tensor with the values from `element` on."""
    view = flat.view(torch.uint8).numpy().data
    at, done = stored.start + element * stored.dtype.itemsize, 0
    try:
        with stored.file.open("rb", buffering=0) as file:
            while done < len(view):
                got = os.preadv(file.fileno(), [view[done:]], at + done)
                if not got:
                    raise _unreadable(stored.file, "it became shorter while it was read")
                done += got
    except OSError as error:
        raise _unreadable(stored.file, error.strerror) from error


def _row(row: Mapping[str, Any]) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    begin, end = row["data_offsets"]
    numbers = (*row["shape"], begin, end)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{numbers} are not all counts")
    return dtype_of(row["dtype"]), tuple(row["shape"]), begin, end


def _unreadable(file: Path, why: object) -> CheckpointError:
    return CheckpointError(f"{file} cannot be read as safetensors: {why}")
