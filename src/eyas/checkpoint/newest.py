"""The newest whole checkpoint: what to go on from after a crash, whatever the crash left.

Only commits are believed. Each is tried from the newest on: its seal, the size and checksum of
each index, the size of each object (and, if asked, every checksum). A damaged one is an error in
the log that names what is damaged, and the one before it is taken. Only damage falls back: a store
that does not answer is an error, since going back for that would throw away good work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from eyas.recipe import EyasError
from eyas.store import Corrupt, NotFound, ObjectRef, Store, crc32c

from .commit import (
    Commit,
    CommitInfo,
    decode_commit,
    encode_commit,
    list_commits,
    read_commit,
    read_index,
)
from .errors import CheckpointError
from .payload import StoredObject
from .ranks import Ranks
from .read_slices import THREADS, Wanted, load_slices

__all__ = ["load_newest", "newest_whole", "verify_commit"]

_log = logging.getLogger("eyas.checkpoint")


def verify_commit(store: Store, commit: Commit | CommitInfo, deep: bool = True) -> list[str]:
    """What is damaged in a checkpoint, one sentence each, empty if it is whole: the commit's seal,
    every index, every object's size, and with `deep` every chunk of every object. Errors of the
    store that are no damage are raised."""
    if isinstance(commit, CommitInfo):
        try:
            commit = read_commit(store, commit)
        except (Corrupt, CheckpointError) as error:
            return [str(error)]
    with ThreadPoolExecutor(THREADS) as pool:
        damages = pool.map(lambda ref: list(_index_damage(store, ref, deep)), commit.indexes)
        return [text for texts in damages for text in texts]


def newest_whole(store: Store, deep: bool = False) -> Commit | None:
    """The newest commit that is whole, None if the store holds no commit at all. Raises Corrupt if
    there are commits and all are damaged."""
    return next(_whole_commits(store, deep), None)


def load_newest(
    store: Store, wanted: Callable[[Commit], Wanted], group: Any = None
) -> tuple[Commit, dict[str, torch.Tensor]] | None:
    """The newest checkpoint that loads on every rank, and this rank's `wanted(commit)` of it; None
    if there is none. Collective over `group`: rank 0 alone lists, and if any rank meets damage all
    go back together. Raises Corrupt if there are commits and none loads."""
    ranks = Ranks(group)
    candidates = _whole_commits(store, deep=False)
    while True:
        sealed = ranks.lead(lambda: _sealed(next(candidates, None)))
        if sealed is None:
            return None
        commit = decode_commit(store, sealed["key"], sealed["data"].encode())
        tensors, failure = _try_load(store, commit, wanted)
        damage, text = ranks.broadcast(_verdict(ranks.gather(failure)))
        if not text:
            return commit, tensors
        if not damage:
            raise CheckpointError(text)
        if ranks.rank == 0:
            _log.error("%s; going back to the checkpoint before it", text)


def _whole_commits(store: Store, deep: bool) -> Iterator[Commit]:
    """Newest first. Raises Corrupt at the end if there was any commit at all."""
    commits = list_commits(store)
    for info in reversed(commits):
        damage = verify_commit(store, info, deep)
        if not damage:
            yield read_commit(store, info)
            continue
        _log.error(
            "the checkpoint %d-%d is damaged, going back to the one before it: %s%s",
            info.attempt,
            info.step,
            damage[0],
            f" (and {len(damage) - 1} more)" if len(damage) > 1 else "",
        )
    if commits:
        raise Corrupt(
            f"{store.url} has {len(commits)} checkpoints and none of them is whole; "
            "see the errors before this, or `eyas checkpoints STORE verify`"
        )


def _index_damage(store: Store, ref: ObjectRef, deep: bool) -> Iterator[str]:
    try:
        slices = read_index(store, ref)
    except (Corrupt, CheckpointError) as error:
        yield str(error)
        return
    for target in dict.fromkeys(s.object for s in slices):
        info = store.stat(target.key)
        if info is None:
            yield f"{store.url}: the object {target.key} is missing"
        elif info.size != target.size:
            yield (f"{store.url}: {target.key} has {info.size} bytes, the index says {target.size}")
        elif deep:
            yield from _chunk_damage(store, target)


def _chunk_damage(store: Store, target: StoredObject) -> Iterator[str]:
    for number, expected in enumerate(target.crcs):
        begin = number * target.chunk
        data = store.get_range(target.key, begin, min(target.chunk, target.size - begin))
        found = f"{crc32c(data):08x}"
        if found != expected:
            yield (
                f"{store.url}: chunk {number} of {target.key} (bytes {begin} to "
                f"{begin + len(data)}) has the CRC32C {found}, the index says {expected}"
            )


def _sealed(commit: Commit | None) -> dict[str, str] | None:
    if commit is None:
        return None
    return {"key": commit.key, "data": encode_commit(commit).decode()}


def _try_load(
    store: Store, commit: Commit, wanted: Callable[[Commit], Wanted]
) -> tuple[dict[str, torch.Tensor], tuple[bool, str]]:
    """The tensors, and (is it damage, the error) for the other ranks."""
    try:
        return load_slices(store, commit, wanted(commit)), (False, "")
    except Exception as error:  # noqa: BLE001 - told to all ranks, which go back or raise
        text = str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}"
        return {}, (isinstance(error, (Corrupt, NotFound)), text)


def _verdict(failures: list[Any] | None) -> tuple[bool, str]:
    """Of all ranks' failures the one to act on: any that is no damage first."""
    named = [(d, f"rank {n}: {t}") for n, (d, t) in enumerate(failures or []) if t]
    return min(named, default=(False, ""))
