"""Rows of a Parquet file as they come, with what is damaged counted by row group.

Row groups are read one after the other and in small batches, so that a file of any size costs
little memory. The one thing that is always in memory whole is a data page, and a page may hold one
huge value; the page headers (Thrift, compact protocol) say so beforehand, and a row group with such
a page is given up as a whole. Columns come as bytes: a damaged text is not always UTF-8.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Lost", "NoColumn", "Row", "parquet_rows"]

_PAGE_BYTES = 128 << 20
_LOOKED_AT = 64 << 20  # column chunks up to this size hold no page that is too large
_BATCH_BYTES = 256 << 20
_BATCH_ROWS = 256
_BUFFER = 1 << 16
_HEADER_BYTES = 512
_LONGEST_HEADER = 16 << 20
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)


@dataclass(frozen=True)
class Row:
    """Row `number` of the file, from 0; the values by column, None where there is none."""

    number: int
    values: dict[str, bytes | None]


@dataclass(frozen=True)
class Lost:
    """`rows` rows from `number` on that cannot be read: `reason` is "broken" or "too_large"."""

    number: int
    rows: int
    reason: str
    detail: str


class NoColumn(ValueError):
    """The file has none of the columns that could hold the text."""


def parquet_rows(
    stream: IO[bytes], text: Sequence[str], others: Sequence[str]
) -> Iterator[Row | Lost]:
    """Every row, with the first of the columns `text` that the file has, and those of `others`;
    columns of lists or structs are as if they were not there.

    A file whose footer cannot be read is one Lost. Raises NoColumn.
    """
    try:
        source = pa.PythonFile(stream, mode="r")
        file = pq.ParquetFile(
            source, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        )
        schema, groups = file.schema_arrow, file.num_row_groups
    except _FAULTS as error:
        yield Lost(0, 0, "broken", _said(error))
        return
    flat = {field.name for field in schema if not pa.types.is_nested(field.type)}
    found = [name for name in text if name in flat][:1]
    if not found:
        raise NoColumn(f"no column {' or '.join(map(repr, text))} in {', '.join(schema.names)}")
    columns = found + [name for name in others if name in flat]
    first = 0
    for group in range(groups):
        rows = file.metadata.row_group(group).num_rows
        yield from _group_rows(file, stream, group, columns, first, rows)
        first += rows


def _group_rows(
    file: pq.ParquetFile,
    stream: IO[bytes],
    group: int,
    columns: Sequence[str],
    first: int,
    rows: int,
) -> Iterator[Row | Lost]:
    done, where = 0, f"row group {group}"
    try:
        page = _largest_page(file.metadata.row_group(group), stream, columns)
        if page > _PAGE_BYTES:
            yield Lost(first, rows, "too_large", f"{where} has a page of {page} bytes")
            return
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, page)))
        batches = file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
        for batch in batches:
            values = {name: _bytes(batch.column(name)) for name in columns}
            for n in range(min(batch.num_rows, rows - done)):
                yield Row(first + done + n, {name: values[name][n] for name in columns})
            done += batch.num_rows
    except _FAULTS as error:
        yield Lost(first + done, rows - done, "broken", f"{where}: {_said(error)}")
        return
    if done != rows:
        detail = f"{where} has {done} of {rows} rows"
        yield Lost(first + min(done, rows), abs(rows - done), "broken", detail)


def _said(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _bytes(column: pa.Array) -> list[bytes | None]:
    """The values as bytes; numbers and times as text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values: list[bytes | None] = column.to_pylist()
        return values
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        column = column.cast(pa.large_string())
    small = pa.types.is_string(column.type)
    found: list[bytes | None] = column.cast(pa.binary() if small else pa.large_binary()).to_pylist()
    return found


def _largest_page(group: Any, stream: IO[bytes], columns: Sequence[str]) -> int:
    """Bytes, uncompressed, of the largest page of the columns; those of a small chunk are not
    looked at. Raises ValueError for damaged headers."""
    largest = 0
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema not in columns:
            continue
        size = chunk.total_uncompressed_size
        if size > _LOOKED_AT:
            starts = [chunk.data_page_offset]
            if chunk.has_dictionary_page:
                starts.append(chunk.dictionary_page_offset)
            size = _largest_between(stream, min(starts), chunk.total_compressed_size)
        largest = max(largest, size)
    return largest


def _largest_between(stream: IO[bytes], start: int, length: int) -> int:
    largest, position = 0, start
    while position < start + length:
        header, size = _page_header(stream, position)
        largest = max(largest, header.get(2, 0))
        position += size + header.get(3, 0)
    return largest


def _page_header(stream: IO[bytes], position: int) -> tuple[dict[int, int], int]:
    """The numbers of a page header by field, and its length: field 2 is the page's size
    uncompressed, 3 compressed."""
    size = _HEADER_BYTES
    while size <= _LONGEST_HEADER:
        stream.seek(position)
        data = io.BytesIO(stream.read(size))
        try:
            fields = _struct(data)
        except EOFError:
            size *= 8
            continue
        if fields.get(2, -1) < 0 or fields.get(3, -1) < 0:
            break
        return fields, data.tell()
    raise ValueError("a damaged page header")


def _struct(data: io.BytesIO, depth: int = 0) -> dict[int, int]:
    """The integers of a Thrift struct by field; everything else is skipped."""
    found: dict[int, int] = {}
    field = 0
    while (head := _byte(data)) & 15:
        field = field + (head >> 4) if head >> 4 else _signed(data)
        kind = head & 15
        if kind in (4, 5, 6):
            found[field] = _signed(data)
        elif kind > 2:  # 1 and 2 are true and false, in the head itself
            _skip(data, kind, depth + 1)
    return found


def _skip(data: io.BytesIO, kind: int, depth: int) -> None:
    if depth > 8:
        raise ValueError("a damaged page header")
    if kind in (1, 2, 3):
        _byte(data)
    elif kind in (4, 5, 6):
        _number(data)
    elif kind == 7:
        _over(data, 8)
    elif kind == 8:
        _over(data, _number(data))
    elif kind in (9, 10):
        head = _byte(data)
        for _ in range(_number(data) if head >> 4 == 15 else head >> 4):
            _skip(data, head & 15, depth + 1)
    elif kind == 12:
        _struct(data, depth)
    else:
        raise ValueError("a damaged page header")


def _over(data: io.BytesIO, size: int) -> None:
    if data.tell() + size > len(data.getbuffer()):
        raise EOFError
    data.seek(size, io.SEEK_CUR)


def _byte(data: io.BytesIO) -> int:
    if not (found := data.read(1)):
        raise EOFError
    return found[0]


def _number(data: io.BytesIO) -> int:
    value = shift = 0
    while (byte := _byte(data)) & 128:
        value |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise ValueError("a damaged page header")
    return value | byte << shift


def _signed(data: io.BytesIO) -> int:
    value = _number(data)
    return value >> 1 ^ -(value & 1)
