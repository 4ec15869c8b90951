"""Commits and indexes: what a checkpoint consists of, as JSON. docs/checkpoint.md gives the format.

    checkpoints/commits/<attempt>-<step>.json     sealed, written last with put_if_absent
      -> checkpoints/data/<hh>/<save id>/<rank>.index.json         indexes, one a rank
        -> checkpoints/data/<hh>/<save id>/<rank>-<k>.safetensors  payload objects of the rank

A checkpoint exists if and only if its commit exists, and every byte is vouched for from there: the
commit by its own seal, an index by its size and CRC32C in the commit, an object by those in the
index. The commit also says, for each tensor, its dtype, its shape and which indexes hold parts of
it, so a reader opens only the indexes that it needs; it grows with ranks + tensors, not with their
product.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eyas.recipe import UsageError
from eyas.store import (
    Corrupt,
    NotFound,
    ObjectRef,
    Store,
    open_store,
    put_object,
    read_object,
    seal,
    unseal,
)
from eyas.store import dump_json as _dump

from .errors import CheckpointError
from .payload import StoredObject
from .slices import Box, Ints

__all__ = [
    "FORMAT",
    "Commit",
    "CommitInfo",
    "SavePoint",
    "StoredSlice",
    "TensorInfo",
    "commit_key",
    "data_prefix",
    "decode_commit",
    "encode_commit",
    "encode_ranges",
    "list_commits",
    "put_index",
    "read_commit",
    "read_index",
    "resolve",
]

FORMAT = 1
_COMMITS = "checkpoints/commits/"
_NAME = re.compile(r"(\d{6,})-(\d{12,})\.json")
_SELECTOR = re.compile(r"latest|\d+|\d+-\d+")


@dataclass(frozen=True)
class CommitInfo:
    """A commit as listed, unread."""

    attempt: int
    step: int
    key: str


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a checkpoint: its dtype ("F32"), its global shape, and in which indexes (ranges
    of numbers, first and last included) parts of it are."""

    dtype: str
    shape: Ints
    indexes: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> tuple[Ints, Ints]:
        """(offset, shape) of all of it, as `load_slices` takes it."""
        return (0,) * len(self.shape), self.shape


@dataclass(frozen=True)
class Commit:
    """A committed checkpoint. `facts` is what the saver said of it (shape, tokenizer, data plan,
    tokens, digest ...); `tensors` what it holds, by name."""

    attempt: int
    step: int
    save_id: str
    created: str
    facts: Mapping[str, Any]
    indexes: tuple[ObjectRef, ...]
    tensors: Mapping[str, TensorInfo]

    @property
    def key(self) -> str:
        return commit_key(self.attempt, self.step)


@dataclass(frozen=True)
class SavePoint:
    """A save before it is committed: what its objects and indexes say of it."""

    attempt: int
    step: int
    save_id: str


@dataclass(frozen=True)
class StoredSlice:
    """A box of the tensor `name`, in bytes `start` to `start + length` of `object`, row-major."""

    name: str
    global_shape: Ints
    box: Box
    dtype: str
    object: StoredObject
    start: int
    length: int


def commit_key(attempt: int, step: int) -> str:
    """Where the commit of a step of an attempt is."""
    return f"{_COMMITS}{attempt:06d}-{step:012d}.json"


def data_prefix(save_id: str, rank: int) -> str:
    """Where a rank of a save writes. The hash comes first, so that thousands of ranks spread over
    256 key prefixes, which is how object stores scale."""
    spread = hashlib.sha256(f"{save_id}/{rank}".encode()).hexdigest()[:2]
    return f"checkpoints/data/{spread}/{save_id}/{rank:05d}"


def list_commits(store: Store) -> list[CommitInfo]:
    """All commits, ascending by (attempt, step): the last one is "latest"."""
    found = []
    for info in store.list(_COMMITS):
        if match := _NAME.fullmatch(info.key[len(_COMMITS) :]):
            found.append(CommitInfo(int(match[1]), int(match[2]), info.key))
    return sorted(found, key=lambda c: (c.attempt, c.step))


def read_commit(store: Store, selector: str | int | CommitInfo = "latest") -> Commit:
    """The commit "latest", of a step (its highest attempt), or "ATTEMPT-STEP". Its seal is
    verified; its indexes and objects are not read. Raises CheckpointError if there is none,
    Corrupt."""
    info = selector if isinstance(selector, CommitInfo) else _find(store, str(selector))
    try:
        data = store.get(info.key)
    except NotFound as error:
        raise CheckpointError(f"{store.url}: the commit {info.key} is gone") from error
    commit = decode_commit(store, info.key, data)
    if (commit.attempt, commit.step) != (info.attempt, info.step):
        raise Corrupt(f"{store.url}: {info.key} holds the commit {commit.attempt}-{commit.step}")
    return commit


def resolve(ref: str) -> tuple[Store, str]:
    """`STORE[@latest|@STEP|@ATTEMPT-STEP]` as (store, selector); STORE is s3://bucket/prefix or a
    folder, whose own name may hold an @. Raises UsageError."""
    url, at, selector = ref.rpartition("@")
    if not at or Path(ref).is_dir():
        return open_store(ref), "latest"
    if not url or not _SELECTOR.fullmatch(selector):
        raise UsageError(
            f'"{ref}": "{selector}" names no checkpoint; write STORE@latest, STORE@STEP or '
            "STORE@ATTEMPT-STEP"
        )
    return open_store(url), selector


def encode_commit(commit: Commit) -> bytes:
    """The sealed bytes."""
    return seal(
        {
            "format": FORMAT,
            "attempt": commit.attempt,
            "step": commit.step,
            "save_id": commit.save_id,
            "created": commit.created,
            "facts": dict(commit.facts),
            "indexes": commit.indexes,
            "tensors": commit.tensors,
        }
    )


def decode_commit(store: Store, key: str, data: bytes) -> Commit:
    """What `encode_commit` wrote. Raises Corrupt; CheckpointError for a format of the future."""
    body = unseal(store, key, data)
    _check_format(store, key, body)
    return Commit(
        attempt=body["attempt"],
        step=body["step"],
        save_id=body["save_id"],
        created=body["created"],
        facts=body["facts"],
        indexes=tuple(ObjectRef(**r) for r in body["indexes"]),
        tensors={
            name: TensorInfo(t["dtype"], tuple(t["shape"]), tuple((a, b) for a, b in t["indexes"]))
            for name, t in body["tensors"].items()
        },
    )


def encode_ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ascending (first, last) ranges: (0, 1, 2, 5) -> ((0, 2), (5, 5))."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def put_index(
    store: Store, point: SavePoint, rank: int, slices: Iterable[StoredSlice]
) -> tuple[ObjectRef, list[StoredSlice]]:
    """Write a rank's index; returns its reference (rows: slices) and the slices in its order."""
    ordered = sorted(slices, key=lambda s: (s.object.key, s.start))
    objects = list(dict.fromkeys(s.object for s in ordered))
    number = {o.key: n for n, o in enumerate(objects)}
    rows = [
        {
            "name": s.name,
            "global_shape": s.global_shape,
            "offset": s.box.offset,
            "shape": s.box.shape,
            "dtype": s.dtype,
            "object": number[s.object.key],
            "start": s.start,
            "length": s.length,
        }
        for s in ordered
    ]
    body = {
        "format": FORMAT,
        "attempt": point.attempt,
        "step": point.step,
        "save_id": point.save_id,
        "rank": rank,
        "objects": objects,
        "slices": rows,
    }
    key = f"{data_prefix(point.save_id, rank)}.index.json"
    return put_object(store, key, _dump(body), rows=len(rows)), ordered


def read_index(store: Store, ref: ObjectRef) -> list[StoredSlice]:
    """A rank's slices, verified against the reference in the commit. Raises Corrupt."""
    try:
        body = json.loads(read_object(store, ref))
    except NotFound as error:
        raise Corrupt(f"{store.url}: the index {ref.key} is missing") from error
    _check_format(store, ref.key, body)
    objects = [
        StoredObject(o["key"], o["size"], o["crc32c"], o["chunk"], tuple(o["crcs"]))
        for o in body["objects"]
    ]
    return [
        StoredSlice(
            row["name"],
            tuple(row["global_shape"]),
            Box(tuple(row["offset"]), tuple(row["shape"])),
            row["dtype"],
            objects[row["object"]],
            row["start"],
            row["length"],
        )
        for row in body["slices"]
    ]


def _find(store: Store, selector: str) -> CommitInfo:
    if not _SELECTOR.fullmatch(selector):
        raise UsageError(f'"{selector}" names no checkpoint; write latest, STEP or ATTEMPT-STEP')
    commits = list_commits(store)
    if not commits:
        raise CheckpointError(f"{store.url} holds no checkpoint")
    if selector == "latest":
        return commits[-1]
    attempt, _, step = selector.rpartition("-")
    for info in reversed(commits):
        if info.step == int(step) and (not attempt or info.attempt == int(attempt)):
            return info
    near = ", ".join(f"{c.attempt}-{c.step}" for c in commits[-8:])
    raise CheckpointError(f"{store.url} holds no checkpoint {selector}; the last ones are {near}")


def _check_format(store: Store, key: str, body: Mapping[str, Any]) -> None:
    if body.get("format") != FORMAT:
        raise CheckpointError(
            f"{store.url}: {key} has format {body.get('format')!r}, this Eyas reads {FORMAT}"
        )
