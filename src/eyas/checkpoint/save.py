"""Save: every rank writes its own slices, then one conditional put makes them a checkpoint.

1. Rank 0 checks that no higher attempt exists and draws a random save id; all ranks get it. Every
   key of this save holds the id, so nothing is ever overwritten and two steps cannot mix.
2. Every rank streams its slices into payload objects of about `OBJECT` bytes and writes its index.
3. Every rank reports its index or its error to rank 0, which checks that the slices of all ranks
   tile every tensor exactly once, checks the attempt again, and puts the commit if absent.
4. All ranks get the outcome. A rank that failed, died or was fenced anywhere before the put leaves
   objects that no commit names: nothing believes them, and `gc` will find them.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from eyas.recipe import EyasError
from eyas.store import ObjectRef, Store, dump_json, now

from .attempts import check_attempt
from .commit import (
    Commit,
    CommitInfo,
    SavePoint,
    StoredSlice,
    TensorInfo,
    commit_key,
    data_prefix,
    encode_commit,
    encode_ranges,
    put_index,
    read_commit,
)
from .errors import AlreadyCommitted, CheckpointError, SaveFailed
from .payload import Entry, StoredObject, dtype_name, write_entries, write_payload
from .ranks import Ranks
from .slices import Box, Ints, Slice, tiling_fault

__all__ = ["commit_parts", "open_save", "save", "stream_part", "write_part"]

OBJECT = 2**30


def save(
    store: Store,
    attempt: int,
    step: int,
    slices: Sequence[Slice],
    facts: Mapping[str, Any],
    group: Any = None,
) -> Commit | None:
    """Commit the slices of all ranks as the checkpoint of `step` under `attempt`.

    Collective over `group` (gloo; the default group, or this process alone, if None). Rank 0's
    `facts` (JSON-able) are kept. Together the slices must tile each tensor once: a replica is saved
    by one rank. Returns the commit on rank 0 and None elsewhere. Raises, on every rank alike:
    Fenced, AlreadyCommitted, SaveFailed (naming the rank and its cause); then nothing was
    committed.
    """
    ranks = Ranks(group)
    save_id = ranks.lead(lambda: open_save(store, attempt, step, facts).save_id)
    point = SavePoint(attempt, step, save_id)
    report, own = write_part(store, point, ranks.rank, slices)
    reports = ranks.gather(report)
    body: list[Commit] = []

    def finish() -> None:
        body.append(commit_parts(store, point, facts, reports or []))

    try:
        ranks.lead(finish)
    except SaveFailed as error:
        raise error from own
    return body[0] if body else None


def open_save(store: Store, attempt: int, step: int, facts: Mapping[str, Any]) -> SavePoint:
    """A new save, if this attempt may commit this step. Raises Fenced, AlreadyCommitted."""
    dump_json(facts)
    if step < 0:
        raise CheckpointError(f"step {step} cannot be saved: steps count from 0")
    check_attempt(store, attempt)
    if store.stat(commit_key(attempt, step)) is not None:
        raise _already(store, attempt, step)
    return SavePoint(attempt, step, secrets.token_hex(16))


def write_part(
    store: Store, point: SavePoint, rank: int, slices: Sequence[Slice]
) -> tuple[dict[str, Any], Exception | None]:
    """Write a rank's part; returns what it tells rank 0 (JSON-able), and its error. Every failure
    becomes a report, never silence."""
    try:
        stored = _write(store, point, rank, slices)
        ref, stored = put_index(store, point, rank, stored)
    except Exception as error:  # noqa: BLE001 - told to all ranks, which raise it
        text = str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}"
        return {"error": text}, error
    return _report(ref, stored), None


def stream_part(
    store: Store,
    point: SavePoint,
    rank: int,
    tensors: Mapping[str, Ints],
    pieces: Iterable[memoryview],
) -> dict[str, Any]:
    """As `write_part`, of whole float32 tensors that nobody holds: their bytes come one tensor
    after another, cut anyhow. What `pieces` raises passes through."""
    whole = [Slice.whole(n, torch.empty(size, device="meta")) for n, size in tensors.items()]
    stream, stored = _Stream(pieces), []
    for number, parts in enumerate(_group(p for part in whole for p in _cut(part))):
        entries = [Entry(_entry_name(p), "F32", p.box.shape) for p in parts]
        taken = stream.take(sum(entry.size for entry in entries))
        key = _payload_key(point, rank, number)
        target, starts = write_entries(store, key, entries, taken, _metadata(point, parts))
        stored += [_stored(part, target, starts) for part in parts]
    stream.end()
    return _report(*put_index(store, point, rank, stored))


class _Stream:
    """Bytes in pieces, taken in other pieces."""

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def take(self, size: int) -> Iterator[memoryview]:
        """The next `size` bytes. Raises CheckpointError if they end before."""
        while size:
            piece = self._rest or next(self._pieces, memoryview(b""))
            if not piece:
                raise CheckpointError(f"{size} bytes of weights are missing")
            part, self._rest = piece[:size], piece[size:]
            size -= len(part)
            yield part

    def end(self) -> None:
        """Raises CheckpointError if there are more."""
        if self._rest or next(self._pieces, None) is not None:
            raise CheckpointError("more bytes of weights came than their shapes have")


def _report(ref: ObjectRef, stored: Iterable[StoredSlice]) -> dict[str, Any]:
    rows = [[s.name, s.global_shape, s.box.offset, s.box.shape, s.dtype] for s in stored]
    return {"index": dataclasses.asdict(ref), "slices": rows}


def _write(store: Store, point: SavePoint, rank: int, slices: Sequence[Slice]) -> list[StoredSlice]:
    for part in slices:
        if not part.box.within(tuple(part.global_shape)):
            raise CheckpointError(
                f"{part.name}: a slice of shape {list(part.box.shape)} at {list(part.offset)} "
                f"is not inside {list(part.global_shape)}"
            )
    stored = []
    for number, parts in enumerate(_pack(slices)):
        named = [(_entry_name(p), p) for p in parts]
        key = _payload_key(point, rank, number)
        target, starts = write_payload(store, key, named, _metadata(point, parts))
        stored += [_stored(part, target, starts) for part in parts]
    return stored


def _payload_key(point: SavePoint, rank: int, number: int) -> str:
    return f"{data_prefix(point.save_id, rank)}-{number:04d}.safetensors"


def _metadata(point: SavePoint, parts: Sequence[Slice]) -> dict[str, str]:
    return {
        "format": "eyas",
        "save_id": point.save_id,
        "attempt": str(point.attempt),
        "step": str(point.step),
        "global_shapes": dump_json({p.name: p.global_shape for p in parts}).decode(),
    }


def _stored(part: Slice, target: StoredObject, starts: Mapping[str, int]) -> StoredSlice:
    return StoredSlice(
        part.name,
        tuple(part.global_shape),
        part.box,
        dtype_name(part.tensor.dtype),
        target,
        starts[_entry_name(part)],
        _size(part),
    )


def _pack(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices grouped into objects of about OBJECT bytes, larger ones cut into rows first. Wide
    elements come first, which keeps every tensor aligned to its element; then names in order, which
    keeps the weights together, so that reading them alone reads long runs."""
    pieces = (piece for part in slices for piece in _cut(part))
    return _group(sorted(pieces, key=lambda s: (-s.tensor.element_size(), s.name, tuple(s.offset))))


def _group(pieces: Iterable[Slice]) -> Iterator[list[Slice]]:
    """In their order, up to OBJECT bytes together."""
    group: list[Slice] = []
    held = 0
    for piece in pieces:
        size = _size(piece)
        if group and held + size > OBJECT:
            yield group
            group, held = [], 0
        group.append(piece)
        held += size
    if group:
        yield group


def _cut(part: Slice) -> Iterator[Slice]:
    """The slice, or pieces of it along its first dimension of more than one, each within OBJECT
    where a row allows it; pieces are views. None of it where it is an empty part of a tensor."""
    if part.tensor.numel() == 0 and 0 not in part.global_shape:
        return
    dim = next((d for d, size in enumerate(part.tensor.shape) if size > 1), None)
    size = _size(part)
    if dim is None or size <= OBJECT:
        yield part
        return
    count = part.tensor.shape[dim]
    rows = max(1, OBJECT // (size // count))
    for start in range(0, count, rows):
        offset = list(part.offset)
        offset[dim] += start
        view = part.tensor.narrow(dim, start, min(rows, count - start))
        yield Slice(part.name, tuple(offset), view, part.global_shape)


def _size(part: Slice) -> int:
    return part.tensor.numel() * part.tensor.element_size()


def _entry_name(part: Slice) -> str:
    """The tensor's name, with the offset where it is only a part: `head.weight@0,128`."""
    if part.box.shape == tuple(part.global_shape):
        return part.name
    return f"{part.name}@{','.join(map(str, part.offset))}"


def commit_parts(
    store: Store,
    point: SavePoint,
    facts: Mapping[str, Any],
    reports: Sequence[Mapping[str, Any]],
) -> Commit:
    """Commit what the reports of all parts name, in their order. Raises SaveFailed if one failed or
    they do not tile every tensor, Fenced, AlreadyCommitted."""
    failed = [f"rank {n}: {r['error']}" for n, r in enumerate(reports) if "error" in r]
    if failed:
        more = f" (and {len(failed) - 3} more ranks)" if len(failed) > 3 else ""
        raise SaveFailed(
            f"step {point.step} was not saved, nothing was committed: {'; '.join(failed[:3])}{more}"
        )
    commit = Commit(
        attempt=point.attempt,
        step=point.step,
        save_id=point.save_id,
        created=now(),
        facts=json.loads(dump_json(facts)),
        indexes=tuple(ObjectRef(**r["index"]) for r in reports),
        tensors=_check_coverage(point.step, [r["slices"] for r in reports]),
    )
    check_attempt(store, point.attempt)
    if not store.put_if_absent(commit.key, encode_commit(commit)):
        raise _already(store, point.attempt, point.step)
    return commit


def _check_coverage(
    step: int, slices_of_ranks: Iterable[Iterable[Sequence[Any]]]
) -> dict[str, TensorInfo]:
    """The table of tensors, if the slices of all ranks agree on each and tile it exactly once."""
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    boxes: dict[str, list[Box]] = defaultdict(list)
    holders: dict[str, list[int]] = defaultdict(list)
    for rank, rows in enumerate(slices_of_ranks):
        for name, global_shape, offset, shape, dtype in rows:
            kind = (dtype, tuple(global_shape))
            if kinds.setdefault(name, kind) != kind:
                raise SaveFailed(
                    f"step {step} was not saved: rank {rank} has {name} as {dtype} "
                    f"{list(global_shape)}, rank {holders[name][0]} as {kinds[name][0]} "
                    f"{list(kinds[name][1])}"
                )
            boxes[name].append(Box(tuple(offset), tuple(shape)))
            holders[name].append(rank)
    for name, parts in boxes.items():
        if fault := tiling_fault(kinds[name][1], parts):
            raise SaveFailed(
                f"step {step} was not saved: {name} is not covered exactly once: {fault}; "
                f"it came from ranks {sorted(set(holders[name]))[:8]}"
            )
    return {n: TensorInfo(d, s, encode_ranges(holders[n])) for n, (d, s) in sorted(kinds.items())}


def _already(store: Store, attempt: int, step: int) -> AlreadyCommitted:
    try:
        info = CommitInfo(attempt, step, commit_key(attempt, step))
        stands = read_commit(store, info).save_id
    except EyasError as error:
        stands = str(error)
    return AlreadyCommitted(
        f"{store.url}: attempt {attempt} has committed step {step} before (save {stands}); that "
        "commit stands, and a run that goes back to an earlier step takes a new attempt"
    )
