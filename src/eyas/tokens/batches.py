"""Batches, pure in (data plan, step, rank, world): the same numbers for any world, at any time.

A step's samples come from the data plan, their places from the order of each source, their tokens
from verified blocks. Within a step samples stand by source, object, block and start, and rank r of
w takes the r-th of w contiguous parts, so that a rank of many reads few blocks. Nothing is
remembered between calls but a cache, so the state of a reader is a step and a plan version.

`Tokens.batch` reads what it needs when it is called; `Tokens.stream` gives the same batches, read
ahead (`stream.py`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import EyasError, UsageError
from eyas.store import Store, StoreError, open_store

from .blocks import Block, ByteCache
from .data_plan import DataPlan, read_data_plan
from .grid import Places
from .open_source import OpenSource
from .order import ORDER, Order
from .plan_sources import SourceTokens, plan_tokens
from .rows import (
    MODULUS,
    BatchMemory,
    BlockKey,
    FirstDocuments,
    Located,
    Rows,
    fill_rows,
    locate_rows,
    samples_digest,
)
from .selection import Source, rank_rows, reading_order
from .stream import AHEAD_BYTES, Stream
from .token_objects import SPLITS
from .tokenizer import Tokenizer, load_tokenizer
from .trace import TraceRow, trace_run

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Tokens", "check_model_vocabulary", "open_tokens", "plan_digest"]

CACHE_BYTES = 256 * 2**20
_SAMPLES_TOGETHER = 4096

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """B samples of T tokens.

    `ids` [B, T + 1] int64: inputs are `ids[:, :-1]`, targets `ids[:, 1:]`. `loss_mask` [B, T] bool:
    which targets count, False only in padding. `samples`: the numbers of the first rows; rows after
    them are padding. `digest`: of these samples.
    """

    ids: torch.Tensor
    loss_mask: torch.Tensor
    samples: tuple[int, ...]
    digest: int
    _documents: FirstDocuments

    @functools.cached_property
    def document_ids(self) -> torch.Tensor:
        """[B, T + 1] int64: number of each id's document in the split, -1 where there is none.
        Worked out when it is first asked for."""
        import torch

        found = self._documents.numbers(self.ids.cpu().numpy(), self.loss_mask.cpu().numpy())
        return torch.from_numpy(found)


class Tokens:
    """A split under a data plan. Used after fork it raises; pickled it opens the store anew."""

    def __init__(
        self,
        store: Store,
        plan: DataPlan,
        tokens: Mapping[str, SourceTokens],
        split: str,
        cache_bytes: int,
        ragged: bool,
    ) -> None:
        self.store = store
        self.plan = plan
        self.split = split
        self.ragged = ragged
        self._tokens = tokens
        self._cache_bytes = cache_bytes
        self._pid = os.getpid()
        self._sources: list[OpenSource] = []
        for name, source in tokens.items():
            first = self._sources[-1].stop_document if self._sources else 0
            self._sources.append(OpenSource(name, source, split, first))
        self._number = {source.name: i for i, source in enumerate(self._sources)}
        self._blocks: ByteCache[BlockKey, Block] = ByteCache(cache_bytes)
        self._memory = BatchMemory()

    def __reduce__(self) -> tuple[Any, ...]:
        version = self.plan.version
        return _reopen, (self.store.url, version, self.split, self._cache_bytes, self.ragged)

    @property
    def steps(self) -> int:
        """Steps, numbered from 0: the plan's; in the validation split, until all is seen once."""
        if self.split == "train":
            return self.plan.steps
        return -(-int(self._held_out[-1]) // self.plan.segments[-1].batch)

    @property
    def sequence(self) -> int:
        """Tokens a sample, in the last segment."""
        return self.plan.segments[-1].sequence

    @property
    def highest_id(self) -> int:
        """The largest id that occurs in any split of any source."""
        return max(source.highest_id for source in self._sources)

    @property
    def tokenizer_digest(self) -> str:
        """SHA-256 (hex) of the tokenizer.json that made these tokens."""
        return self.plan.tokenizer

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made these tokens, verified."""
        first = next(iter(self._tokens.values()))
        return load_tokenizer(first.store, first.manifest)

    def check_world(self, world: int) -> None:
        """Raises UsageError if `world` data-parallel ranks cannot share the batch of some step."""
        for segment in self.plan.segments:
            rank_rows(segment.batch, 0, world, self.ragged)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """What `rank` of `world` consumes at `step`; see Batch. A short sample is padded with end
        of text and masked; so is a missing one, in the last step of the validation split and where
        a `ragged` batch is shared unequally.

        Raises UsageError for a step outside the plan or a world that does not divide the batch,
        Corrupt for a damaged block, StoreError after fork.
        """
        return self._torch(self.rows(step, rank, world))

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """As `batch`, in numpy arrays."""
        return self._fill(self._one(step, rank, world), self._block)

    def stream(
        self,
        first: int = 0,
        stop: int | None = None,
        rank: int = 0,
        world: int = 1,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> Stream[Batch]:
        """The batches of steps `first` to `stop` - 1 (all that are left), read ahead by threads of
        this process. `ahead_bytes` bounds blocks that are read or kept and batches that wait. An
        error is raised at the step that it concerns, and ends the stream. Close it, or use it in a
        `with`, unless it is read to its end.

        Raises UsageError at once for what concerns the first step.
        """
        stop = self.steps if stop is None else stop
        return Stream(_Part(self, rank, world), range(first, stop), ahead_bytes)

    def digest(self, batch: Batch) -> int:
        """The digest of a batch's samples, computed from its ids."""
        return samples_digest(batch.samples, batch.ids.cpu().numpy(), self._dtype)

    def trace(
        self, step: int, rank: int | None = None, world: int = 1, text: bool = False
    ) -> list[TraceRow]:
        """The documents behind a step, or behind one rank's part of it; `text` adds the text of
        each piece. Reads the document tables of the objects concerned, and blocks only for text."""
        where = self._one(step, rank or 0, 1 if rank is None else world)
        found: list[TraceRow] = []
        for run in where.runs:
            source = self._sources[run.key[0]]
            found += trace_run(
                source.name,
                source.documents.of(run.key[1]),
                where,
                run,
                run.key[2] * source.block_tokens,
                functools.partial(self._text, run.key) if text else None,
            )
        return found

    def _one(self, step: int, rank: int, world: int) -> Located:
        return self._locate(range(step, step + 1), rank, world)[0]

    def _locate(self, steps: range, rank: int, world: int) -> list[Located]:
        """Where a rank's part of steps lies: of the first, and of as many more as are worked out
        together."""
        if os.getpid() != self._pid:
            raise StoreError(
                "tokens opened before fork were used after it; open them in the child, or start "
                "workers with spawn"
            )
        if self.split == "train":
            return self._locate_planned(steps, rank, world)
        return self._locate_held_out(steps[0], rank, world)

    def _locate_planned(self, steps: range, rank: int, world: int) -> list[Located]:
        segment = self.plan.segment(steps[0])
        batch, last = segment.batch, segment.stop_step - steps[0]
        part = rank_rows(batch, rank, world, self.ragged)
        steps = steps[: min(last, max(1, _SAMPLES_TOGETHER // batch))]
        chosen = segment.select(np.concatenate([segment.numbers(step) for step in steps]))

        def order(number: int) -> Order:
            source = self._source(segment.sources[number])
            return source.shuffled(segment.sequence, segment.seed, self.plan.window)

        places = _places(chosen.source, chosen.index, order)
        rows = [slice(i * batch, (i + 1) * batch) for i in range(len(steps))]
        orders = [reading_order(chosen.source[row], _taken(places, row)) for row in rows]
        own = np.concatenate(
            [
                order[part.first : part.stop] + row.start
                for order, row in zip(orders, rows, strict=True)
            ]
        )
        numbers = np.array([self._number[s.name] for s in segment.sources])
        return locate_rows(
            segment.sequence,
            part,
            chosen.samples[own],
            numbers[chosen.source[own]],
            _taken(places, own),
        )

    def _locate_held_out(self, step: int, rank: int, world: int) -> list[Located]:
        """Sources one after another, as they lie; the last step may lack samples."""
        if not 0 <= step < self.steps:
            raise UsageError(f"step {step} is not in the {self.split} split: 0 to {self.steps - 1}")
        batch = self.plan.segments[-1].batch
        part = rank_rows(batch, rank, world, self.ragged)
        first, stop = step * batch + part.first, step * batch + part.stop
        samples = np.arange(first, max(first, min(stop, int(self._held_out[-1]))))
        source = np.searchsorted(self._held_out, samples, side="right") - 1
        places = _places(
            source,
            samples - self._held_out[source],
            lambda number: self._sources[number].fixed(self.sequence),
        )
        return locate_rows(self.sequence, part, samples, source, places)

    @functools.cached_property
    def _held_out(self) -> Integers:
        """The first sample of each source in the validation split, and the end."""
        return np.cumsum([0, *(s.grid(self.sequence).samples for s in self._sources)])

    def _source(self, source: Source) -> OpenSource:
        return self._sources[self._number[source.name]]

    def _block(self, key: BlockKey) -> Block:
        def make() -> tuple[Block, int]:
            block = self._read(key)
            return block, block.nbytes

        return self._blocks.get(key, make)

    def _read(self, key: BlockKey, memory: npt.NDArray[np.uint8] | None = None) -> Block:
        source, number, index = key
        return self._sources[source].blocks.read(number, index, memory)

    @property
    def _end_of_text(self) -> int:
        return self._sources[0].end_of_text

    @property
    def _dtype(self) -> np.dtype[Any]:
        """Of the tokens as stored; one tokenizer, hence one for all sources."""
        return self._sources[0].blocks.dtype

    def _fill(self, where: Located, block: Callable[[BlockKey], Block]) -> Rows:
        return fill_rows(where, block, self._end_of_text, self._memory)

    def _torch(self, rows: Rows) -> Batch:
        import torch

        ids, mask = torch.from_numpy(rows.ids), torch.from_numpy(rows.loss_mask)
        return Batch(ids, mask, rows.samples, rows.digest, rows.documents)

    def _text(self, key: BlockKey, start: int, stop: int) -> str:
        """The text of tokens `start` to `stop` of a block."""
        tokens = self._block(key).tokens[start + 1 : stop + 1]
        end = self._end_of_text
        return self.tokenizer.decode(int(i) for i in tokens if i != end)


@dataclass(frozen=True)
class _Part:
    """A rank's part of the steps, for its stream."""

    tokens: Tokens
    rank: int
    world: int

    @property
    def block_bytes(self) -> int:
        return max(source.blocks.memory_bytes for source in self.tokens._sources)

    def locate(self, steps: range) -> list[Located]:
        return self.tokens._locate(steps, self.rank, self.world)

    def read(self, key: BlockKey, memory: npt.NDArray[np.uint8]) -> Block:
        return self.tokens._read(key, memory)

    def build(self, where: Located, block: Callable[[BlockKey], Block]) -> Batch:
        return self.tokens._torch(self.tokens._fill(where, block))


def open_tokens(
    store: Store,
    plan_version: int | None = None,
    split: str = "train",
    cache_bytes: int = CACHE_BYTES,
    ragged: bool = False,
) -> Tokens:
    """A split ("train" or "validation") of the store's tokens under a data plan (the current one).
    `cache_bytes` bounds the blocks held by `batch`; below a rank's part of a window of 128 MiB
    a source, blocks are read more than once. `ragged` shares a batch
    unequally where the world does not divide it.

    Raises EyasError if plan or tokens are missing or do not belong together.
    """
    if split not in SPLITS:
        raise UsageError(f'split "{split}" does not exist; there are {" and ".join(SPLITS)}')
    plan = read_data_plan(store, plan_version)
    if plan.order != ORDER:
        raise EyasError(
            f'{store.url}: data plan {plan.version} has the order "{plan.order}", this version of '
            f'eyas knows "{ORDER}"; finish the run with the eyas that made the plan'
        )
    sources = {source.name: source for s in plan.segments for source in s.sources}
    tokens = plan_tokens(store, sources.values())
    for name, source in tokens.items():
        if (made_by := source.manifest.facts["tokenizer"]) != plan.tokenizer:
            raise EyasError(
                f"{store.url}: data plan {plan.version} names tokenizer {plan.tokenizer[:12]}, the "
                f'tokens of source "{name}" were made by {made_by[:12]}; run `eyas tokenize` again'
            )
    return Tokens(store, plan, tokens, split, cache_bytes, ragged)


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
    return sum(tokens.rows(step).digest for step in range(first, stop)) % MODULUS


def _reopen(url: str, version: int, split: str, cache_bytes: int, ragged: bool) -> Tokens:
    return open_tokens(open_store(url), version, split, cache_bytes, ragged)


def _places(source: npt.NDArray[Any], index: Integers, order: Callable[[int], Order]) -> Places:
    """Where samples lie, row for row; `order` is that of each source."""
    places = Places(*(np.empty(len(index), np.int64) for _ in range(4)))
    for number in np.unique(source).tolist():
        chosen = source == number
        found = order(number).places(index[chosen])
        places.object[chosen], places.block[chosen] = found.object, found.block
        places.start[chosen], places.stop[chosen] = found.start, found.stop
    return places


def _taken(places: Places, rows: Integers | slice) -> Places:
    return Places(places.object[rows], places.block[rows], places.start[rows], places.stop[rows])
