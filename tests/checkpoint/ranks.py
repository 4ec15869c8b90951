"""What a rank does in the tests with real processes, and the state that they save: a matrix cut
in rows and columns as tensor and data parallelism do, its moments, a vector that is rank 0's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from eyas.checkpoint import Commit, Slice, load_newest, save
from eyas.checkpoint import payload as payload_module
from eyas.store import open_store

from .faults import Failing, Killing

__all__ = ["NAMES", "cut", "state", "whole"]

ROWS, COLUMNS = 24, 40
NAMES = ("model.w", "optim.w.exp_avg", "optim.w.exp_avg_sq", "model.b")


def state(seed: int) -> dict[str, torch.Tensor]:
    """All tensors, whole."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {name: (ROWS, COLUMNS) for name in NAMES} | {"model.b": (COLUMNS,)}
    return {n: torch.randn(size, generator=generator) for n, size in sizes.items()}


def cut(rank: int, world: int) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """(name, offset, shape) of what a rank holds: columns by two where there are ranks for it, rows
    by the rest."""
    tensor = 2 if world % 2 == 0 else 1
    data = world // tensor
    height, width = ROWS // data, COLUMNS // tensor
    for name in NAMES[:3]:
        yield name, (rank // tensor * height, rank % tensor * width), (height, width)
    if rank == 0:
        yield "model.b", (0,), (COLUMNS,)


def slices(seed: int, rank: int, world: int) -> list[Slice]:
    full = state(seed)
    return [
        Slice(name, offset, _part(full[name], offset, shape), tuple(full[name].shape))
        for name, offset, shape in cut(rank, world)
    ]


def whole(commit: Commit) -> dict[str, Any]:
    return {name: info.whole for name, info in commit.tensors.items()}


def save_rank(rank: int, world: int, url: str, attempt: int, step: int, seed: int) -> str | None:
    """A healthy save; the key of the commit on rank 0."""
    commit = save(open_store(url), attempt, step, slices(seed, rank, world), {"seed": seed})
    return commit and commit.key


def save_twice_rank(rank: int, world: int, url: str) -> str | None:
    """Step 1 with seed 1 and step 2 with seed 2, under attempt 1."""
    save_rank(rank, world, url, 1, 1, 1)
    return save_rank(rank, world, url, 1, 2, 2)


def save_killed_rank(
    rank: int, world: int, url: str, victim: int, phase: str, attempt: int, step: int
) -> None:
    payload_module.CHUNK = 1024
    store: Any = open_store(url)
    if rank == victim:
        store = Killing(store, phase)
    save(store, attempt, step, slices(step, rank, world), {})


def save_failing_rank(rank: int, world: int, url: str, victim: int) -> None:
    store: Any = open_store(url)
    if rank == victim:
        store = Failing(store, "put_chunks", "checkpoints/data")
    save(store, 1, 1, slices(1, rank, world), {})


def save_bad_rank(rank: int, world: int, url: str) -> None:
    """Rank 1 says that it has what rank 0 has."""
    save(open_store(url), 1, 1, slices(1, 0, world) if rank < 2 else [], {})


def save_fenced_rank(rank: int, world: int, url: str) -> None:
    save(open_store(url), 1, 2, slices(1, rank, world), {})


def load_newest_rank(rank: int, world: int, url: str) -> tuple[int, bool]:
    """The step that was loaded, and whether this rank's part of it is right."""

    def wanted(commit: Commit) -> dict[str, Any]:
        return {name: (offset, shape) for name, offset, shape in cut(rank, world)}

    found = load_newest(open_store(url), wanted)
    assert found is not None
    commit, tensors = found
    full = state(commit.facts["seed"])
    right = all(
        torch.equal(tensors[name], _part(full[name], offset, shape))
        for name, offset, shape in cut(rank, world)
    )
    return commit.step, right


def _part(full: torch.Tensor, offset: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    where = tuple(slice(o, o + s) for o, s in zip(offset, shape, strict=True))
    return full[where].contiguous()
