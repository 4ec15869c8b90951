"""What the page is made from: one run's facts, read from its store.

Nothing here fails because a part is missing or damaged: a part that is not there is None or empty,
one that is damaged is named in `problems`, and the page says so. Only `eyas.store` is read through;
formats of other rooms are taken as they lie in the store (docs/board.md lists them).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eyas.recipe import EyasError, Recipe, UsageError
from eyas.store import Manifest, NotFound, Store, read_manifest, read_pieces, unseal

from .series import Point

__all__ = ["Checkpoint", "Evaluation", "Run", "collect"]


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint; `modified` is seconds since 1970."""

    attempt: int
    step: int
    modified: float


@dataclass(frozen=True)
class Evaluation:
    """A report of the judge, as it lies in the store."""

    step: int
    attempt: int
    languages: tuple[Mapping[str, Any], ...]
    total: Mapping[str, Any]


@dataclass
class Run:
    """All that is known of one store."""

    url: str
    name: str = ""
    recipe_hash: str = ""
    code: str = ""
    loss: list[Point] = field(default_factory=list)
    speed: list[Point] = field(default_factory=list)
    tokens_seen: int = 0
    not_finite: int = 0
    corpus: Manifest | None = None
    tokenizer: Manifest | None = None
    tokens: Manifest | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    stages: list[Mapping[str, Any]] = field(default_factory=list)
    plan: list[Mapping[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def collect(store: Store) -> Run:
    """Read one store. Raises StoreError only if the store itself cannot be listed."""
    run = Run(store.url)
    for room in ("corpus", "tokenizer", "tokens"):
        try:
            setattr(run, room, read_manifest(store, room))
        except (EyasError, TypeError, KeyError) as error:
            run.problems.append(f"the {room} manifest cannot be read: {error}")
    _read_recipe(store, run)
    _read_metrics(store, run)
    _read_checkpoints(store, run)
    _read_evaluations(store, run)
    _read_summary(store, run)
    return run


def _read_recipe(store: Store, run: Run) -> None:
    manifests = [m for m in (run.tokens, run.tokenizer, run.corpus) if m is not None]
    run.code = next((m.code for m in manifests if m.code), "")
    try:
        written = store.get("recipe.toml").decode("utf-8", "replace")
        raw = tomllib.loads(written)
    except NotFound:
        return
    except ValueError as error:
        run.problems.append(f"recipe.toml cannot be read: {error}")
        return
    run.name = str(raw.get("name", ""))
    try:
        run.recipe_hash = Recipe.parse(written, "recipe.toml").hash
    except UsageError as error:
        run.problems.append(f"this version does not know the recipe of the run: {error}")


def _read_metrics(store: Store, run: Run) -> None:
    attempts = {o.key.split("/")[1] for o in store.list("metrics/") if o.key.count("/") > 1}
    broken = 0
    for name in sorted(a for a in attempts if a.isdigit()):
        for record in read_pieces(store, f"metrics/{name}"):
            step, loss = record.get("step"), record.get("loss")
            if not isinstance(step, int):
                broken += "broken" in record
                continue
            if (value := _number(loss)) is not None:
                run.loss.append(Point(int(name), step, value))
            elif "loss" in record:
                run.not_finite += 1
            if (value := _number(record.get("tokens_per_s"))) is not None:
                run.speed.append(Point(int(name), step, value))
            run.tokens_seen = max(run.tokens_seen, int(_number(record.get("tokens")) or 0))
    if broken:
        run.problems.append(f"{broken} lines of the metrics are damaged and left out")


def _read_checkpoints(store: Store, run: Run) -> None:
    for info in store.list("checkpoints/commits/"):
        attempt, _, step = info.key.rpartition("/")[2].removesuffix(".json").partition("-")
        if attempt.isdigit() and step.isdigit():
            run.checkpoints.append(Checkpoint(int(attempt), int(step), info.modified))


def _read_evaluations(store: Store, run: Run) -> None:
    for info in store.list("eval/"):
        try:
            raw = unseal(store, info.key, store.get(info.key))
            lines = tuple(dict(line) for line in raw["languages"])
            entry = Evaluation(int(raw["step"]), int(raw["attempt"]), lines, dict(raw["total"]))
        except (EyasError, KeyError, TypeError, ValueError) as error:
            run.problems.append(f"{info.key} cannot be read: {error}")
        else:
            run.evaluations.append(entry)
    run.evaluations.sort(key=lambda e: (e.attempt, e.step))


def _read_summary(store: Store, run: Run) -> None:
    key = "run/summary.json"
    try:
        raw = json.loads(store.get(key))
    except NotFound:
        return
    except ValueError as error:
        run.problems.append(f"{key} cannot be read: {error}")
        return
    body = raw if isinstance(raw, dict) else {"stages": raw}
    run.stages = _rows(body.get("stages"))
    run.plan = _rows(body.get("plan"))


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
