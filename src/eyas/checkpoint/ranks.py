"""The few collective calls of a save: broadcast and gather of small JSON values over the host.

A save talks about itself on the CPU (gloo): plans and reports never touch accelerator memory, where
a gather of them has run others out of it. Without a process group there is one rank, and each call
is the identity.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from eyas.store import dump_json

from .errors import AlreadyCommitted, CheckpointError, Fenced, SaveFailed

__all__ = ["Ranks"]

_KINDS = {kind.__name__: kind for kind in (AlreadyCommitted, Fenced, SaveFailed)}


class Ranks:
    """`group`, or the default one where torch.distributed runs, or the single process."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        running = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if running else 0
        self.world = dist.get_world_size(group) if running else 1
        if self.rank < 0:
            raise CheckpointError("this process is not in the group that saves or loads")
        if self.world > 1 and "gloo" not in str(dist.get_backend(group)):
            raise CheckpointError(
                f"checkpoints talk over gloo, the group has {dist.get_backend(group)}; pass "
                "group=torch.distributed.new_group(backend='gloo')"
            )

    def broadcast(self, value: Any) -> Any:
        """Rank 0's JSON-able `value`, on every rank."""
        if self.world == 1:
            return _unpack(_pack(value))
        box = [_pack(value) if self.rank == 0 else None]
        self._guard(lambda: dist.broadcast_object_list(box, group=self._group, group_src=0))
        return _unpack(box[0])

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's JSON-able `value` in rank order on rank 0, None elsewhere."""
        if self.world == 1:
            return [_unpack(_pack(value))]
        box: list[Any] | None = [None] * self.world if self.rank == 0 else None
        data = _pack(value)
        self._guard(lambda: dist.gather_object(data, box, group=self._group, group_dst=0))
        return [_unpack(item) for item in box] if box is not None else None

    def lead(self, act: Callable[[], Any]) -> Any:
        """Rank 0 acts; its JSON-able result on every rank. Its error is raised on every rank too:
        itself on rank 0, elsewhere as its class where that is this room's, or CheckpointError."""
        error: Exception | None = None
        told: Any = None
        if self.rank == 0:
            try:
                told = {"ok": act()}
            except Exception as found:  # noqa: BLE001 - told to all ranks, which raise it
                error = found
                told = {"error": type(found).__name__, "text": str(found)}
        told = self.broadcast(told)
        if "error" not in told:
            return told["ok"]
        raise error or _KINDS.get(told["error"], CheckpointError)(told["text"])

    def _guard(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            raise CheckpointError(
                f"rank {self.rank} lost contact with another rank during a checkpoint; nothing was "
                f"committed by this save as far as this rank knows ({str(error).splitlines()[0]})"
            ) from error


def _pack(value: Any) -> bytes:
    return zlib.compress(dump_json(value), 1)


def _unpack(data: Any) -> Any:
    return json.loads(zlib.decompress(data))
