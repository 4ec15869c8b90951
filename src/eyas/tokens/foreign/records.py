"""What every reader of foreign data takes and gives: files in a folder or bucket, and documents.

A source's URL names a file, a folder or the beginning of names in a folder; it is opened as a store
whose keys are those names. Its reader cuts the files into pieces, each the work of one process,
and reads a piece as batches of `Records`. Nothing is believed of a file that is not what was listed
(size and etag), and a record that cannot be read is told to `skip` with its place, never dropped in
silence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import UsageError
from eyas.store import ObjectInfo, Store, StoreError, open_store

__all__ = [
    "BATCH_BYTES",
    "PIECE_BYTES",
    "Piece",
    "Place",
    "Record",
    "Records",
    "Skip",
    "batched",
    "check_unchanged",
    "home",
    "list_files",
    "locate",
]

PIECE_BYTES = 256 * 2**20
BATCH_BYTES = 2**20

Array = npt.NDArray[Any]
Skip = Callable[[int, str], None]
"""Told the row of a record that cannot be read, and why."""


@dataclass(frozen=True)
class Place:
    """Where a source lies: the URL of a folder or bucket prefix, and the beginning of the names in
    it that belong to the source."""

    home: str
    name: str


@dataclass(frozen=True)
class Piece:
    """The work of one process: a file, or a part of it that `params` (JSON-able) tells."""

    key: str
    size: int
    etag: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One document: its text, or its ids; `row` counts in its file. `name`, `url` and `language`
    are the record's own, empty where it has none."""

    row: int
    text: str = ""
    ids: Array | None = None
    name: str = ""
    url: str = ""
    language: str = ""


@dataclass(frozen=True)
class Records:
    """Some documents in order: `texts`, or `ids` [tokens] of any integer type, cut at `offsets`
    [documents + 1]. `rows` count in the file. `names`, `urls`, `languages` and `splits` are empty
    where the source has none."""

    rows: Sequence[int]
    texts: Sequence[str] = ()
    ids: Array | None = None
    offsets: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    names: Sequence[str] = ()
    urls: Sequence[str] = ()
    languages: Sequence[str] = ()
    splits: Sequence[str] = ()


def locate(key: str, url: str) -> Place:
    """The folder and the name in it that a URL means. Raises UsageError, naming `key` of the
    recipe, for one that is neither s3:// nor a path."""
    if url.startswith("s3://"):
        bucket, _, path = url.removeprefix("s3://").partition("/")
        folder, _, name = path.rstrip("/").rpartition("/")
        return Place("/".join(part for part in (f"s3://{bucket}", folder) if part), name)
    if not url or "://" in url:
        raise UsageError(f'{key}: "{url}" is not a place; write s3://bucket/prefix or a path')
    path_ = Path(url).expanduser().absolute()
    return Place(str(path_.parent), path_.name)


@functools.cache
def home(url: str) -> Store:
    """The store of a folder or bucket, opened once a process."""
    return open_store(url)


def list_files(key: str, place: Place, endings: tuple[str, ...]) -> list[ObjectInfo]:
    """The files that have one of the endings (none given: all) and are the place itself, in it, or
    begin with its name. Raises UsageError, naming `key` of the recipe, if there is none."""
    found = [
        info
        for info in home(place.home).list(place.name)
        if (not endings or info.key.lower().endswith(endings)) and _belongs(info.key, place.name)
    ]
    if not found:
        where = f"{place.home}/{place.name}".rstrip("/")
        kinds = f"{' or '.join(endings)} file".strip()
        raise UsageError(f"{key}: there is no {kinds} at {where}")
    return found


def _belongs(key: str, name: str) -> bool:
    """A folder `data` does not hold what is in `data2`, a prefix `text_` holds `text_0.bin`."""
    rest = key[len(name) :]
    return not name or rest.startswith("/") or "/" not in rest


def check_unchanged(place: Place, piece: Piece) -> None:
    """Raises StoreError if a file is not what was listed."""
    found = home(place.home).stat(piece.key)
    if found is None or (found.size, found.etag) != (piece.size, piece.etag):
        raise StoreError(f"{place.home}/{piece.key} changed while it was used; run it again")


def batched(records: Iterable[Record], skip: Skip) -> Iterator[Records]:
    """The same documents in groups of about `BATCH_BYTES`, without those that are empty."""
    held: list[Record] = []
    size = 0
    for record in records:
        content = len(record.text) if record.ids is None else record.ids.nbytes
        if not content:
            skip(record.row, "it is empty")
            continue
        held.append(record)
        size += content
        if size >= BATCH_BYTES:
            yield _together(held)
            held, size = [], 0
    if held:
        yield _together(held)


def _together(records: Sequence[Record]) -> Records:
    ids = [r.ids for r in records if r.ids is not None]
    lengths = [len(part) for part in ids]
    return Records(
        rows=[r.row for r in records],
        texts=[] if ids else [r.text for r in records],
        ids=np.concatenate(ids, dtype=np.int64, casting="unsafe") if ids else None,
        offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64)))),
        names=[r.name for r in records],
        urls=[r.url for r in records],
        languages=[r.language for r in records],
    )
