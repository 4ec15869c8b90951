"""Data sets as Hugging Face keeps them: Parquet files, and JSONL, plain or with gzip or zstd.

Text comes from the column "text", else from the only one of the other usual names; "id", "url" and
"language" are taken where they are strings. A large Parquet file is cut by its row groups; a JSONL
file is one piece, read as a stream.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from eyas.recipe import EyasError
from eyas.store import ObjectInfo, ObjectReader

from .records import PIECE_BYTES, Piece, Place, Record, Records, Skip, batched, home, list_files

__all__ = ["pieces", "read"]

_PARQUET = ".parquet"
_JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_OTHER_TEXTS = ("content", "document", "body", "raw_content", "raw_text", "article")
_ABOUT = ("id", "url", "language")
_ROWS = 256
_LINE_BYTES = 256 * 2**20
_BUFFER_BYTES = 2**20


def pieces(key: str, place: Place) -> list[Piece]:
    """Each file, a Parquet file of more than `PIECE_BYTES` in runs of row groups of about so many
    bytes uncompressed. Raises UsageError without files, EyasError for a broken footer."""
    files = list_files(key, place, (_PARQUET, *_JSON_LINES))
    return [piece for file in files for piece in _cut(place, file)]


def _cut(place: Place, file: ObjectInfo) -> Iterator[Piece]:
    if file.size <= PIECE_BYTES or not file.key.lower().endswith(_PARQUET):
        yield Piece(file.key, file.size, file.etag)
        return
    about = _parquet(place, file.key, file.size).metadata
    first = size = 0
    for group in range(about.num_row_groups):
        size += about.row_group(group).total_byte_size
        if size >= PIECE_BYTES or group == about.num_row_groups - 1:
            yield Piece(file.key, file.size, file.etag, {"groups": [first, group + 1]})
            first, size = group + 1, 0


def read(place: Place, piece: Piece, skip: Skip) -> Iterator[Records]:
    """The documents of a piece; rows count from 0, lines of JSONL from 1. Raises EyasError for a
    file that cannot be read or has no text column."""
    if piece.key.lower().endswith(_PARQUET):
        return batched(_rows(place, piece, skip), skip)
    return batched(_lines(place, piece, skip), skip)


def _parquet(place: Place, key: str, size: int) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(ObjectReader(home(place.home), key, size), pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise EyasError(f"{place.home}/{key} is not a sound Parquet file: {error}") from error


def _rows(place: Place, piece: Piece, skip: Skip) -> Iterator[Record]:
    name = f"{place.home}/{piece.key}"
    file = _parquet(place, piece.key, piece.size)
    strings = [f.name for f in file.schema_arrow if _is_string(f.type)]
    column = _text_column(name, strings, file.schema_arrow.names)
    columns = [column, *(c for c in _ABOUT if c in strings)]
    first, stop = piece.params.get("groups", [0, file.num_row_groups])
    row = sum(file.metadata.row_group(g).num_rows for g in range(first))
    try:
        for batch in file.iter_batches(_ROWS, list(range(first, stop)), columns, use_threads=False):
            values = [_strings(batch.column(c)) for c in columns]
            for found in zip(*values, strict=True):
                known = dict(zip(columns, found, strict=True))
                yield from _record(row, known[column], known, skip)
                row += 1
    except (pa.ArrowException, OSError) as error:
        raise EyasError(f"{name} is damaged after row {row}: {error}") from error


def _is_string(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _strings(column: pa.Array) -> list[Any]:
    """Values as strings; one that is not UTF-8 as bytes."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return [_string(value) for value in column]


def _string(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()


def _record(row: int, text: Any, known: dict[str, Any], skip: Skip) -> Iterator[Record]:
    """The record, or a word about why there is none."""
    if not isinstance(text, str):
        skip(row, "its text is not UTF-8" if isinstance(text, bytes) else "it has no text")
        return
    about = [known[c] if isinstance(known.get(c), str) else "" for c in _ABOUT]
    try:
        "".join([text, *about]).encode()
    except UnicodeEncodeError:
        skip(row, "it has half of a surrogate pair, which is not Unicode text")
        return
    yield Record(row, text, None, *about)


def _text_column(name: str, strings: Sequence[str], columns: Sequence[str]) -> str:
    if "text" in strings:
        return "text"
    others = [c for c in _OTHER_TEXTS if c in strings]
    if len(others) == 1:
        return others[0]
    raise EyasError(
        f'{name}: no column to take text from; legal is "text", or one of '
        f"{', '.join(_OTHER_TEXTS)}; it has {', '.join(columns)}"
    )


def _lines(place: Place, piece: Piece, skip: Skip) -> Iterator[Record]:
    name = f"{place.home}/{piece.key}"
    column = ""
    for number, line in enumerate(_stream_lines(name, _open(place, piece)), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            skip(number, str(error))
            continue
        if not isinstance(record, dict):
            skip(number, "it is not a JSON object")
            continue
        if not column:
            strings = [c for c, value in record.items() if value is None or isinstance(value, str)]
            column = _text_column(f"{name}, line {number}", strings, list(record))
        yield from _record(number, record.get(column), record, skip)


def _open(place: Place, piece: Piece) -> IO[bytes]:
    """The file, uncompressed."""
    reader = ObjectReader(home(place.home), piece.key, piece.size)
    stream: IO[bytes] = io.BufferedReader(reader, _BUFFER_BYTES)
    codec = {".gz": "gzip", ".zst": "zstd"}.get(piece.key[piece.key.rindex(".") :].lower())
    if codec is None:
        return stream
    inflated = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec)
    return io.BufferedReader(cast(io.RawIOBase, inflated), _BUFFER_BYTES)


def _stream_lines(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    """Raises EyasError where the file breaks off or is damaged."""
    number = 0
    try:
        while line := stream.readline(_LINE_BYTES):
            number += 1
            if len(line) == _LINE_BYTES:
                raise EyasError(f"{name}: line {number} has more than {_LINE_BYTES} bytes")
            yield line
    except (OSError, EOFError) as error:
        raise EyasError(f"{name} is damaged after line {number}: {error}") from error
