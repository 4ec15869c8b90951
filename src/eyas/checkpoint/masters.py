"""The weights of a commit, read a few rows at a time: what export writes and checks with."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from eyas.store import Store

from .commit import Commit
from .open_model import MASTER
from .read_slices import load_slices

__all__ = ["Masters"]

_LEAST, _MOST = 8 * 2**20, 128 * 2**20


class Masters:
    """Tensors by the names of the network, float32. Besides what is asked for, reading holds about
    twice `piece` bytes: an eighth of the largest tensor, within 8 and 128 MiB."""

    def __init__(self, store: Store, commit: Commit) -> None:
        self._store, self._commit = store, commit
        largest = max(math.prod(info.shape) for info in commit.tensors.values()) * 4
        self.piece = min(max(largest // 8, _LEAST), _MOST)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._commit.tensors[MASTER + name].shape

    def rows(self, name: str, first: int, last: int) -> torch.Tensor:
        """Rows `first` to `last` (not included) along the first dimension. Raises Corrupt."""
        rest = self.shape(name)[1:]
        result = torch.empty((last - first, *rest))
        for start in range(first, last, self._rows_of_piece(name)):
            end = min(last, start + self._rows_of_piece(name))
            box = ((start, *(0 for _ in rest)), (end - start, *rest))
            part = result[start - first : end - first]
            load_slices(self._store, self._commit, {MASTER + name: box}, out={MASTER + name: part})
        return result

    def whole(self, name: str) -> torch.Tensor:
        """All of it."""
        return self.rows(name, 0, self.shape(name)[0])

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """All rows in order, about `piece` bytes at a time."""
        count = self.shape(name)[0]
        for first in range(0, count, self._rows_of_piece(name)):
            yield self.rows(name, first, min(count, first + self._rows_of_piece(name)))

    def _rows_of_piece(self, name: str) -> int:
        return max(1, self.piece // (4 * math.prod(self.shape(name)[1:])))
