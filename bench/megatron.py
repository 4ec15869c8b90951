"""A Megatron dataset (`.bin` and `.idx`) of given ids, by the description of its format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["write_megatron"]

_UINT16 = 8  # Megatron's code of the type


def write_megatron(prefix: Path, ids: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
    """`ids` are cut into documents after each id 0."""
    ends = np.flatnonzero(ids == 0) + 1
    lengths = np.diff(np.concatenate((np.zeros(1, np.int64), ends))).astype(np.int32)
    ids[: ends[-1]].tofile(prefix.with_suffix(".bin"))
    pointers = (ends - lengths).astype(np.int64) * 2
    documents = np.arange(len(lengths) + 1, dtype=np.int64)
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(b"MMIDIDX\x00\x00")
        file.write(struct.pack("<QBQQ", 1, _UINT16, len(lengths), len(documents)))
        for array in (lengths, pointers, documents):
            file.write(array.tobytes())
