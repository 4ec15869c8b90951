"""Batches, pure in (data plan, step, rank, world): the same numbers for any world, at any time.

A step's sample numbers come from the data plan, their places from the order, their tokens from
verified blocks. Rank r of w takes the r-th of w equal, contiguous parts of the batch. Nothing is
remembered between calls but a cache, so the state of a reader is a step and a plan version.

What was consumed can be proved: the digest of samples is the sum, modulo 2^64, of xxh3_64 over
(sample number as 8 bytes little-endian, then its sequence + 1 ids as uint32 little-endian). It adds
over samples, hence over ranks and steps, in any order.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from eyas.recipe import EyasError, UsageError
from eyas.store import Manifest, Store, StoreError, open_store, read_manifest

from .blocks import Block, BlockReader
from .data_plan import DataPlan, read_data_plan
from .grid import Grid, Places
from .order import ORDER, FixedOrder, Order, ShuffledOrder
from .token_objects import SPLITS, token_objects
from .tokenizer import Tokenizer, load_tokenizer
from .trace import DocumentTable, TraceRow, trace_rows

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Tokens", "check_model_vocabulary", "open_tokens", "plan_digest"]

CACHE_BYTES = 64 * 2**20
_MODULUS = 2**64

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """B samples of T tokens.

    `ids` [B, T + 1] int64: inputs are `ids[:, :-1]`, targets `ids[:, 1:]`. `document_ids`
    [B, T + 1] int64: number of the document in the split, -1 where there is none. `loss_mask`
    [B, T] bool: which targets count, False only in padding. `samples`: their numbers. `digest`: of
    these samples.
    """

    ids: torch.Tensor
    document_ids: torch.Tensor
    loss_mask: torch.Tensor
    samples: tuple[int, ...]
    digest: int


@dataclass(frozen=True)
class _Rows:
    """A batch before torch; `digest` as in Batch."""

    ids: Integers
    document_ids: Integers
    loss_mask: npt.NDArray[np.bool_]
    samples: tuple[int, ...]
    digest: int


class Tokens:
    """A split under a data plan. Used after fork it raises; pickled it opens the store anew."""

    def __init__(
        self, store: Store, plan: DataPlan, manifest: Manifest, split: str, cache_bytes: int
    ) -> None:
        self.store = store
        self.plan = plan
        self.manifest = manifest
        self.split = split
        self._cache_bytes = cache_bytes
        self._pid = os.getpid()
        self._objects = token_objects(manifest, split)
        documents = [o.documents.rows for o in self._objects]
        self._first_document = np.concatenate((np.zeros(1, np.int64), np.cumsum(documents)))
        self._grids: dict[int, Grid] = {}
        self._orders: dict[tuple[int, int], Order] = {}
        self._table = DocumentTable(store, self._objects)
        self._blocks = BlockReader(
            store,
            self._objects,
            manifest.facts,
            cache_bytes,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.store.url, self.plan.version, self.split, self._cache_bytes)

    @property
    def steps(self) -> int:
        """Steps, numbered from 0: the plan's; in the validation split, until all is seen once."""
        if self.split == "train":
            return self.plan.steps
        last = self.plan.segments[-1]
        return -(-self._grid(last.sequence).samples // last.batch)

    @property
    def sequence(self) -> int:
        """Tokens a sample, in the last segment."""
        return self.plan.segments[-1].sequence

    @property
    def highest_id(self) -> int:
        """The largest id that occurs in any split."""
        return int(self.manifest.facts["highest_id"])

    @property
    def tokenizer_digest(self) -> str:
        """SHA-256 (hex) of the tokenizer.json that made these tokens."""
        return str(self.manifest.facts["tokenizer"])

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made these tokens, verified."""
        return load_tokenizer(self.store, self.manifest)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """What `rank` of `world` consumes at `step`; see Batch. A short sample, and in the last
        step of the validation split a missing one, is padded with end of text and masked.

        Raises UsageError for a step outside the plan or a world that does not divide the batch,
        Corrupt for a damaged block, StoreError after fork.
        """
        import torch

        rows = self.rows(step, rank, world)
        return Batch(
            torch.from_numpy(rows.ids),
            torch.from_numpy(rows.document_ids),
            torch.from_numpy(rows.loss_mask),
            rows.samples,
            rows.digest,
        )

    def rows(self, step: int, rank: int = 0, world: int = 1) -> _Rows:
        """As `batch`, in numpy arrays."""
        samples, places, sequence = self._locate(step, rank, world)
        rows, end_of_text = len(samples), int(self.manifest.facts["end_of_text"])
        ids = np.full((rows, sequence + 1), end_of_text, np.int64)
        documents = np.full((rows, sequence + 1), -1, np.int64)
        mask = np.zeros((rows, sequence), np.bool_)
        for row in _grouped(places):
            number = int(places.object[row])
            block = self._blocks.block(number, int(places.block[row]))
            start, stop = int(places.start[row]), int(places.stop[row])
            base = int(self._first_document[number])
            _fill(ids[row], documents[row], block, start, stop, base, end_of_text)
            mask[row, : stop - start] = True
        known = tuple(samples[: len(places.object)])
        return _Rows(ids, documents, mask, known, _digest(known, ids))

    def digest(self, batch: Batch) -> int:
        """The digest of a batch's samples, computed from its ids."""
        return _digest(batch.samples, batch.ids.cpu().numpy())

    def trace(
        self, step: int, rank: int | None = None, world: int = 1, text: bool = False
    ) -> list[TraceRow]:
        """The documents behind a step, or behind one rank's part of it; `text` adds the text of
        each piece. Reads the document tables of the objects concerned, and blocks only for text."""
        parts = range(world) if rank is None else (rank,)
        found: list[TraceRow] = []
        for part in parts:
            samples, places, sequence = self._locate(step, part, world)
            block = self._grid(sequence).block_tokens
            found += trace_rows(self._table, samples, places, block, self._text if text else None)
        return found

    def _locate(self, step: int, rank: int, world: int) -> tuple[Sequence[int], Places, int]:
        """Sample numbers of a rank (in the validation split some may not exist), the places of
        those that do, and the sequence length."""
        if os.getpid() != self._pid:
            raise StoreError(
                "tokens opened before fork were used after it; open them in the child, or start "
                "workers with spawn"
            )
        if self.split == "train":
            segment = self.plan.segment(step)
            samples = segment.samples(step)
        else:
            segment = self.plan.segments[-1]
            if not 0 <= step < self.steps:
                raise UsageError(
                    f"step {step} is not in the {self.split} split: 0 to {self.steps - 1}"
                )
            samples = list(range(step * segment.batch, (step + 1) * segment.batch))
        part = samples[_part(len(samples), rank, world)]
        real = part if self.split == "train" else [n for n in part if n < self._samples]
        order = self._order(segment.sequence, segment.seed)
        return part, order.places(np.array(real, np.int64)), segment.sequence

    @property
    def _samples(self) -> int:
        return self._grid(self.sequence).samples

    def _grid(self, sequence: int) -> Grid:
        if sequence not in self._grids:
            self._grids[sequence] = Grid.of(self.manifest, self.split, sequence)
        return self._grids[sequence]

    def _order(self, sequence: int, seed: int) -> Order:
        if (sequence, seed) not in self._orders:
            grid = self._grid(sequence)
            self._orders[sequence, seed] = (
                ShuffledOrder(grid, seed, self.plan.window)
                if self.split == "train"
                else FixedOrder(grid)
            )
        return self._orders[sequence, seed]

    def _text(self, number: int, block: int, start: int, stop: int) -> str:
        """The text of tokens `start` to `stop` of a block."""
        tokens = self._blocks.block(number, block).tokens[start:stop]
        end = self.manifest.facts["end_of_text"]
        return self.tokenizer.decode(int(i) for i in tokens if i != end)


def open_tokens(
    store: Store,
    plan_version: int | None = None,
    split: str = "train",
    cache_bytes: int = CACHE_BYTES,
) -> Tokens:
    """A split ("train" or "validation") of the store's tokens under a data plan (the current one).
    `cache_bytes` bounds the blocks held; below a window of 32 MiB blocks are read more than once.

    Raises EyasError if plan or tokens are missing or do not belong together.
    """
    if split not in SPLITS:
        raise UsageError(f'split "{split}" does not exist; there are {" and ".join(SPLITS)}')
    plan = read_data_plan(store, plan_version)
    manifest = read_manifest(store, "tokens", plan.tokens_version)
    if manifest is None or manifest.identity != plan.tokens:
        raise EyasError(
            f"{store.url}: data plan {plan.version} is about version {plan.tokens_version} of the "
            "tokens, which is not there any more; run `eyas tokenize` again"
        )
    if manifest.facts["tokenizer"] != plan.tokenizer:
        raise EyasError(
            f"{store.url}: data plan {plan.version} names tokenizer {plan.tokenizer[:12]}, its "
            f"tokens were made by {manifest.facts['tokenizer'][:12]}; run `eyas tokenize` again"
        )
    if plan.order != ORDER or len(plan.segments[0].sources) != 1:
        raise EyasError(
            f"{store.url}: data plan {plan.version} has an order or a mixture that this version of "
            "eyas does not know; use a later one"
        )
    return Tokens(store, plan, manifest, split, cache_bytes)


def check_model_vocabulary(tokens: Tokens, vocab_size: int, tokenizer: str | None = None) -> None:
    """Before step 0: every id must be in the model's vocabulary, and the model's tokenizer (its
    digest, where given) must be the one that made the tokens. Raises EyasError."""
    if tokens.highest_id >= vocab_size:
        raise EyasError(
            f"the tokens of {tokens.store.url} reach id {tokens.highest_id}, the model has "
            f"{vocab_size} items: set model.vocab_size to {tokens.highest_id + 1} or more, or "
            "leave it out"
        )
    if tokenizer is not None and tokenizer != tokens.tokenizer_digest:
        raise EyasError(
            f"the tokens of {tokens.store.url} were made by tokenizer "
            f"{tokens.tokenizer_digest[:12]}, the model's is {tokenizer[:12]}; encode the corpus "
            "with the model's tokenizer"
        )


def plan_digest(tokens: Tokens, first: int, stop: int) -> int:
    """The digest of all that an undisturbed run consumes in steps `first` to `stop` - 1."""
    return sum(tokens.rows(step).digest for step in range(first, stop)) % _MODULUS


def _reopen(url: str, version: int, split: str, cache_bytes: int) -> Tokens:
    return open_tokens(open_store(url), version, split, cache_bytes)


def _part(batch: int, rank: int, world: int) -> slice:
    """The contiguous part of a batch that is a rank's."""
    if world < 1 or batch % world:
        legal = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
        raise UsageError(
            f"a batch of {batch} sequences cannot be shared by {world} data-parallel ranks; legal "
            f"worlds are {legal}"
        )
    if not 0 <= rank < world:
        raise UsageError(f"rank {rank} is not in a world of {world}")
    size = batch // world
    return slice(rank * size, (rank + 1) * size)


def _grouped(places: Places) -> Iterator[int]:
    """Rows so that those of one block come together, hence each block is looked up while held."""
    return (int(i) for i in np.lexsort((places.block, places.object)))


def _fill(
    ids: Integers,
    documents: Integers,
    block: Block,
    start: int,
    stop: int,
    base: int,
    end_of_text: int,
) -> None:
    """One row: the tokens of a sample after the one before it, and the document of each. `base` is
    the number of the object's first document."""
    length = stop - start
    first, last = np.searchsorted(block.ends, (start, stop))
    current = base + block.documents + int(first)
    ids[0] = block.tokens[start - 1] if start else block.previous
    ids[1 : length + 1] = block.tokens[start:stop]
    documents[1 : length + 1] = current
    for end in block.ends[first:last]:
        documents[end - start + 2 : length + 1] += 1
    ended = current - 1 if ids[0] == end_of_text else current
    documents[0] = ended if ended >= base else -1


def _digest(samples: Sequence[int], ids: Integers) -> int:
    """See the head of this file."""
    words = ids.astype("<u4")
    total = 0
    for number, row in zip(samples, words, strict=False):
        hashed = xxhash.xxh3_64(number.to_bytes(8, "little"))
        hashed.update(row.data)
        total += hashed.intdigest()
    return total % _MODULUS
