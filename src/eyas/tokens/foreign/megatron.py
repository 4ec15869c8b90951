"""Megatron's indexed data sets: `.idx` says where the sequences and documents of a `.bin` lie.

The index, little-endian: `MMIDIDX` and two zero bytes, version 1 (u64), type of the ids (u8),
number of sequences and of document bounds (u64 each); then the lengths of the sequences in ids
(i32), where each begins in the .bin in bytes (i64), the first sequence of each document and the end
of the last (i64), and a byte a sequence where there are modes. The .bin is ids and nothing else.

A piece is the documents that begin in a range of bytes of the .bin. They are found by binary search
in the index, so neither the plan nor a piece reads an index of billions of sequences as a whole.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import EyasError, UsageError
from eyas.store import ObjectInfo, Store

from .records import PIECE_BYTES, Piece, Place, Records, Skip, home, list_files

__all__ = ["pieces", "read"]

_MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_NOT_IDS = {6: "float64", 7: "float32"}
_READ_BYTES = 4 * 2**20
_READ_DOCUMENTS = 2**16

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Index:
    """An index whose header and size are in order; its arrays are read where they are needed."""

    store: Store
    key: str
    dtype: np.dtype[Any]
    sequences: int
    documents: int

    @property
    def name(self) -> str:
        return f"{self.store.url}/{self.key}"

    def lengths(self, first: int, stop: int) -> Integers:
        """Ids of sequences `first` to `stop`, exclusive."""
        return self._array(_HEADER.size, "<i4", first, stop)

    def pointers(self, first: int, stop: int) -> Integers:
        """Where they begin in the .bin, in bytes."""
        return self._array(_HEADER.size + 4 * self.sequences, "<i8", first, stop)

    def bounds(self, first: int, stop: int) -> Integers:
        """The first sequence of documents; entry `documents` is the end of the last."""
        return self._array(_HEADER.size + 12 * self.sequences, "<i8", first, stop)

    def _array(self, base: int, dtype: str, first: int, stop: int) -> Integers:
        size = np.dtype(dtype).itemsize
        data = self.store.get_range(self.key, base + first * size, (stop - first) * size)
        return np.frombuffer(data, dtype).astype(np.int64)

    def begin(self, document: int, end: int) -> int:
        """The byte at which a document begins; `end`, that of the .bin, after the last sequence."""
        if document >= self.documents:
            return end
        sequence = int(self.bounds(document, document + 1)[0])
        if not 0 <= sequence <= self.sequences:
            raise self.broken(f"document {document} begins at sequence {sequence}")
        return end if sequence == self.sequences else int(self.pointers(sequence, sequence + 1)[0])

    def broken(self, why: str) -> EyasError:
        return EyasError(f"{self.name} is not a sound index: {why}")


def pieces(key: str, place: Place) -> list[Piece]:
    """Each pair of files in ranges of about `PIECE_BYTES` of the .bin; every header is checked.
    Raises UsageError without pairs, EyasError naming a file that is broken or lacks its other."""
    files = {info.key: info for info in list_files(key, place, (".bin", ".idx"))}
    heads = sorted(name[: -len(".idx")] for name in files if name.endswith(".idx"))
    lonely = sorted({name[:-4] for name in files} - set(heads))
    if lonely:
        raise UsageError(f"{key}: {place.home}/{lonely[0]}.bin has no .idx beside it")
    return [piece for head in heads for piece in _pair(place, head, files)]


def _pair(place: Place, head: str, files: dict[str, ObjectInfo]) -> Iterator[Piece]:
    index, data = files[f"{head}.idx"], files.get(f"{head}.bin")
    if data is None:
        raise EyasError(f"{place.home}/{head}.idx has no .bin beside it")
    _check_ends(_open(home(place.home), index), data.size)
    for start in range(0, data.size, PIECE_BYTES):
        params = {
            "index": {"key": index.key, "size": index.size, "etag": index.etag},
            "start": start,
            "stop": min(start + PIECE_BYTES, data.size),
        }
        yield Piece(data.key, data.size, data.etag, params)


def _open(store: Store, info: ObjectInfo) -> _Index:
    """Check the header and the size of an index."""
    name = f"{store.url}/{info.key}"
    if info.size < _HEADER.size:
        raise EyasError(f"{name} is not a Megatron index: it has {info.size} bytes")
    magic, version, code, sequences, bounds = _HEADER.unpack(
        store.get_range(info.key, 0, _HEADER.size)
    )
    if magic != _MAGIC or version != 1:
        raise EyasError(f"{name} is not a Megatron index of version 1 (MMIDIDX)")
    if code not in _TYPES:
        what = _NOT_IDS.get(code, f"of unknown type {code}")
        raise EyasError(f"{name}: its ids are {what}; legal are 8 to 64 bit integers")
    size = _HEADER.size + 12 * sequences + 8 * bounds
    if bounds < 1 or info.size not in (size, size + sequences):
        raise EyasError(
            f"{name} is not a sound index: {sequences} sequences and {bounds} document bounds take "
            f"{size} bytes, it has {info.size}"
        )
    return _Index(store, info.key, np.dtype(_TYPES[code]), sequences, bounds - 1)


def _check_ends(index: _Index, size: int) -> None:
    """The last sequence ends with the .bin, the last document with the last sequence."""
    first, last = (int(index.bounds(i, i + 1)[0]) for i in (0, index.documents))
    if (first, last) != (0, index.sequences):
        raise index.broken(f"its documents are sequences {first} to {last} of {index.sequences}")
    end = 0
    if index.sequences:
        at = index.sequences - 1
        end = int(
            index.pointers(at, at + 1)[0] + index.lengths(at, at + 1)[0] * index.dtype.itemsize
        )
    if end != size or index.begin(0, size) != 0:
        raise index.broken(f"it covers bytes {index.begin(0, size)} to {end}, the .bin has {size}")


def read(place: Place, piece: Piece, skip: Skip) -> Iterator[Records]:
    """The documents that begin in the piece, ids as they are. Raises EyasError for an index whose
    sequences do not lie one behind the other."""
    store = home(place.home)
    about = piece.params["index"]
    found = store.stat(about["key"])
    if found is None or (found.size, found.etag) != (about["size"], about["etag"]):
        raise EyasError(f"{place.home}/{about['key']} changed while it was used; run it again")
    index = _open(store, found)
    first = _search(index, piece.params["start"], piece.size)
    stop = _search(index, piece.params["stop"], piece.size)
    if stop < first:
        raise index.broken("its sequences do not ascend")
    for low in range(first, stop, _READ_DOCUMENTS):
        high = min(low + _READ_DOCUMENTS, stop)
        yield from _documents(index, piece, low, high)


def _search(index: _Index, byte: int, end: int) -> int:
    """The first document that begins at `byte` or later. Empty documents at the end of the .bin
    belong to no piece: they have no token."""
    return _first(index.documents, lambda d: index.begin(d, end) >= byte)


def _first(count: int, true: Callable[[int], bool]) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if true(middle) else (middle + 1, high)
    return low


def _documents(index: _Index, piece: Piece, low: int, high: int) -> Iterator[Records]:
    """Documents `low` to `high`, a few MiB of ids at a time."""
    bounds = index.bounds(low, high + 1)
    if (np.diff(bounds) < 0).any() or bounds[0] < 0 or bounds[-1] > index.sequences:
        raise index.broken(f"the bounds of documents {low} to {high} do not ascend")
    first, stop = int(bounds[0]), int(bounds[-1])
    if first == stop:
        return
    lengths, pointers = index.lengths(first, stop), index.pointers(first, stop)
    width = index.dtype.itemsize
    if (lengths < 0).any() or (np.diff(pointers) != lengths[:-1] * width).any():
        raise index.broken(f"sequences {first} to {stop} do not lie one behind the other")
    ends = np.concatenate((pointers, pointers[-1:] + lengths[-1:] * width))
    if ends[0] < 0 or ends[-1] != index.begin(high, piece.size):
        raise index.broken(f"sequence {stop} does not begin where {stop - 1} ends")
    starts = ends[bounds - first]
    for a, b in _groups(starts, _READ_BYTES):
        begin, end = int(starts[a]), int(starts[b])
        data = index.store.get_range(piece.key, begin, end - begin)
        yield Records(
            rows=range(low + a, low + b),
            ids=np.frombuffer(data, index.dtype),
            offsets=(starts[a : b + 1] - begin) // width,
        )


def _groups(starts: Integers, size: int) -> Iterator[tuple[int, int]]:
    """Runs of documents of about `size` bytes, one document at least."""
    cuts = [0]
    while cuts[-1] < len(starts) - 1:
        cut = int(np.searchsorted(starts, starts[cuts[-1]] + size, side="right")) - 1
        cuts.append(max(cut, cuts[-1] + 1))
    return itertools.pairwise(cuts)
