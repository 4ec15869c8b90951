"""Who saves what: every slice once, replicas shared out over the ranks that hold them. Pure."""

from __future__ import annotations

import math

from eyas.shape import Layout, ModelShape, slice_holders, tensor_slices

__all__ = ["owned_names"]


def owned_names(shape: ModelShape, layout: Layout, rank: int) -> list[str]:
    """Names of the slices that `rank` saves. A slice is held by its tensor rank (by neighbours,
    where it is whole) in every data rank; the largest first, each goes to the holder that has the
    fewest numbers so far, the lowest rank among equals."""
    tables = [tensor_slices(shape, layout.tensor, t) for t in range(layout.tensor)]
    holders = slice_holders(shape, layout.tensor)
    numbers = [0] * layout.world
    owned: list[list[str]] = [[] for _ in range(layout.world)]
    by_size = sorted(tables[0], key=lambda n: (-math.prod(tables[0][n][1]), n))
    for name in by_size:
        for first in range(0, layout.tensor, holders[name]):
            ranks = [
                data * layout.tensor + first + neighbour
                for data in range(layout.data)
                for neighbour in range(holders[name])
            ]
            owner = min(ranks, key=lambda r: (numbers[r], r))
            numbers[owner] += math.prod(tables[first][name][1])
            owned[owner].append(name)
    return owned[rank]
