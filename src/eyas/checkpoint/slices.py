"""Boxes: which part of a tensor is where, and whether the parts tile the whole.

A slice is an axis-parallel box of a tensor, given by its offset and its shape. All cuts that train
a model (rows, columns, flat ranges as up to three boxes a matrix) are such boxes, so a checkpoint
says nothing of layouts: any set of boxes that tiles each tensor exactly once can be saved, and any
box can be asked for. Everything here is arithmetic on tuples of ints; no tensor is touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

__all__ = ["Box", "Slice", "intersect", "tiling_fault"]

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """Elements `offset[d] <= i[d] < offset[d] + shape[d]` of a tensor."""

    offset: Ints
    shape: Ints

    @property
    def volume(self) -> int:
        return math.prod(self.shape)

    def end(self, dim: int) -> int:
        return self.offset[dim] + self.shape[dim]

    def within(self, shape: Ints) -> bool:
        """Whether it is a box of a tensor of this shape at all."""
        return len(self.offset) == len(self.shape) == len(shape) and all(
            low >= 0 and size >= 0 and low + size <= whole
            for low, size, whole in zip(self.offset, self.shape, shape, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Slice:
    """A box of the tensor `name`, with its elements: `tensor` has the box's shape and lies at
    `offset` in a tensor of `global_shape`. Any dtype that safetensors knows, on any device."""

    name: str
    offset: Ints
    tensor: torch.Tensor
    global_shape: Ints

    @property
    def box(self) -> Box:
        return Box(tuple(self.offset), tuple(self.tensor.shape))

    @classmethod
    def whole(cls, name: str, tensor: torch.Tensor) -> Slice:
        """The slice that is all of the tensor."""
        return cls(name, (0,) * tensor.dim(), tensor, tuple(tensor.shape))


def intersect(a: Box, b: Box) -> Box | None:
    """The common box, or None where they share no element."""
    low = tuple(max(x, y) for x, y in zip(a.offset, b.offset, strict=True))
    shape = tuple(min(a.end(d), b.end(d)) - low[d] for d in range(len(low)))
    return Box(low, shape) if all(size > 0 for size in shape) else None


def tiling_fault(shape: Ints, boxes: Sequence[Box]) -> str | None:
    """None if `boxes` cover a tensor of `shape` exactly once, else what is wrong, in words.

    Boxes inside the tensor, whose volumes add up to it and no two of which overlap, cover it.
    """
    for box in boxes:
        if not box.within(shape):
            return f"the slice {_text(box)} lies outside the shape {list(shape)}"
    pair = _overlap([b for b in boxes if b.volume])
    if pair is not None:
        return f"the slices {_text(pair[0])} and {_text(pair[1])} overlap (a replica saved twice?)"
    missing = math.prod(shape) - sum(b.volume for b in boxes)
    return f"{missing} of {math.prod(shape)} elements are in no slice" if missing else None


def _overlap(boxes: list[Box], dim: int = 0) -> tuple[Box, Box] | None:
    """Two boxes that overlap. Along each dimension boxes fall into groups whose intervals are
    apart, and groups cannot meet: a grid of n cuts costs n log n, only odd patterns the square."""
    if len(boxes) < 2:
        return None
    if dim == len(boxes[0].offset):
        return _overlap_by_pairs(boxes)
    group: list[Box] = []
    end = 0
    for box in sorted(boxes, key=lambda b: b.offset[dim]):
        if group and box.offset[dim] >= end:
            if (pair := _overlap(group, dim + 1)) is not None:
                return pair
            group, end = [], 0
        group.append(box)
        end = max(end, box.end(dim))
    return _overlap(group, dim + 1)


def _overlap_by_pairs(boxes: Iterable[Box]) -> tuple[Box, Box] | None:
    seen: list[Box] = []
    for box in boxes:
        for other in seen:
            if intersect(box, other) is not None:
                return other, box
        seen.append(box)
    return None


def _text(box: Box) -> str:
    """As one would write it in Python: [0:4, 8:16]."""
    return "[" + ", ".join(f"{o}:{o + s}" for o, s in zip(box.offset, box.shape, strict=True)) + "]"
