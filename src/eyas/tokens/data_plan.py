"""The data plan: which samples are consumed at which step, as an immutable, versioned object.

`data/plan-<version:06d>.json` is sealed and taken with If-None-Match before it is used; every
checkpoint names the version it ran under. A plan names the tokens it is about and lists segments;
inside a segment the sequence length, batch, seed, sources and weights are constant. A changed
recipe, a batch ramp or a rewind-and-skip is a new version with other segments, never a change.

Samples are numbered in the order in which they are consumed; the number of a sample decides its
place in the tokens (`order.py`). Step s of a segment consumes `batch` numbers from
`first_sample + (s - first_step) * batch`, after which ranges that are `skipped` are jumped over.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eyas.recipe import EyasError, Recipe, UsageError
from eyas.store import Corrupt, Manifest, Store, dump_json, read_manifest, seal, unseal

from .grid import Grid
from .order import ORDER, WINDOW_BLOCKS

_log = logging.getLogger("eyas.tokens")

__all__ = ["DataPlan", "Segment", "Source", "make_data_plan", "read_data_plan"]

FORMAT = 1


@dataclass(frozen=True)
class Source:
    """What samples come from: `name` is a split of the tokens; `tokens` and `samples` are those of
    one epoch, `weight` its share of the segment's samples."""

    name: str
    weight: float
    tokens: int
    samples: int


@dataclass(frozen=True)
class Segment:
    """`steps` steps from `first_step`, each of `batch` samples of `sequence` tokens. `tokens_seen`
    is before the segment. `skipped` are ranges (first, stop) of sample numbers, ascending, none
    before `first_sample`."""

    first_step: int
    steps: int
    first_sample: int
    tokens_seen: int
    sequence: int
    batch: int
    seed: int
    sources: tuple[Source, ...]
    skipped: tuple[tuple[int, int], ...] = ()

    def samples(self, step: int) -> list[int]:
        """Numbers of the samples that `step` consumes, in order."""
        first = self.first_sample + (step - self.first_step) * self.batch
        return [_jump(self.skipped, first + i) for i in range(self.batch)]


@dataclass(frozen=True)
class DataPlan:
    """A plan as stored; `tokens` is the identity of the tokens manifest, `tokenizer` the digest of
    its tokenizer, `order` and `window` the algorithm that places samples."""

    version: int
    tokens: str
    tokens_version: int
    tokenizer: str
    order: str
    window: int
    segments: tuple[Segment, ...]

    @property
    def steps(self) -> int:
        """All steps, from 0."""
        last = self.segments[-1]
        return last.first_step + last.steps

    def segment(self, step: int) -> Segment:
        """The segment of a step. Raises UsageError outside the plan."""
        if not 0 <= step < self.steps:
            raise UsageError(
                f"step {step} is not in data plan {self.version}, which has steps 0 to "
                f"{self.steps - 1}; raise train.tokens and make a new plan to go on"
            )
        starts = [s.first_step for s in self.segments]
        return self.segments[bisect.bisect_right(starts, step) - 1]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content; the version is no part of it."""
        return hashlib.sha256(dump_json(self._body())).hexdigest()

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tokens": {"identity": self.tokens, "version": self.tokens_version},
            "tokenizer": self.tokenizer,
            "order": {"name": self.order, "window_blocks": self.window},
            "segments": self.segments,
        }


def make_data_plan(recipe: Recipe, store: Store) -> DataPlan:
    """The plan of a whole run by `recipe.data` and `recipe.train` over the store's tokens,
    committed as the next version unless the current one says the same.

    Raises UsageError if the run needs more epochs than `data.epochs`, EyasError without tokens.
    """
    manifest = read_manifest(store, "tokens")
    if manifest is None:
        raise EyasError(f"{store.url} holds no tokens; make them with `eyas tokenize RECIPE`")
    plan = DataPlan(
        version=0,
        tokens=manifest.identity,
        tokens_version=manifest.version,
        tokenizer=manifest.facts["tokenizer"],
        order=ORDER,
        window=WINDOW_BLOCKS,
        segments=(_only_segment(recipe, manifest),),
    )
    return _commit(store, plan)


def read_data_plan(store: Store, version: int | None = None) -> DataPlan:
    """That version, or the current one. Raises EyasError if there is none."""
    version = version if version is not None else _latest(store)
    if version == 0:
        raise EyasError(f"{store.url} holds no data plan; make one with `eyas tokenize RECIPE`")
    key = _key(version)
    body = unseal(store, key, store.get(key))
    if body.get("format") != FORMAT:
        raise EyasError(
            f"{store.url}: {key} has format {body.get('format')}, this version of eyas reads "
            f"{FORMAT}"
        )
    return _decode(store, key, version, body)


def _only_segment(recipe: Recipe, manifest: Manifest) -> Segment:
    sequence = recipe.data.sequence
    batch = recipe.train.global_batch // sequence
    steps = recipe.train.tokens // recipe.train.global_batch
    grid = Grid.of(manifest, "train", sequence)
    if not grid.samples:
        raise EyasError("the corpus has no training document, so there is nothing to plan")
    epochs = steps * batch / grid.samples
    if epochs > recipe.data.epochs:
        most = math.floor(recipe.data.epochs * grid.samples / batch) * recipe.train.global_batch
        lower = f"set train.tokens to {most} or less, " if most else ""
        raise UsageError(
            f"train.tokens = {recipe.train.tokens} needs {epochs:.2f} epochs of the {grid.tokens} "
            f"training tokens, data.epochs allows {recipe.data.epochs:g}: {lower}raise "
            "data.epochs, or add text"
        )
    source = Source("train", 1.0, grid.tokens, grid.samples)
    return Segment(0, steps, 0, 0, sequence, batch, recipe.data.seed, (source,))


def _undamaged(store: Store, version: int) -> DataPlan | None:
    """That version; None, said loudly, if it is damaged: the next version then takes its place."""
    try:
        return read_data_plan(store, version)
    except Corrupt as error:
        _log.error("%s; another version is made", error)
        return None


def _commit(store: Store, plan: DataPlan) -> DataPlan:
    while True:
        latest = _latest(store)
        if latest:
            current = _undamaged(store, latest)
            if current is not None and current.digest == plan.digest:
                return current
        taken = dataclasses.replace(plan, version=latest + 1)
        if store.put_if_absent(_key(taken.version), seal(taken._body())):
            return taken


def _latest(store: Store) -> int:
    head = "data/plan-"
    numbers = [o.key[len(head) : -len(".json")] for o in store.list(head)]
    return max((int(n) for n in numbers if n.isdigit()), default=0)


def _key(version: int) -> str:
    return f"data/plan-{version:06d}.json"


def _decode(store: Store, key: str, version: int, body: Mapping[str, Any]) -> DataPlan:
    try:
        return DataPlan(
            version=version,
            tokens=body["tokens"]["identity"],
            tokens_version=body["tokens"]["version"],
            tokenizer=body["tokenizer"],
            order=body["order"]["name"],
            window=body["order"]["window_blocks"],
            segments=tuple(_segment(raw) for raw in body["segments"]),
        )
    except (KeyError, TypeError) as error:
        raise Corrupt(f"{store.url}: {key} is not a data plan ({error!r})") from error


def _segment(raw: Mapping[str, Any]) -> Segment:
    sources = tuple(Source(**s) for s in raw["sources"])
    skipped = tuple((first, stop) for first, stop in raw["skipped"])
    return Segment(**{**raw, "sources": sources, "skipped": skipped})


def _jump(skipped: tuple[tuple[int, int], ...], number: int) -> int:
    """`number` counted without the skipped ranges."""
    for first, stop in skipped:
        if number < first:
            break
        number += stop - first
    return number
