"""Initial weights: a pure function of (seed, tensor name, element).

A rank of any layout makes only its slice and every layout starts from the same network. The random
source is counter-based (Salmon et al. 2011, Philox): the key is a hash of seed and tensor name, the
counter is the element's index in the whole tensor, so row r can be made without the rows before it.
A 64-bit draw becomes a normal one through a table of normal quantiles with linear interpolation
between them: only table look-up, multiplication and addition, which give the same bits on every
machine, where `log` and `cos` differ by instruction set. The table ends at 4.48 deviations.

Scale: 0.02 for every matrix, divided by sqrt(2 n_layers) for the two of a block that write to the
residual stream (Radford et al. 2019, GPT-2); norms begin as the identity, biases at 0.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from eyas.shape import ModelShape, parameter_table

__all__ = ["initial_slice", "initial_weights"]

_STD = 0.02
_INDEX_BITS = 16
_PER_BLOCK = 4  # 64-bit draws a step of Philox's counter
_CHUNK = 2**18  # draws made at once


def initial_weights(
    shape: ModelShape, seed: int, names: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """Tensor name to float32 tensor, all of them or `names`."""
    table = parameter_table(shape)
    chosen = table if names is None else list(names)
    return {n: initial_slice(shape, seed, n, (0,) * len(table[n]), table[n]) for n in chosen}


def initial_slice(
    shape: ModelShape,
    seed: int,
    name: str,
    offset: tuple[int, ...],
    slice_shape: tuple[int, ...],
) -> Tensor:
    """The slice at `offset` of the initial tensor `name`, float32: the same bits as slicing the
    whole. Makes only the rows it needs. Raises ValueError for a slice that is not inside."""
    size = parameter_table(shape)[name]
    if len(offset) != len(size) or len(slice_shape) != len(size):
        raise ValueError(f"{name} has {len(size)} dimensions")
    if any(o < 0 or o + n > s for o, n, s in zip(offset, slice_shape, size, strict=True)):
        raise ValueError(f"{name}: a slice {slice_shape} at {offset} is not inside {size}")
    if len(size) == 1:
        return torch.full(slice_shape, 0.0 if name.endswith(".bias") else 1.0)
    scale = _scale(shape, name)
    return torch.from_numpy(_rows(_key(seed, name), size[1], offset, slice_shape, scale))


def _scale(shape: ModelShape, name: str) -> float:
    residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
    return _STD / math.sqrt(2 * shape.n_layers) if residual else _STD


def _rows(
    key: int, width: int, offset: tuple[int, ...], size: tuple[int, ...], scale: float
) -> np.ndarray:
    """Rows of a matrix of `width` columns, in chunks of bounded size, columns cut out."""
    out = np.empty(size, np.float32)
    step = max(1, _CHUNK // width)
    for row in range(0, size[0], step):
        rows = min(step, size[0] - row)
        draws = _draws(key, (offset[0] + row) * width, rows * width).reshape(rows, width)
        normal = _normal(draws[:, offset[1] : offset[1] + size[1]])
        out[row : row + rows] = normal * scale
    return out


def _key(seed: int, name: str) -> int:
    """128 bits of (seed, tensor name)."""
    return int.from_bytes(
        hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=16).digest(), "little"
    )


def _draws(key: int, start: int, count: int) -> np.ndarray:
    """Draws `start` .. `start + count` of the stream `key`, uint64."""
    skip = start % _PER_BLOCK
    source = np.random.Philox(key=key, counter=start // _PER_BLOCK)
    return source.random_raw(skip + count)[skip:]


def _normal(draws: np.ndarray) -> np.ndarray:
    """Standard normal values: the top bits choose a cell between two quantiles, the next 32 the
    place inside it."""
    table = _quantiles()
    cell = (draws >> np.uint64(64 - _INDEX_BITS)).astype(np.int64)
    inside = ((draws >> np.uint64(32 - _INDEX_BITS)) & np.uint64(0xFFFFFFFF)).astype(np.float64)
    low = table[cell]
    return low + (table[cell + 1] - low) * (inside * 2.0**-32)


@functools.cache
def _quantiles() -> np.ndarray:
    """Normal quantiles of i / 2^16, rounded so that the last bits of `log` do not matter; the two
    infinite ends stand at a quarter of a cell."""
    cells = 2**_INDEX_BITS
    normal = NormalDist()
    half = [normal.inv_cdf(i / cells) for i in range(1, cells // 2)]
    half = [normal.inv_cdf(0.25 / cells), *half]
    lower = np.round(np.array(half) * 2.0**30) / 2.0**30
    return np.concatenate([lower, [0.0], -lower[::-1]])
