"""What the de-duplication stages hand each other, as plain arrays of little-endian records.

- A band file (one an input shard): every (band hash, document id), sorted, with an index of 256
  buckets by the hash's first byte and a checksum each, so that any number of match shards can read
  just their range of hashes: how many there are is decided afterwards, and changes no band file.
- A pair file (one a match shard): pairs of documents that share a band hash, each with the number
  of its input shard.
- A cluster file (one an input shard with duplicates): document id and id of its cluster, sorted.
- A removed file (one an input shard with removals): document id and number of the record, sorted.

An id is two 64-bit halves; its order is that of its 32 hex digits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from eyas.store import Corrupt, ObjectRef, Store, crc32c, put_object, read_object

__all__ = [
    "BAND",
    "BUCKETS",
    "CLUSTER",
    "PAIR",
    "REMOVED",
    "Rows",
    "concatenate",
    "first_of_each",
    "id_text",
    "put_bands",
    "put_rows",
    "read_bands",
    "read_rows",
    "sort_order",
    "split_id",
]

BUCKETS = 256
BAND = np.dtype([("hash", "<u8"), ("high", "<u8"), ("low", "<u8")])
PAIR = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("shard", "<u4"),
        ("other_high", "<u8"),
        ("other_low", "<u8"),
        ("other_shard", "<u4"),
    ]
)
CLUSTER = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("cluster_high", "<u8"), ("cluster_low", "<u8")]
)
REMOVED = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])
_INDEX = np.dtype([("rows", "<u8"), ("crc32c", "<u4")])
_MAGIC = b"EYASBND1"
_HEAD = len(_MAGIC) + BUCKETS * _INDEX.itemsize + 4
Rows = npt.NDArray[np.void]


def split_id(text: str) -> tuple[int, int]:
    """32 hex digits to two 64-bit halves."""
    return int(text[:16], 16), int(text[16:], 16)


def id_text(high: int, low: int) -> str:
    """The inverse of `split_id`."""
    return f"{high:016x}{low:016x}"


def put_rows(store: Store, key: str, rows: Rows) -> ObjectRef:
    """An array of records as an object."""
    return put_object(store, key, rows.tobytes(), len(rows))


def read_rows(store: Store, ref: ObjectRef, dtype: np.dtype[np.void]) -> Rows:
    """The inverse, verified. Raises Corrupt."""
    return np.frombuffer(read_object(store, ref), dtype=dtype)


def put_bands(store: Store, key: str, rows: Rows) -> ObjectRef:
    """Band rows, sorted here, behind their index."""
    rows = rows[sort_order(rows, "hash", "high", "low")]
    starts = np.arange(BUCKETS, dtype=np.uint64) << np.uint64(56)
    bounds = np.append(np.searchsorted(rows["hash"], starts), len(rows))
    index = np.zeros(BUCKETS, dtype=_INDEX)
    for bucket in range(BUCKETS):
        part = rows[bounds[bucket] : bounds[bucket + 1]]
        index[bucket] = (len(part), crc32c(part.tobytes()))
    head = _MAGIC + index.tobytes()
    head += crc32c(head).to_bytes(4, "little")
    return put_object(store, key, head + rows.tobytes(), len(rows))


def read_bands(store: Store, ref: ObjectRef, first: int, last: int) -> Rows:
    """The rows of buckets first to last - 1, verified. Raises Corrupt."""
    head = store.get_range(ref.key, 0, _HEAD)
    if head[:8] != _MAGIC or crc32c(head[:-4]) != int.from_bytes(head[-4:], "little"):
        raise Corrupt(f"{store.url}: {ref.key} is damaged (its index); run `eyas verify`")
    index = np.frombuffer(head[len(_MAGIC) : -4], dtype=_INDEX)
    starts = np.concatenate(([0], np.cumsum(index["rows"]))).astype(np.int64)
    length = int(starts[last] - starts[first]) * BAND.itemsize
    if not length:
        return np.zeros(0, dtype=BAND)
    data = store.get_range(ref.key, _HEAD + int(starts[first]) * BAND.itemsize, length)
    rows = np.frombuffer(data, dtype=BAND)
    for bucket in range(first, last):
        part = rows[starts[bucket] - starts[first] : starts[bucket + 1] - starts[first]]
        if crc32c(part.tobytes()) != index["crc32c"][bucket]:
            raise Corrupt(f"{store.url}: {ref.key} is damaged (bucket {bucket}); run `eyas verify`")
    return rows


def sort_order(rows: Rows, *names: str) -> npt.NDArray[np.int64]:
    """The order of rows by these fields, the first deciding first. (numpy sorts records themselves
    a hundred times slower.)"""
    return np.lexsort([rows[name] for name in reversed(names)])


def first_of_each(rows: Rows, *names: str) -> npt.NDArray[np.bool_]:
    """Of sorted rows, where any of these fields differs from the row before."""
    new = np.ones(len(rows), dtype=bool)
    new[1:] = False
    for name in names:
        new[1:] |= rows[name][1:] != rows[name][:-1]
    return new


def concatenate(parts: Iterable[Rows], dtype: np.dtype[np.void]) -> Rows:
    """All rows of the parts in order."""
    return np.concatenate([np.zeros(0, dtype=dtype), *parts])
