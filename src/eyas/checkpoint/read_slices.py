"""Load: any boxes of any tensors, from whatever boxes were saved, reading only what is needed.

What is wanted is met with what is stored; of each stored slice the bytes from the first needed
element to the last are needed (a cut along inner dimensions reads whole rows, leaves out columns).
Those ranges, widened to the checksummed chunks of their object and joined where they touch, are
fetched by a few threads into memory that is used again and again, verified, and copied straight to
their place. Each chunk is fetched once, and what is held besides the result is THREADS * FETCH
bytes, so a rank that wants a thousandth of a checkpoint neither reads nor holds more than that and
a little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch

from eyas.store import Corrupt, NotFound, Store, StoreError, crc32c

from .commit import Commit, StoredSlice, read_index
from .errors import CheckpointError
from .payload import StoredObject, dtype_of
from .slices import Box, Ints, intersect

__all__ = ["Wanted", "load_slices"]

FETCH = 16 * 2**20
THREADS = 8
STAGING = 256 * 2**20

Wanted = Mapping[str, tuple[Ints, Ints]]


@dataclass(frozen=True, eq=False)
class _Copy:
    """Stored bytes that belong somewhere: a slice of `shape` (bytes of an element come last) at
    `start` of an object, of which the box `low` to `high` goes to `target`. Of the object,
    `first` to `last` is needed."""

    name: str
    start: int
    shape: Ints
    low: Ints
    high: Ints
    target: np.ndarray
    first: int
    last: int


def load_slices(
    store: Store,
    commit: Commit,
    wanted: Wanted,
    out: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """The wanted boxes, `name -> (offset, shape)`, as tensors of their stored dtype on the CPU, or
    in `out[name]` where that is given (of the box's shape; another dtype converts, any device).

    Every byte is verified before it is believed; a chunk that is damaged is read once more. Raises
    Corrupt naming tensor, object and chunk; CheckpointError for a tensor or box that is not there.
    """
    out = out or {}
    for name, (offset, shape) in wanted.items():
        _check_wanted(store, commit, name, Box(tuple(offset), tuple(shape)), out.get(name))
    stored = _stored_slices(store, commit, wanted)
    result: dict[str, torch.Tensor] = {}
    for batch in _batches(commit, wanted, out):
        staged = {}
        for name in batch:
            info, shape = commit.tensors[name], tuple(wanted[name][1])
            into = out.get(name)
            if into is None or not _direct(into, info.dtype):
                staged[name] = torch.empty(shape, dtype=dtype_of(info.dtype))
            else:
                staged[name] = into.detach()
        _fill(store, commit, stored, {n: (wanted[n], staged[n]) for n in batch})
        for name in batch:
            into = out.get(name)
            if into is not None and not _direct(into, commit.tensors[name].dtype):
                into.detach().copy_(staged[name])
            result[name] = staged[name] if into is None else into
    return result


def _check_wanted(
    store: Store, commit: Commit, name: str, box: Box, out: torch.Tensor | None
) -> None:
    if name not in commit.tensors:
        near = [n for n in commit.tensors if n.rpartition(".")[2] == name.rpartition(".")[2]][:3]
        raise CheckpointError(
            f"{store.url}@{commit.attempt}-{commit.step} holds no tensor {name}"
            + (f" (but {', '.join(near)})" if near else "")
        )
    shape = commit.tensors[name].shape
    if not box.within(shape):
        raise CheckpointError(
            f"{name}: {list(box.shape)} at {list(box.offset)} was asked for, the checkpoint "
            f"{store.url}@{commit.attempt}-{commit.step} has the shape {list(shape)}"
        )
    if out is not None and tuple(out.shape) != box.shape:
        raise CheckpointError(
            f"{name}: the buffer has the shape {list(out.shape)}, {list(box.shape)} was asked for"
        )


def _direct(out: torch.Tensor, dtype: str) -> bool:
    """Whether bytes can be copied right into this buffer."""
    return out.device.type == "cpu" and out.is_contiguous() and out.dtype == dtype_of(dtype)


def _batches(
    commit: Commit, wanted: Wanted, out: Mapping[str, torch.Tensor]
) -> Iterator[list[str]]:
    """All that needs no staging at once, then the rest in batches of about STAGING bytes."""
    waiting = {n for n, o in out.items() if n in wanted and not _direct(o, commit.tensors[n].dtype)}
    yield [n for n in wanted if n not in waiting]
    batch: list[str] = []
    held = 0
    for name in (n for n in wanted if n in waiting):
        size = math.prod(wanted[name][1]) * dtype_of(commit.tensors[name].dtype).itemsize
        if batch and held + size > STAGING:
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch


def _stored_slices(store: Store, commit: Commit, wanted: Wanted) -> dict[str, list[StoredSlice]]:
    """What is stored of the wanted tensors, from the indexes that hold parts of them."""
    numbers = sorted(
        {
            number
            for name in wanted
            for first, last in commit.tensors[name].indexes
            for number in range(first, last + 1)
        }
    )
    found: dict[str, list[StoredSlice]] = defaultdict(list)

    def read(number: int) -> list[StoredSlice]:
        return [s for s in read_index(store, commit.indexes[number]) if s.name in wanted]

    with ThreadPoolExecutor(THREADS) as pool:
        for slices in pool.map(read, numbers):
            for part in slices:
                found[part.name].append(part)
    return found


def _fill(
    store: Store,
    commit: Commit,
    stored: Mapping[str, Sequence[StoredSlice]],
    targets: Mapping[str, tuple[tuple[Ints, Ints], torch.Tensor]],
) -> None:
    """Fill each target tensor (contiguous, on the CPU) with its box."""
    copies: dict[StoredObject, list[_Copy]] = defaultdict(list)
    for name, ((offset, shape), target) in targets.items():
        box = Box(tuple(offset), tuple(shape))
        filled = 0
        for part in stored.get(name, ()):
            common = intersect(part.box, box)
            if common is not None:
                filled += common.volume
                copies[part.object].append(_copy_of(part, common, box, target))
        if filled != box.volume:
            raise Corrupt(
                f"{store.url}: {commit.key} is damaged: its indexes hold {filled} of the "
                f"{box.volume} elements asked of {name}"
            )
    fetches = [
        (target, first, last, parts)
        for target, all_parts in copies.items()
        for first, last, parts in _fetches(target, all_parts)
    ]
    staging: SimpleQueue[bytearray] = SimpleQueue()
    for _ in range(THREADS):
        staging.put(bytearray())  # grows to what is fetched into it
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(_fetch, store, staging, *fetch) for fetch in fetches]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()


def _copy_of(part: StoredSlice, common: Box, wanted: Box, target: torch.Tensor) -> _Copy:
    item = dtype_of(part.dtype).itemsize
    raw = target.reshape(-1).view(torch.uint8).numpy().reshape(*wanted.shape, item)
    place = tuple(
        slice(common.offset[d] - wanted.offset[d], common.end(d) - wanted.offset[d])
        for d in range(len(wanted.shape))
    )
    low = tuple(c - p for c, p in zip(common.offset, part.box.offset, strict=True))
    high = tuple(a + size for a, size in zip(low, common.shape, strict=True))
    first = last = 0
    for a, b, size in zip(low, high, part.box.shape, strict=True):
        first, last = first * size + a, last * size + b - 1
    return _Copy(
        name=part.name,
        start=part.start,
        shape=(*part.box.shape, item),
        low=(*low, 0),
        high=(*high, item),
        target=raw[place],
        first=part.start + first * item,
        last=part.start + (last + 1) * item,
    )


def _fetches(
    target: StoredObject, copies: Iterable[_Copy]
) -> Iterator[tuple[int, int, list[_Copy]]]:
    """The runs of chunks that the copies need, first and last (not included), each within FETCH,
    with the copies that each run feeds."""
    users: dict[int, list[_Copy]] = defaultdict(list)
    for copy in copies:
        for chunk in range(copy.first // target.chunk, -(-copy.last // target.chunk)):
            users[chunk].append(copy)
    most = max(1, FETCH // target.chunk)
    run: list[int] = []
    for chunk in [*sorted(users), -1]:
        if run and (chunk != run[-1] + 1 or len(run) == most):
            parts = {id(c): c for n in run for c in users[n]}
            yield run[0], run[-1] + 1, list(parts.values())
            run = []
        run.append(chunk)


def _fetch(
    store: Store,
    staging: SimpleQueue[bytearray],
    target: StoredObject,
    first: int,
    last: int,
    copies: Sequence[_Copy],
) -> None:
    """Fetch chunks `first` to `last`, verify them, and copy what they hold to its place."""
    begin = first * target.chunk
    end = min(last * target.chunk, target.size)
    memory = staging.get()
    try:
        if len(memory) < end - begin:
            memory = bytearray(end - begin)
        data = np.frombuffer(memory, dtype=np.uint8)[: end - begin]
        _read_verified(store, target, first, copies, data)
        _copy_out(copies, begin, data)
    finally:
        staging.put(memory)


def _read_verified(
    store: Store, target: StoredObject, first: int, copies: Sequence[_Copy], data: np.ndarray
) -> None:
    """Fill `data` with the chunks from `first` on; a damaged one is read once more."""
    begin = first * target.chunk
    try:
        store.read_into(target.key, begin, data)
    except StoreError as error:
        raise _unreadable(store, target, copies, error) from error
    for at in range(0, len(data), target.chunk):
        piece = data[at : at + target.chunk]
        chunk = first + at // target.chunk
        if f"{crc32c(piece):08x}" != target.crcs[chunk]:
            _read_again(store, target, chunk, copies, piece)


def _copy_out(copies: Sequence[_Copy], begin: int, data: np.ndarray) -> None:
    """What `data`, the object's bytes from `begin` on, holds of each copy."""
    end = begin + len(data)
    for copy in copies:
        a, b = max(begin, copy.start), min(end, copy.start + math.prod(copy.shape))
        _scatter(
            copy.target,
            copy.low,
            copy.high,
            copy.shape,
            data[a - begin : b - begin],
            a - copy.start,
            b - copy.start,
        )


def _read_again(
    store: Store, target: StoredObject, chunk: int, copies: Sequence[_Copy], piece: np.ndarray
) -> None:
    begin = chunk * target.chunk
    store.read_into(target.key, begin, piece, fresh=True)
    found = f"{crc32c(piece):08x}"
    if found != target.crcs[chunk]:
        end = begin + len(piece)
        hit = [c.name for c in copies if c.first < end and c.last > begin]
        raise Corrupt(
            f"{store.url}: {_names(hit)} is damaged: bytes {begin} to {end} "
            f"(chunk {chunk}) of {target.key} have the CRC32C {found}, "
            f"the index says {target.crcs[chunk]}, in two reads"
        )


def _unreadable(
    store: Store, target: StoredObject, copies: Sequence[_Copy], error: StoreError
) -> StoreError:
    """A missing or short object is damage; any other failure to read stays what it is."""
    names = _names([c.name for c in copies])
    if isinstance(error, NotFound):
        return Corrupt(f"{store.url}: {names} is damaged: the object {target.key} is missing")
    info = store.stat(target.key)
    if info is not None and info.size != target.size:
        return Corrupt(
            f"{store.url}: {names} is damaged: {target.key} has {info.size} bytes, the index "
            f"says {target.size}"
        )
    return error


def _names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")


def _scatter(
    target: np.ndarray, low: Ints, high: Ints, shape: Ints, data: np.ndarray, a: int, b: int
) -> None:
    """Copy to `target` what `data` holds of the box `low` to `high` of a row-major array of bytes
    of `shape`; `data` is the array's bytes `a` to `b`, which may begin and end inside a row."""
    if len(shape) == 1:
        first, last = max(a, low[0]), min(b, high[0])
        if first < last:
            target[first - low[0] : last - low[0]] = data[first - a : last - a]
        return
    stride = math.prod(shape[1:])
    first, last = -(-a // stride), b // stride
    if a % stride:
        row, stop = a // stride, min(b, first * stride)
        _scatter_row(target, low, high, shape, row, data[: stop - a], a, stop)
    if first < last:
        top, bottom = max(first, low[0]), min(last, high[0])
        if top < bottom:
            rows = data[top * stride - a : bottom * stride - a].reshape(bottom - top, *shape[1:])
            inner = tuple(slice(x, y) for x, y in zip(low[1:], high[1:], strict=True))
            target[top - low[0] : bottom - low[0]] = rows[(slice(None), *inner)]
    if b % stride and last >= first:
        _scatter_row(target, low, high, shape, last, data[last * stride - a :], last * stride, b)


def _scatter_row(
    target: np.ndarray,
    low: Ints,
    high: Ints,
    shape: Ints,
    row: int,
    data: np.ndarray,
    a: int,
    b: int,
) -> None:
    """The part `a` to `b` of one row."""
    if low[0] <= row < high[0]:
        start = row * math.prod(shape[1:])
        _scatter(target[row - low[0]], low[1:], high[1:], shape[1:], data, a - start, b - start)
