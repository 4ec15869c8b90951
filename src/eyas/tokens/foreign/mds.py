"""MosaicML's MDS: an `index.json` a folder names shard files and their columns.

A shard file, little-endian: number of samples n (u32), where each begins and the last ends (n + 1
of u32), the writer's configuration, the samples. A sample: the size (u32) of each column that has
no fixed one, then the columns' bytes. A whole shard may be compressed.

Text comes from the column "text", else ids from "tokens" or "input_ids", else text from the only
str column. Columns of images, pickles and the like are passed over by their size, never decoded.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from eyas.recipe import EyasError, UsageError
from eyas.store import ObjectInfo

from .records import Piece, Place, Record, Records, Skip, batched, home, list_files

__all__ = ["array", "holds_text", "pieces", "read"]

_IDS = ("tokens", "input_ids")
_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation"}
_CODECS = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli", "snappy": "snappy"}
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_VALUE_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    32: "uint32",
    33: "int32",
    64: "uint64",
    65: "int64",
}
_NDARRAY = re.compile(r"ndarray(?::(u?int(?:8|16|32|64)))?(?::\d+(?:,\d+)*)?")

Array = npt.NDArray[Any]


def pieces(key: str, place: Place) -> list[Piece]:
    """Each shard file that an index names, once. Raises UsageError without an index or a column to
    take, EyasError naming an index that is broken or a file that is missing."""
    files = {info.key: info for info in list_files(key, place, ())}
    found: dict[str, Piece] = {}
    for index in (name for name in files if posixpath.basename(name) == "index.json"):
        for piece in _indexed(place, index, files):
            found.setdefault(piece.key, piece)
    if not found:
        raise UsageError(f"{key}: there is no index.json at {place.home}/{place.name}")
    return list(found.values())


def _indexed(place: Place, index: str, files: Mapping[str, ObjectInfo]) -> Iterator[Piece]:
    """The shards that one index names."""
    name = f"{place.home}/{index}"
    folder = posixpath.dirname(index)
    try:
        shards = json.loads(home(place.home).get(index))["shards"]
        for raw in shards:
            if (raw["format"], raw["version"]) != ("mds", 2):
                raise EyasError(
                    f"{name}: a shard has format {raw['format']} version {raw['version']}; legal "
                    "is mds version 2"
                )
            yield _shard(place, name, folder, raw, files)
    except (KeyError, TypeError, ValueError) as error:
        raise EyasError(f"{name} is not an index of MDS shards ({error!r})") from error


def _shard(
    place: Place, name: str, folder: str, raw: Mapping[str, Any], files: Mapping[str, ObjectInfo]
) -> Piece:
    stored = [raw[kind] for kind in ("zip_data", "raw_data") if raw[kind]]
    for about in stored:
        info = files.get(posixpath.normpath(posixpath.join(folder, about["basename"])))
        if info is not None:
            break
    else:
        raise EyasError(f"{name} names {raw['raw_data']['basename']}, which is not there")
    if info.size != about["bytes"]:
        raise EyasError(
            f"{place.home}/{info.key} has {info.size} bytes, {name} says {about['bytes']}"
        )
    codec = str(raw["compression"] or "").partition(":")[0] if about is raw["zip_data"] else ""
    if codec and codec not in _CODECS:
        raise EyasError(f'{name}: compression "{codec}" is unknown; legal are {sorted(_CODECS)}')
    parts = [part for part in info.key.split("/")[:-1] if part in _SPLITS]
    params = {
        "names": raw["column_names"],
        "encodings": raw["column_encodings"],
        "sizes": raw["column_sizes"],
        "column": _column(name, raw["column_names"], raw["column_encodings"]),
        "samples": raw["samples"],
        "codec": codec,
        "raw_bytes": raw["raw_data"]["bytes"],
        "hashes": about["hashes"],
        "split": _SPLITS[parts[-1]] if parts else "",
    }
    return Piece(info.key, info.size, info.etag, params)


def _column(name: str, names: Sequence[str], encodings: Sequence[str]) -> str:
    """The column that documents are taken from."""
    known = dict(zip(names, encodings, strict=True))
    if known.get("text") == "str":
        return "text"
    for column in _IDS:
        encoding = known.get(column, "")
        if encoding == "bytes" or _NDARRAY.fullmatch(encoding):
            return column
    texts = [column for column, encoding in known.items() if encoding == "str"]
    if len(texts) == 1:
        return texts[0]
    columns = ", ".join(f"{column} ({encoding})" for column, encoding in known.items())
    raise EyasError(
        f"{name}: no column to take documents from; legal are text (str), tokens or input_ids "
        f"(ndarray of integers, bytes), or a single str column; it has {columns}"
    )


def holds_text(piece: Piece) -> bool:
    """Whether its documents are text, not ids."""
    params = piece.params
    encodings = dict(zip(params["names"], params["encodings"], strict=True))
    return encodings[params["column"]] == "str"


def read(place: Place, piece: Piece, skip: Skip) -> Iterator[Records]:
    """The documents of one shard file. Raises EyasError for one that is damaged."""
    return batched(_records(f"{place.home}/{piece.key}", _content(place, piece), piece, skip), skip)


def _content(place: Place, piece: Piece) -> bytes:
    """The file's bytes, uncompressed; checked as far as the index has hashes of it."""
    name = f"{place.home}/{piece.key}"
    data = home(place.home).get(piece.key)
    for algorithm, expected in piece.params["hashes"].items():
        if _digest(algorithm, data) not in (None, expected):
            raise EyasError(f"{name} is damaged: its {algorithm} is not the one of the index")
    codec = _CODECS.get(piece.params["codec"])
    if codec is None:
        return data
    size = int(piece.params["raw_bytes"])
    try:
        if codec == "snappy":
            return bytes(pa.decompress(data, size, codec="snappy", asbytes=True))
        with pa.CompressedInputStream(io.BytesIO(data), codec) as stream:
            content: bytes = stream.read(size + 1)
    except (OSError, ValueError) as error:
        raise EyasError(f"{name} is damaged: {error}") from error
    return content


def _digest(algorithm: str, data: bytes) -> str | None:
    """None for an algorithm that is not known here."""
    if algorithm in xxhash.algorithms_available:
        return str(getattr(xxhash, algorithm)(data).hexdigest())
    if algorithm in hashlib.algorithms_guaranteed and not algorithm.startswith("shake"):
        return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    return None


def _records(name: str, data: bytes, piece: Piece, skip: Skip) -> Iterator[Record]:
    begins = _begins(name, data, piece.params["samples"])
    names = piece.params["names"]
    encodings = dict(zip(names, piece.params["encodings"], strict=True))
    column = piece.params["column"]
    about = [c for c in ("id", "url", "language") if encodings.get(c) == "str" and c != column]
    for row in range(len(begins) - 1):
        try:
            fields = _fields(data, begins[row], begins[row + 1], names, piece.params["sizes"])
            known = {c: fields[c].decode() for c in about}
            name_, url, language = (known.get(c, "") for c in ("id", "url", "language"))
            if encodings[column] == "str":
                yield Record(row, fields[column].decode(), None, name_, url, language)
            else:
                ids = array(encodings[column], fields[column])
                yield Record(row, "", ids, name_, url, language)
        except ValueError as error:
            skip(row, str(error))


def _begins(name: str, data: bytes, samples: int) -> list[int]:
    """Where samples begin, and the last ends."""
    size = 4 * (samples + 2)
    if len(data) >= size and int.from_bytes(data[:4], "little") == samples:
        begins = np.frombuffer(data, "<u4", samples + 1, 4).astype(np.int64)
        sound = (np.diff(begins) >= 0).all() and begins[0] >= size and begins[-1] == len(data)
        if sound:
            return [int(b) for b in begins]
    raise EyasError(f"{name} is not a sound MDS shard of {samples} samples")


def _fields(
    data: bytes, begin: int, end: int, names: Sequence[str], sizes: Sequence[int | None]
) -> dict[str, bytes]:
    """The bytes of each column of a sample. Raises ValueError if they are not the whole sample."""
    open_ = sum(1 for size in sizes if not size)
    at = begin + 4 * open_
    if at > end:
        raise ValueError("the sample is too short")
    found = iter(np.frombuffer(data, "<u4", open_, begin).tolist())
    fields = {}
    for name, size in zip(names, sizes, strict=True):
        length = size or next(found)
        fields[name] = data[at : min(at + length, end)]
        at += length
    if at != end:
        raise ValueError(f"its columns take {at - begin} bytes, the sample has {end - begin}")
    return fields


def array(encoding: str, data: bytes) -> Array:
    """The integers of an ndarray column, flat, by type and shape alone; bytes are int64, as
    MosaicML's own tools write them. Raises ValueError."""
    match = _NDARRAY.fullmatch(encoding)
    at = 0
    if match is None:
        dtype = "int64"
    elif match[1]:
        dtype = match[1]
    else:
        code, at = data[0] if data else 0, 1
        if code not in _VALUE_TYPES:
            raise ValueError(f"its array is of type {code}, which is no integer")
        dtype = _VALUE_TYPES[code]
    if match is not None and not encoding.rpartition(":")[2].replace(",", "").isdigit():
        axes, width = (data[at] >> 2, 1 << (data[at] & 3)) if len(data) > at else (0, 1)
        at += 1
        shape = np.frombuffer(data[at : at + axes * width], _SHAPE_TYPES[width.bit_length() - 1])
        at += axes * width
        expected: int | None = int(np.prod(shape.astype(np.int64)))
    else:
        expected = None
    values = np.frombuffer(data[at:], np.dtype(dtype).newbyteorder("<"))
    if expected is not None and len(values) != expected:
        raise ValueError(f"its array has {len(values)} values, its shape {expected}")
    return values
