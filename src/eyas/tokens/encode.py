"""Stage `tokens.encode`: one corpus object in, its token shard out (format: `token_objects.py`).

Share-nothing. Documents are shuffled here, by the hash of their id, and written split by split;
text is held as one corpus object, tokens only a block at a time. The same object and tokenizer
give the same bytes, so a killed shard that runs again overwrites what it left with the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from eyas.corpus import read_documents
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    crc32c,
    put_object,
    put_object_chunks,
    read_object,
)
from eyas.work import Shard, ShardResult, Stage

from .token_objects import (
    BLOCK_RECORD,
    DOCUMENTS_SCHEMA,
    SPLITS,
    block_tokens,
    object_stem,
    token_dtype,
)
from .tokenizer import Tokenizer

__all__ = ["run_shard"]

_BATCH_CHARACTERS = 2**20
_COLUMNS = ["id", "url", "language", "split", "text"]
_TYPES = [pa.string(), pa.string(), pa.string(), pa.string(), pa.large_string()]
_SCHEMA = pa.schema(list(zip(_COLUMNS, _TYPES, strict=True)))

Array = npt.NDArray[Any]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Encode `shard.inputs` = (corpus object, tokenizer.json). `params`: `identity` of the tokens,
    `number` of the corpus object; setting: `block_bytes`.

    Counters: `documents_<split>`, `tokens_<split>`, `bytes`. Facts: `highest_id` (-1 without any
    token), `languages`: tokens by split and language.
    """
    source, reference = shard.inputs
    tokenizer = Tokenizer(read_object(store, reference))
    dtype = token_dtype(tokenizer.vocab_size)
    block = block_tokens(dtype, stage.settings["block_bytes"])
    table = _shuffled(store, source)
    objects: list[ObjectRef] = []
    counters: dict[str, float] = {"bytes": 0}
    facts: dict[str, Any] = {"highest_id": -1, "languages": {}}
    for split in SPLITS:
        rows = table.filter(pc.equal(table.column("split"), split))
        counters[f"documents_{split}"] = rows.num_rows
        if rows.num_rows:
            stem = object_stem(shard.params["identity"], split, shard.params["number"])
            tally = _Tally(tokenizer.end_of_text, dtype, block)
            objects += _write(store, stem, tokenizer, rows, source.key, tally)
            facts["languages"][split] = _by_language(rows, tally.lengths)
            facts["highest_id"] = max(facts["highest_id"], tally.highest)
            counters["bytes"] += tally.bytes
        counters[f"tokens_{split}"] = sum(facts["languages"].get(split, {}).values())
    return ShardResult(tuple(objects), counters, facts)


@dataclass
class _Tally:
    """What is learned while a split streams by."""

    end_of_text: int
    dtype: np.dtype[Any]
    block_tokens: int
    lengths: list[int] = field(default_factory=list)
    records: list[tuple[int, int, int]] = field(default_factory=list)
    highest: int = -1
    bytes: int = 0

    def watch(self, block: Array, before: Array | None) -> None:
        """Record one block, given the one before it."""
        if before is None:
            previous, documents = self.end_of_text, 0
        else:
            previous = int(before[-1])
            documents = self.records[-1][2] + int(np.count_nonzero(before == self.end_of_text))
        self.records.append((crc32c(block.tobytes()), previous, documents))
        self.highest = max(self.highest, int(block.max()))


def _shuffled(store: Store, source: ObjectRef) -> pa.Table:
    """The documents of one corpus object by ascending hash of their id."""
    part = Manifest("corpus", "", objects=(source,))
    tables = read_documents(store, part, columns=_COLUMNS)
    table = pa.concat_tables([_SCHEMA.empty_table(), *(t.cast(_SCHEMA) for t in tables)])
    names = table.column("id").to_pylist()
    hashes = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], np.uint64)
    return table.take(pa.array(np.argsort(hashes, kind="stable")))


def _write(
    store: Store, stem: str, tokenizer: Tokenizer, rows: pa.Table, source: str, tally: _Tally
) -> list[ObjectRef]:
    """The three objects of one split."""
    documents = _encoded(tokenizer, rows.column("text"), tally)
    chunks = _watched(_blocks(documents, tally.block_tokens), tally)
    tokens = put_object_chunks(store, f"{stem}.tok", chunks)
    tokens = ObjectRef(tokens.key, tokens.size, tokens.crc32c, tokens.size // tally.dtype.itemsize)
    records = np.array(tally.records, BLOCK_RECORD).tobytes()
    return [
        tokens,
        put_object(store, f"{stem}.blocks", records, rows=len(tally.records)),
        _write_documents(store, f"{stem}.docs.parquet", rows, source, tally.lengths),
    ]


def _encoded(tokenizer: Tokenizer, texts: pa.ChunkedArray, tally: _Tally) -> Iterator[Array]:
    """Each document's tokens, end of text included."""
    end = np.array([tokenizer.end_of_text], tally.dtype)
    for batch in _batches(value.as_py() for value in texts):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            tally.lengths.append(len(ids) + 1)
            tally.bytes += len(text.encode())
            yield np.concatenate((np.array(ids, tally.dtype), end))


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in groups of about a million characters."""
    batch: list[str] = []
    held = 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= _BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _blocks(documents: Iterable[Array], size: int) -> Iterator[Array]:
    """The same tokens cut anew: `size` each, the last fewer."""
    held: list[Array] = []
    count = 0
    for document in documents:
        held.append(document)
        count += len(document)
        if count >= size:
            joined = np.concatenate(held)
            whole = count // size * size
            yield from (joined[i : i + size] for i in range(0, whole, size))
            held, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(held)


def _watched(blocks: Iterable[Array], tally: _Tally) -> Iterator[bytes]:
    before = None
    for block in blocks:
        tally.watch(block, before)
        before = block
        yield block.tobytes()


def _write_documents(
    store: Store, key: str, rows: pa.Table, source: str, lengths: list[int]
) -> ObjectRef:
    ends = np.cumsum(np.array(lengths, np.int64))
    columns = {
        "document": rows.column("id"),
        "url": rows.column("url"),
        "language": rows.column("language"),
        "shard": pa.array([source] * rows.num_rows),
        "start": pa.array(ends - np.array(lengths)),
        "end": pa.array(ends),
    }
    arrays = [columns[f.name].cast(f.type) for f in DOCUMENTS_SCHEMA]
    table = pa.Table.from_arrays(arrays, schema=DOCUMENTS_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=65_536)
    return put_object(store, key, sink.getvalue().to_pybytes(), rows=rows.num_rows)


def _by_language(rows: pa.Table, lengths: list[int]) -> dict[str, int]:
    """Tokens of each language."""
    names = np.array(rows.column("language").to_pylist(), object)
    counts = np.array(lengths, np.int64)
    return {name: int(counts[names == name].sum()) for name in sorted(set(names))}
