"""Everything that token shards and their data plan promise, read and compared.

Sizes and checksums, as `eyas verify` compares them, and what they cannot tell: that each block's
own checksum, the token before it and its documents are those of the tokens; that the document
tables cut the tokens where an end of text stands and nowhere else; that the counts of the manifest
are the sums; that every id is in the vocabulary of the tokenizer that the manifest names; and that
the plan is about tokens that are there. Objects are read one after another, a block at a time.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from eyas.recipe import EyasError
from eyas.store import (
    Manifest,
    NotFound,
    ObjectRef,
    Store,
    StoreError,
    crc32c,
    read_manifest,
    read_object,
)

from .data_plan import DataPlan, read_data_plan
from .plan_sources import plan_tokens
from .token_objects import BLOCK_RECORD, SPLITS, TokenObject, token_objects
from .tokenizer import load_tokenizer

__all__ = ["TokensReport", "verify_tokens"]

_KINDS = ("documents", "tokens")
_MOST = 5  # problems of one kind that are named in one object
Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokensReport:
    """What was read of this store. Each problem names the object, the block or document, and what
    is wrong with it."""

    objects: int
    bytes: int
    documents: int
    tokens: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass
class _Walk:
    """What has been seen so far."""

    store: Store
    manifest: Manifest
    advance: Callable[[int], object]
    objects: int = 0
    bytes: int = 0
    highest: int = -1
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.manifest.facts["dtype"]).newbyteorder("<")

    @property
    def end_of_text(self) -> int:
        return int(self.manifest.facts["end_of_text"])

    def done(self, size: int) -> None:
        self.bytes += size
        self.advance(size)


def verify_tokens(store: Store, advance: Callable[[int], object] = lambda _: None) -> TokensReport:
    """Read the current token shards of a store, and what its data plan is about; `advance` is
    called with the bytes read. Token shards of another store are verified there: here only that
    they are the ones of the plan.

    Raises EyasError if there are neither tokens nor a plan, StoreError if the store cannot be read.
    """
    manifest = read_manifest(store, "tokens")
    planned = next(iter(store.list("data/plan-")), None) is not None
    if manifest is None and not planned:
        raise EyasError(f"{store.url} holds no tokens; make them with `eyas tokenize RECIPE`")
    problems: list[str] = []
    walk = None
    if manifest is not None:
        walk = _Walk(store, manifest, advance)
        problems += _tokenizer_problems(walk)
        problems += _shard_problems(walk)
        problems += _count_problems(walk)
    if planned:
        problems += _plan_problems(store)
    if walk is None:
        return TokensReport(0, 0, 0, 0, tuple(problems))
    totals = {kind: sum(n for key, n in walk.counts.items() if key[2] == kind) for kind in _KINDS}
    return TokensReport(
        walk.objects, walk.bytes, totals["documents"], totals["tokens"], tuple(problems)
    )


def _tokenizer_problems(walk: _Walk) -> Iterator[str]:
    facts = walk.manifest.facts
    try:
        tokenizer = load_tokenizer(walk.store, walk.manifest)
    except EyasError as error:
        yield f"the tokenizer of the tokens cannot be read: {error}"
        return
    found = {
        "tokenizer": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
    }
    for name, value in found.items():
        if facts[name] != value:
            yield f"the manifest says {name} {facts[name]}, the tokenizer.json has {value}"


def _shard_problems(walk: _Walk) -> Iterator[str]:
    """Of every object that the manifest names."""
    known: set[str] = set()
    for source in walk.manifest.facts["sources"]:
        for split in SPLITS:
            for shard in token_objects(walk.manifest, source, split):
                known |= {shard.tokens.key, shard.blocks.key, shard.documents.key}
                walk.counts[source, split, "tokens"] += shard.tokens.rows
                walk.counts[source, split, "documents"] += shard.documents.rows
                yield from _one_shard(walk, shard)
    for reference in walk.manifest.objects:
        if reference.key not in known:
            try:
                _read(walk, reference)
                if not reference.key.endswith("-inputs.json"):
                    yield f"{reference.key} belongs to no source of the manifest"
            except StoreError as error:
                yield _sentence(walk, error)


def _one_shard(walk: _Walk, shard: TokenObject) -> Iterator[str]:
    """The three objects, each though another is damaged; against each other if both are whole."""
    records = ends = None
    try:
        records = np.frombuffer(_read(walk, shard.blocks), BLOCK_RECORD)
    except (StoreError, ValueError) as error:
        yield _sentence(walk, error, shard.blocks)
    try:
        file = pq.ParquetFile(io.BytesIO(_read(walk, shard.documents)), pre_buffer=False)
        table = file.read(columns=["start", "end"], use_threads=False)
        starts, ends = (table.column(name).to_numpy() for name in ("start", "end"))
    except (StoreError, pa.ArrowException, OSError) as error:
        yield _sentence(walk, error, shard.documents)
    if ends is not None:
        table_problems = list(_table_problems(shard, starts, ends))
        yield from table_problems
        ends = None if table_problems else ends
    try:
        yield from _tokens_problems(walk, shard, records, ends)
    except StoreError as error:
        yield _sentence(walk, error, shard.tokens)


def _table_problems(shard: TokenObject, starts: Integers, ends: Integers) -> Iterator[str]:
    """Documents lie one behind the other, none is empty, and they are all the tokens."""
    key = shard.documents.key
    if len(ends) != shard.documents.rows:
        yield f"{key} has {len(ends)} documents, the manifest says {shard.documents.rows}"
    last = int(ends[-1]) if len(ends) else 0
    if last != shard.tokens.rows:
        yield f"{key}: its documents end at token {last} of {shard.tokens.rows}"
    before = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    for row in np.flatnonzero((starts != before) | (ends <= starts))[:_MOST].tolist():
        yield (
            f"{key}: document {row} is tokens {starts[row]} to {ends[row]}, the one before it ends "
            f"at {before[row]}"
        )


def _tokens_problems(
    walk: _Walk, shard: TokenObject, records: Array | None, ends: Integers | None
) -> Iterator[str]:
    """The .tok object, block by block, against its records and its document table as far as these
    are whole."""
    reference = shard.tokens
    found = walk.store.stat(reference.key)
    if found is None or found.size != reference.size:
        what = "is missing" if found is None else f"has {found.size} bytes"
        yield f"{reference.key} {what}, {reference.size} bytes were written"
        return
    if reference.size != reference.rows * walk.dtype.itemsize:
        yield f"{reference.key} has {reference.size} bytes, which are not {reference.rows} tokens"
    size = int(walk.manifest.facts["block_bytes"])
    blocks = -(-reference.size // size)
    if records is not None and len(records) != blocks:
        yield f"{shard.blocks.key} has {len(records)} records, there are {blocks} blocks"
        records = None
    state = _Position(walk.end_of_text, 0)
    whole = 0
    for number in range(blocks):
        length = min(size, reference.size - number * size)
        data = walk.store.get_range(reference.key, number * size, length)
        walk.done(length)
        whole = crc32c(data, whole)
        tokens = np.frombuffer(data, walk.dtype)
        yield from _block_problems(walk, shard, number, data, tokens, records, state)
        yield from _end_problems(walk, shard, number, size, tokens, ends, state)
        state.documents += int(np.count_nonzero(tokens == walk.end_of_text))
        state.previous = int(tokens[-1])
    walk.objects += 1
    if f"{whole:08x}" != reference.crc32c:
        yield f"{reference.key} is damaged: CRC32C {whole:08x}, {reference.crc32c} was written"


@dataclass
class _Position:
    """Before a block: the token there, and documents of the object that have ended."""

    previous: int
    documents: int


def _block_problems(
    walk: _Walk,
    shard: TokenObject,
    number: int,
    data: bytes,
    tokens: Array,
    records: Array | None,
    state: _Position,
) -> Iterator[str]:
    key = shard.tokens.key
    highest = int(tokens.max())
    walk.highest = max(walk.highest, highest)
    if highest >= walk.manifest.facts["vocab_size"]:
        yield (
            f"{key}: block {number} has id {highest}, the vocabulary "
            f"{walk.manifest.facts['vocab_size']} items"
        )
    if records is None:
        return
    record = records[number]
    value = crc32c(data)
    if value != record["crc32c"]:
        yield f"{key}: block {number} is damaged: CRC32C {value:08x}, not {record['crc32c']:08x}"
    for name in ("previous", "documents"):
        if record[name] != getattr(state, name):
            yield (
                f"{shard.blocks.key}: block {number} has {name} {record[name]}, the tokens before "
                f"it say {getattr(state, name)}"
            )


def _end_problems(
    walk: _Walk,
    shard: TokenObject,
    number: int,
    size: int,
    tokens: Array,
    ends: Integers | None,
    state: _Position,
) -> Iterator[str]:
    """Each document ends with an end of text and has none inside: those of the block are where the
    table says."""
    if ends is None:
        return
    base = number * (size // walk.dtype.itemsize)
    found = np.flatnonzero(tokens == walk.end_of_text) + base + 1
    low, high = np.searchsorted(ends, (base, base + len(tokens)), side="right")
    expected = ends[low:high]
    for kind, places in (
        ("has no end of text at", np.setdiff1d(expected, found)),
        ("has an end of text inside a document at", np.setdiff1d(found, expected)),
    ):
        for place in (places[:_MOST] - 1).tolist():
            document = int(np.searchsorted(ends, place, side="right"))
            yield (
                f"{shard.tokens.key}: block {number} {kind} token {place}, document {document} of "
                f"{shard.documents.key}"
            )


def _count_problems(walk: _Walk) -> Iterator[str]:
    """The facts of the manifest are the sums."""
    facts = walk.manifest.facts
    for source, splits in facts["sources"].items():
        for split in SPLITS:
            for kind in _KINDS:
                said, seen = splits[split][kind], walk.counts[source, split, kind]
                if said != seen:
                    yield f'the manifest says {said} {split} {kind} of "{source}", there are {seen}'
    for split in SPLITS:
        for kind in _KINDS:
            seen = sum(n for key, n in walk.counts.items() if key[1:] == (split, kind))
            if facts[kind][split] != seen:
                yield f"the manifest says {facts[kind][split]} {split} {kind}, there are {seen}"
    if facts["highest_id"] != walk.highest:
        yield f"the manifest says {facts['highest_id']} is the highest id, {walk.highest} is"


def _plan_problems(store: Store) -> Iterator[str]:
    """The tokens that the data plan is about are there and are what it says of them."""
    try:
        plan = read_data_plan(store)
    except EyasError as error:
        yield str(error)
        return
    for segment in plan.segments:
        try:
            found = plan_tokens(store, segment.sources)
        except EyasError as error:
            yield f"data plan {plan.version}, step {segment.first_step}: {error}"
            continue
        for source in segment.sources:
            yield from _source_problems(plan, source, found[source.name].manifest)


def _source_problems(plan: DataPlan, source: Any, manifest: Manifest) -> Iterator[str]:
    head = f'data plan {plan.version}, source "{source.name}":'
    part = manifest.facts["sources"].get(source.part)
    if part is None:
        yield f'{head} the tokens of {source.store or "this store"} have no source "{source.part}"'
        return
    there = part["train"]["tokens"]
    if source.epoch_tokens != there:
        yield f"{head} an epoch is {source.epoch_tokens} tokens, there are {there}"
    tokenizer = manifest.facts["tokenizer"]
    if tokenizer != plan.tokenizer:
        yield f"{head} its tokenizer is {tokenizer[:12]}, not {plan.tokenizer[:12]}"


def _read(walk: _Walk, reference: ObjectRef) -> bytes:
    data = read_object(walk.store, reference)
    walk.objects += 1
    walk.done(len(data))
    return data


def _sentence(walk: _Walk, error: Exception, reference: ObjectRef | None = None) -> str:
    """Without the store's name and the advice to run a command like this one."""
    if isinstance(error, NotFound):
        return f"{error.key} is missing"
    text = str(error).removeprefix(f"{walk.store.url}: ").partition("; run `eyas verify`")[0]
    return text if reference is None or reference.key in text else f"{reference.key}: {text}"
