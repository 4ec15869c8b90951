"""The grid of ranks and the few collectives on it, timed.

Rank = data_rank * tensor + tensor_rank: neighbours share tensors, as inside a node. Control values
travel on the CPU over gloo; without a launcher (no WORLD_SIZE) there is one rank and every
collective is the identity.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from eyas.shape import Layout

from .clock import Clock

__all__ = ["Mesh", "rank_and_world"]

_TIMEOUT = datetime.timedelta(minutes=30)


def rank_and_world() -> tuple[int, int]:
    """(rank, world) of the process group if there is one, else as torchrun sets them, or (0, 1)."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Mesh:
    """This rank's place in `layout`. `shared` neighbouring tensor ranks hold the same kv head."""

    def __init__(self, layout: Layout, shared: int = 1, clock: Clock | None = None) -> None:
        self.layout = layout
        self.clock = clock or Clock()
        self.rank, world = rank_and_world()
        if world != layout.world:
            raise ValueError(f"{world} ranks for a layout of {layout.world}")
        self._began = world > 1 and not dist.is_initialized()
        if self._began:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, timeout=_TIMEOUT)
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.data_rank, self.tensor_rank = divmod(self.rank, layout.tensor)
        t, d = layout.tensor, layout.data
        self._tensor = self._group([[k * t + i for i in range(t)] for k in range(d)])
        self._data = self._group([[k * t + i for k in range(d)] for i in range(t)])
        self._shared = self._group(
            [[k * t + s + i for i in range(shared)] for k in range(d) for s in range(0, t, shared)]
        )
        self._world = self._group([list(range(world))])

    def sum_tensor(self, value: Tensor) -> None:
        """Sum in place over the ranks that share tensors."""
        self._sum(value, self._tensor)

    def sum_shared(self, value: Tensor) -> None:
        """Sum in place over the tensor ranks that hold the same kv heads."""
        self._sum(value, self._shared)

    def sum_data(self, value: Tensor) -> None:
        """Sum in place over the ranks that share none of the batch but all of the slice."""
        self._sum(value, self._data)

    def sum_world(self, value: Tensor) -> None:
        """Sum in place over all ranks."""
        self._sum(value, self._world)

    def broadcast(self, value: int) -> int:
        """Rank 0's number."""
        box = torch.tensor([value if self.rank == 0 else 0], dtype=torch.int64)
        self.sum_world(box)
        return int(box.item())

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Every rank's numbers (as many on each), in rank order."""
        box = torch.zeros(self.layout.world, len(values), dtype=torch.float64)
        box[self.rank] = torch.tensor(values, dtype=torch.float64)
        self.sum_world(box)
        return [[float(v) for v in row] for row in box]

    def leave(self) -> None:
        """Wait for all ranks, then end the process group that was begun here."""
        if self.layout.world > 1:
            dist.barrier()
        if self._began:
            dist.destroy_process_group()

    def _sum(self, value: Tensor, group: Any) -> None:
        if group is not None:
            with self.clock.phase("communication"):
                dist.all_reduce(value, group=group)

    def _group(self, members: list[list[int]]) -> Any:
        """The group of `members` with this rank, None where it would be alone. Every rank makes
        every group, in the same order."""
        if len(members[0]) == 1:
            return None
        if len(members) == 1:
            return dist.group.WORLD
        groups = [(ranks, dist.new_group(ranks, timeout=_TIMEOUT)) for ranks in members]
        return next(group for ranks, group in groups if self.rank in ranks)
