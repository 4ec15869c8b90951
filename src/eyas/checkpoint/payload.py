"""Payload objects: slices as a valid safetensors file, streamed without a second copy.

A safetensors file is `u64 header length | JSON header | tensor bytes`, little-endian, without
holes (https://github.com/huggingface/safetensors#format). The header follows from names, dtypes and
shapes alone, so it is written first and tensor bytes follow straight from where they lie, in pieces
of at most one `CHUNK`: what is held besides the tensors is one chunk, whatever the object's size.

A reader verifies by chunks: chunk n is bytes n * CHUNK to (n + 1) * CHUNK of the *object*, header
included, so a ranged read aligned to chunks can be checked before a byte of it is believed.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from eyas.store import Store, crc32c, put_object_chunks

from .errors import CheckpointError
from .slices import Ints, Slice

__all__ = [
    "CHUNK",
    "Entry",
    "StoredObject",
    "dtype_name",
    "dtype_of",
    "encode_header",
    "rechunk",
    "tensor_pieces",
    "write_entries",
    "write_payload",
]

CHUNK = 4 * 2**20

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True)
class Entry:
    """One tensor of a safetensors file: its name there, dtype (as in "F32") and shape."""

    name: str
    dtype: str
    shape: Ints

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * dtype_of(self.dtype).itemsize


@dataclass(frozen=True)
class StoredObject:
    """A payload object as its index vouches for it. `crc32c` is 8 hex digits of the whole object,
    `crcs` those of each `chunk` bytes of it, the last one shorter."""

    key: str
    size: int
    crc32c: str
    chunk: int
    crcs: tuple[str, ...]


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 -> "F32". Raises CheckpointError for what safetensors does not know."""
    if dtype not in _NAMES:
        raise CheckpointError(f"{dtype} cannot be saved; legal: {', '.join(map(str, _NAMES))}")
    return _NAMES[dtype]


def dtype_of(name: str) -> torch.dtype:
    """ "F32" -> torch.float32. Raises CheckpointError."""
    if name not in _DTYPES:
        raise CheckpointError(f'unknown dtype "{name}"; legal: {", ".join(_DTYPES)}')
    return _DTYPES[name]


def encode_header(
    entries: Sequence[Entry], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """The header (length word included, padded to 8 bytes) and the byte of the file at which each
    entry starts; entries follow each other in the order given."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)}
    starts, at = {}, 0
    for entry in entries:
        if entry.name in starts:
            raise CheckpointError(f"{entry.name} is given twice")
        table[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.size],
        }
        starts[entry.name] = at
        at += entry.size
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    return head, {name: len(head) + start for name, start in starts.items()}


def tensor_pieces(tensor: torch.Tensor) -> Iterator[memoryview]:
    """The tensor's bytes in row-major order, at most CHUNK of them at a time; a tensor in host
    memory is not copied, one on a device comes over piece by piece."""
    flat = tensor.detach().contiguous().reshape(-1)
    step = CHUNK // flat.element_size()
    for start in range(0, flat.numel(), step):
        yield flat[start : start + step].cpu().view(torch.uint8).numpy().data


def rechunk(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes in pieces of exactly CHUNK, the last one shorter."""
    held: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        while size + len(piece) >= CHUNK:
            cut = CHUNK - size
            yield b"".join([*held, piece[:cut]])
            piece, held, size = piece[cut:], [], 0
        if len(piece):
            held.append(piece)
            size += len(piece)
    if held:
        yield b"".join(held)


def write_payload(
    store: Store, key: str, slices: Sequence[tuple[str, Slice]], metadata: Mapping[str, str]
) -> tuple[StoredObject, dict[str, int]]:
    """Put the slices, named as given, as one object; returns it and where each slice starts."""
    entries = [Entry(n, dtype_name(s.tensor.dtype), tuple(s.tensor.shape)) for n, s in slices]
    pieces = (piece for _, part in slices for piece in tensor_pieces(part.tensor))
    return write_entries(store, key, entries, pieces, metadata)


def write_entries(
    store: Store,
    key: str,
    entries: Sequence[Entry],
    pieces: Iterable[bytes | memoryview],
    metadata: Mapping[str, str],
) -> tuple[StoredObject, dict[str, int]]:
    """As `write_payload`, from the bytes of all entries one after another, cut anyhow."""
    head, starts = encode_header(entries, metadata)
    crcs: list[str] = []

    def watched() -> Iterator[bytes]:
        for chunk in rechunk(itertools.chain([head], pieces)):
            crcs.append(f"{crc32c(chunk):08x}")
            yield chunk

    ref = put_object_chunks(store, key, watched())
    return StoredObject(key, ref.size, ref.crc32c, CHUNK, tuple(crcs)), starts
