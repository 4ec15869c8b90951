"""The data plan: which samples are consumed at which step, as an immutable, versioned object.

`data/plan-<version:06d>.json` is sealed and taken with If-None-Match before it is used; every
checkpoint names the version it ran under. A plan names the tokens it is about, which
`plan_sources.py` finds and verifies, and lists segments (`selection.py`), laid out from what the
recipe asks for (`phases.py`). A changed recipe, a batch ramp or a rewind-and-skip is a new version
with other segments, never a change. Two versions may follow each other in a run if they agree on
all steps that were done.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eyas.recipe import EyasError, Phase, Recipe, UsageError, recipe_phases
from eyas.store import Corrupt, Store, dump_json, seal, unseal

from .order import ORDER, WINDOW_BLOCKS
from .phases import Rules, Skip, lay_out, phases_of
from .plan_sources import recipe_sources, stored_sources
from .selection import Segment, Source

_log = logging.getLogger("eyas.tokens")

__all__ = [
    "DataPlan",
    "Segment",
    "Source",
    "amend_data_plan",
    "check_recipe_plan",
    "make_data_plan",
    "read_data_plan",
]

FORMAT = 2


@dataclass(frozen=True)
class DataPlan:
    """A plan as stored; `tokenizer` is the digest of the tokenizer of all its tokens, `order` and
    `window` the algorithm that places samples, `skips` what operators have left out (the segments
    say which samples that are)."""

    version: int
    tokenizer: str
    order: str
    window: int
    segments: tuple[Segment, ...]
    skips: tuple[Skip, ...] = ()

    @property
    def steps(self) -> int:
        """All steps, from 0."""
        return self.segments[-1].stop_step

    @property
    def tokens(self) -> int:
        """Tokens of all steps."""
        return self.segments[-1].tokens_before(self.steps)

    def segment(self, step: int) -> Segment:
        """The segment of a step. Raises UsageError outside the plan."""
        if not 0 <= step < self.steps:
            raise UsageError(
                f"step {step} is not in data plan {self.version}, which has steps 0 to "
                f"{self.steps - 1}; raise train.tokens and make a new plan to go on"
            )
        starts = [s.first_step for s in self.segments]
        return self.segments[bisect.bisect_right(starts, step) - 1]

    def epochs(self) -> dict[str, float]:
        """How often each source is read over the whole plan; what is skipped counts as read."""
        last = self.segments[-1]
        taken = last.taken(last.stop_sample)
        pairs = zip(last.sources, taken.tolist(), strict=True)
        return {s.name: count / s.samples if s.samples else 0.0 for s, count in pairs}

    def notes(self) -> list[str]:
        """What whoever asked for the plan should know: sources that reach their epochs, and what a
        change of the sequence leaves unread."""
        return [*_reached(self.segments), *_unread(self.segments)]

    def agrees(self, other: DataPlan, step: int) -> bool:
        """Whether both say the same of all steps before `step`."""
        return _said(self, step) == _said(other, step)

    def goes_back(self, older: DataPlan) -> int | None:
        """The step to which an operator has gone back, to skip from there what `older` does not;
        None if that is not how they differ."""
        added = [skip.from_step for skip in self.skips if skip not in older.skips]
        return min(added) if added and self.agrees(older, min(added)) else None

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content; the version is no part of it."""
        return hashlib.sha256(dump_json(self._body())).hexdigest()

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tokenizer": self.tokenizer,
            "order": {"name": self.order, "window_blocks": self.window},
            "segments": self.segments,
            "skips": self.skips,
        }


def make_data_plan(recipe: Recipe, store: Store) -> DataPlan:
    """The plan of a whole run by `recipe.data` and `recipe.train`, committed as the next version
    unless the current one says the same. What the current version skips stays skipped if both agree
    on all steps before. What the operator should know is a warning in the log.

    Raises UsageError if the run needs more epochs than `data.epochs` allows or a weight cannot be
    honoured, EyasError without tokens or if sources were made by different tokenizers.
    """
    known = recipe_sources(recipe, store, WINDOW_BLOCKS)
    phases = recipe_phases(recipe, {s.name: s.weight for s in known.sources})
    rules = Rules(recipe.data.seed, recipe.data.document_mask, WINDOW_BLOCKS)
    plain = DataPlan(0, known.tokenizer, ORDER, WINDOW_BLOCKS, lay_out(phases, known, rules))
    while True:
        latest = _latest(store)
        current = _undamaged(store, latest) if latest else None
        skips = _kept_skips(plain, current)
        segments = lay_out(phases, known, rules, skips) if skips else plain.segments
        taken = dataclasses.replace(plain, version=latest + 1, segments=segments, skips=skips)
        if current is not None and current.digest == taken.digest:
            taken = current
        elif not store.put_if_absent(_key(taken.version), seal(taken._body())):
            continue
        for note in taken.notes():
            _log.warning("%s", note)
        return taken


def _kept_skips(plan: DataPlan, current: DataPlan | None) -> tuple[Skip, ...]:
    """What the current version skips, if `plan` says the same of all steps before."""
    if current is None or not current.skips:
        return ()
    if plan.agrees(current, min(skip.from_step for skip in current.skips)):
        return current.skips
    _log.warning(
        "what data plan %d skips is not skipped any more: the recipe asks for other samples "
        "before it",
        current.version,
    )
    return ()


def amend_data_plan(store: Store, plan: DataPlan, skip: Skip) -> DataPlan:
    """`plan`, the current version, with one skip more, committed as the next version. Raises
    UsageError if that changes nothing, EyasError if another version was taken meanwhile."""
    first = plan.segments[0]
    known = stored_sources(store, first.sources, plan.window)
    rules = Rules(first.seed, first.document_mask, plan.window)
    skips = (*plan.skips, skip)
    amended = dataclasses.replace(
        plan,
        version=plan.version + 1,
        segments=lay_out(phases_of(plan.segments), known, rules, skips),
        skips=skips,
    )
    if amended.segments == plan.segments:
        raise UsageError(
            f"data plan {plan.version} takes nothing of that from step {skip.from_step} on, so "
            "there is nothing to skip"
        )
    if not store.put_if_absent(_key(amended.version), seal(amended._body())):
        raise EyasError(
            f"{store.url}: data plan {amended.version} was taken by somebody else meanwhile; look "
            "at it and try again"
        )
    return amended


def check_recipe_plan(recipe: Recipe, plan: DataPlan) -> None:
    """The plan must be what the recipe asks for. Raises UsageError that says what differs."""
    found = phases_of(plan.segments)
    weights = found[0].weights | {s.name: s.weight for s in recipe.data.sources}
    wanted = recipe_phases(recipe, weights)
    for ours, theirs in itertools.zip_longest(wanted, found):
        differ = _differ(ours, theirs)
        if differ:
            at = max(p.first_step for p in (ours, theirs) if p)
            raise UsageError(
                f"data plan {plan.version} has {differ}{f' from step {at} on' if at else ''}; run "
                "`eyas tokenize` with this recipe"
            )


def _differ(ours: Phase | None, theirs: Phase | None) -> str:
    """In what a phase of the plan differs from that of the recipe."""
    if ours is None or theirs is None:
        return "more milestones than the recipe" if ours is None else "fewer milestones"
    names = ("data.sequence", "sequences a step", "first step", "steps", "weights")

    def values(p: Phase) -> tuple[Any, ...]:
        return p.sequence, p.batch, p.first_step, p.steps, dict(p.weights)

    return ", ".join(
        f"{name} {found} instead of {wanted}"
        for name, found, wanted in zip(names, values(theirs), values(ours), strict=True)
        if found != wanted
    )


def read_data_plan(store: Store, version: int | None = None) -> DataPlan:
    """That version, or the current one. Raises EyasError if there is none, or of another format."""
    version = version if version is not None else _latest(store)
    if version == 0:
        raise EyasError(f"{store.url} holds no data plan; make one with `eyas tokenize RECIPE`")
    key = _key(version)
    body = unseal(store, key, store.get(key))
    if body.get("format") != FORMAT:
        raise _OtherFormat(
            f"{store.url}: {key} has format {body.get('format')}, this version of eyas reads "
            f"{FORMAT} and no other; finish the run with the eyas that made the plan, or make "
            "tokens and plan anew with `eyas tokenize RECIPE` in another store"
        )
    return _decode(store, key, version, body)


class _OtherFormat(EyasError):
    """A plan that this version of eyas does not read."""


def _said(plan: DataPlan, step: int) -> list[Any]:
    """What decides the steps before `step`, the same however it is cut into segments."""
    pieces: list[Any] = []
    for segment in plan.segments:
        steps = min(segment.stop_step, step) - segment.first_step
        if steps <= 0:
            break
        stop = segment.sample_after(segment.first_step + steps)
        used = tuple((s.tokens, s.part, s.count, s.first) for s in segment.sources if s.count)
        rule = (
            segment.sequence,
            segment.batch,
            segment.seed,
            segment.document_mask,
            segment.origin,
            used,
        )
        skipped = [r for r in segment.skipped if r[0] < stop]
        if pieces and pieces[-1][0] == rule:
            pieces[-1][1] += steps
            pieces[-1][2].extend(skipped)
        else:
            pieces.append([rule, steps, skipped])
    return [plan.order, plan.window, plan.tokenizer, pieces]


def _reached(segments: Sequence[Segment]) -> Iterator[str]:
    """A sentence for each source that is left out from a step on, though it has a weight."""
    left_out: set[str] = set()
    for segment in segments:
        taken = segment.taken(segment.first_sample)
        now = {s.name for s in segment.sources if s.weight and not s.count}
        for s, count in zip(segment.sources, taken.tolist(), strict=True):
            if s.name in now - left_out:
                yield (
                    f'source "{s.name}" has been seen {count / s.samples:.2f} times at step '
                    f"{segment.first_step} and may be seen {s.epochs:g} times: from there on it is "
                    "left out, and the others share by their weights"
                )
        left_out = now


def _unread(segments: Sequence[Segment]) -> Iterator[str]:
    """A sentence for each source of which a change of the sequence leaves out a hundredth of an
    epoch or more."""
    for before, after in itertools.pairwise(segments):
        if before.sequence == after.sequence:
            continue
        read, begun = before.taken(before.stop_sample), after.taken(after.first_sample)
        for old, new, a, b in zip(before.sources, after.sources, read, begun, strict=True):
            left = b / new.samples - a / old.samples if new.samples else 0.0
            if left >= 0.01:
                yield (
                    f'source "{new.name}": where data.sequence changes, at step '
                    f"{after.first_step}, {left:.0%} of an epoch is left unread and counts as read"
                )


def _undamaged(store: Store, version: int) -> DataPlan | None:
    """That version; None, said loudly, if it is damaged or of another format: the next version then
    takes its place."""
    try:
        return read_data_plan(store, version)
    except (Corrupt, _OtherFormat) as error:
        _log.error("%s; another version is made", error)
        return None


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
            tokenizer=body["tokenizer"],
            order=body["order"]["name"],
            window=body["order"]["window_blocks"],
            segments=tuple(_segment(raw) for raw in body["segments"]),
            skips=tuple(_skip(raw) for raw in body["skips"]),
        )
    except (KeyError, TypeError) as error:
        raise Corrupt(f"{store.url}: {key} is not a data plan ({error!r})") from error


def _segment(raw: Mapping[str, Any]) -> Segment:
    sources = tuple(Source(**s) for s in raw["sources"])
    skipped = tuple((first, stop) for first, stop in raw["skipped"])
    return Segment(**{**raw, "sources": sources, "skipped": skipped})


def _skip(raw: Mapping[str, Any]) -> Skip:
    samples = raw["samples"]
    return Skip(**{**raw, "samples": tuple(samples) if samples else None})
