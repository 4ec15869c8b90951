"""The tables of the corpus: texts (pages as extracted), candidates (what the filters keep),
documents (what de-duplication keeps), rejects with the text that was refused, and the values that
were measured.

Parquet, zstd, with every setting that shapes the bytes fixed, and row groups cut by content: the
same rows give the same file. Writing and reading keep one row group in memory, however large the
object. Pages carry checksums, so that a scan of a few columns is verified without reading the rest.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from eyas.recipe import UsageError
from eyas.store import (
    Corrupt,
    Manifest,
    ObjectReader,
    ObjectRef,
    Store,
    put_object_chunks,
    read_object,
)

__all__ = [
    "CANDIDATES",
    "DOCUMENTS",
    "REJECTS",
    "TEXTS",
    "TableWriter",
    "document_id",
    "read_columns",
    "read_documents",
    "read_tables",
    "values_schema",
]

_TEXT_FIELDS = [
    ("id", pa.string()),
    ("url", pa.string()),
    ("text", pa.large_string()),
    ("language", pa.string()),
    ("language_score", pa.float32()),
    ("source", pa.string()),
    ("offset", pa.int64()),
    ("date", pa.string()),
]
_COUNTS = [("words", pa.int32()), ("bytes", pa.int32())]
TEXTS = pa.schema(_TEXT_FIELDS)
CANDIDATES = pa.schema([*_TEXT_FIELDS, *_COUNTS])
DOCUMENTS = pa.schema([*CANDIDATES, ("cluster", pa.string()), ("split", pa.string())])
REJECTS = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("language", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("value", pa.float64()),
        ("source", pa.string()),
        ("offset", pa.int64()),
        ("date", pa.string()),
        ("detail", pa.string()),
        ("text", pa.large_string()),
    ]
)

_DICTIONARY = frozenset({"language", "source", "stage", "reason", "detail", "split"})
_GROUP_ROWS = 4096
_GROUP_CHARACTERS = 16 << 20
_CHUNK = 4 << 20
_IN_MEMORY = 32 << 20


def values_schema(names: Iterable[str]) -> pa.Schema:
    """Of the measured values: id, language, and one column a value, `step.measure`. A document
    that was dropped before a value was measured has null there."""
    fields = [("id", pa.string()), ("language", pa.string())]
    return pa.schema([*fields, *((name, pa.float64()) for name in names)])


def document_id(source: str, offset: int) -> str:
    """32 hex digits that name a page for good: XXH3-128 of `<source key>#<offset>`."""
    return xxhash.xxh3_128_hexdigest(f"{source}#{offset}".encode("utf-8", "surrogateescape"))


class TableWriter:
    """Rows in, one Parquet object out; a context manager. Nothing is written without rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[Sequence[Any]] = []
        self._characters = 0
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self.count = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer:
            self._writer.close()
        if self._file:
            self._file.close()

    def append(self, *row: Any) -> None:
        """One row, in the order of the schema."""
        self._rows.append(row)
        self.count += 1
        self._characters += sum(len(value) for value in row if isinstance(value, str))
        if len(self._rows) == _GROUP_ROWS or self._characters >= _GROUP_CHARACTERS:
            self._flush()

    def finish(self, store: Store, key: str) -> tuple[ObjectRef, ...]:
        """Write the object; empty if there were no rows. A key that ends in a slash is a folder,
        in which the object is named by its content: what comes out the same is then the same object
        for the stages that read it, whatever it was made with."""
        self._flush()
        if self._writer is None or self._file is None:
            return ()
        self._writer.close()
        self._writer = None
        if key.endswith("/"):
            key = f"{key}{_digest(self._file)}.parquet"
        self._file.seek(0)
        return (put_object_chunks(store, key, _chunks(self._file), self.count),)

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression="zstd",
                compression_level=3,
                version="2.6",
                use_dictionary=[n for n in self._schema.names if n in _DICTIONARY],
                write_statistics=[n for n in self._schema.names if n != "text"],
                write_page_checksum=True,
            )
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=len(self._rows))
        self._rows, self._characters = [], 0


def read_tables(
    store: Store, ref: ObjectRef, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """One object's rows, a row group at a time, the whole object verified. Raises Corrupt."""
    with _whole(store, ref) as stream:
        yield from _groups(_opened(stream), columns)


def read_columns(store: Store, ref: ObjectRef, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of one object, a row group at a time, reading little more than those: for scans
    that leave the texts out. Each page is verified. Raises Corrupt."""
    stream = io.BufferedReader(ObjectReader(store, ref.key, ref.size, block=1 << 18))
    try:
        yield from _groups(_opened(stream, page_checksum_verification=True), columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise Corrupt(f"{store.url}: {ref.key} is damaged ({error}); run `eyas verify`") from error


def _opened(stream: IO[bytes], **keys: Any) -> pq.ParquetFile:
    """Read in this thread alone: `pre_buffer` would have Arrow's threads drop Python's buffers, and
    one that does so while the interpreter ends aborts a process whose work is done."""
    return pq.ParquetFile(stream, pre_buffer=False, **keys)


def _groups(file: pq.ParquetFile, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    for group in range(file.num_row_groups):
        yield file.read_row_group(group, columns=columns, use_threads=False)


@contextmanager
def _whole(store: Store, ref: ObjectRef) -> Iterator[IO[bytes]]:
    """A small object in memory, a large one in a temporary file; verified either way."""
    if ref.size <= _IN_MEMORY:
        yield io.BytesIO(read_object(store, ref))
        return
    with tempfile.TemporaryFile() as copy:
        source = ObjectReader(store, ref.key, ref.size, block=_CHUNK, crc32c=ref.crc32c)
        while chunk := source.read(_CHUNK):
            copy.write(chunk)
        copy.seek(0)
        yield copy


def read_documents(
    store: Store,
    manifest: Manifest,
    split: str | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """The documents of a corpus manifest in its order, verified; `split` is "train" or
    "validation".

    Tables have the documents' columns, or those named. Raises Corrupt for a damaged object,
    UsageError for an unknown split or column.
    """
    wanted = list(columns) if columns is not None else list(DOCUMENTS.names)
    unknown = [c for c in wanted if c not in DOCUMENTS.names]
    if unknown:
        raise UsageError(f"documents have no column {unknown[0]}; legal are {DOCUMENTS.names}")
    if split not in (None, "train", "validation"):
        raise UsageError(f'there is no split "{split}"; legal are train and validation')
    needed = wanted if split is None or "split" in wanted else [*wanted, "split"]
    for ref in manifest.under("corpus/documents/"):
        for table in read_tables(store, ref, needed):
            if split is not None:
                table = table.filter(pc.equal(table["split"], split))
            if table.num_rows:
                yield table.select(wanted)


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    value = xxhash.xxh3_128()
    for chunk in _chunks(file):
        value.update(chunk)
    return value.hexdigest()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
