"""Run stages: every shard once, whatever was interrupted before.

The shards' keys are looked up in the ledger, what is not done goes to the engine, results come back
in the order of the shards. Nothing depends on which engine did it, on how many workers, or on how
many runs it took.

Array jobs share nothing but the store: each runs its share of the shards and finds the others' in
the ledger. A shard whose input another job has yet to make is None, and so is its result.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Self

from eyas.store import Store

from .bars import progress
from .code import code_version
from .contract import Shard, ShardResult, Stage, StageError, plain, shard_key
from .engine import Engine
from .ledger import finished
from .pool import Pool
from .schedule import Crew, run_tasks
from .worker import Setup, Task

__all__ = ["Workers", "run_stage"]

_log = logging.getLogger("eyas.work")
_LOGGERS = ("", "eyas")


class Workers:
    """Who works for one call, in all of its stages: `with Workers(store, Engine()) as workers:`.
    None starts before there is something to do; from stage to stage those stay that the next one
    can use; all end with the block, busy ones too."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store = store
        self.engine = engine
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.end(self._crew.workers())

    def crew(self) -> Crew:
        """For the scheduler."""
        if self._crew is None:
            self._crew = _crew(self.store, self.engine)
        return self._crew


def run_stage(
    workers: Workers, stage: Stage, shards: Sequence[Shard | None]
) -> list[ShardResult | None]:
    """Results of all shards, in their order; finished ones are not run again.

    None for a shard that is None, and for one that the engine's share leaves to another job which
    has not done it; `complete` raises if there are any. Raises StageError naming stage, shard and
    cause if a shard raised (after the running ones have been recorded) or cannot keep a worker
    alive.
    """
    stage = dataclasses.replace(stage, settings=plain(stage.settings))
    tasks = [_task(stage, shard) if shard else None for shard in shards]
    _check_distinct(stage, tasks)
    store, share = workers.store, workers.engine.share
    index, count = share or (0, 1)
    results = _finished(store, stage, tasks)
    mine = [task for task in tasks[index::count] if task]
    todo = [task for task in mine if task[1] not in results]
    if todo:
        _log.info("stage %s: %d shards, %d to do", stage.name, len(mine), len(todo))
        _run(workers, stage, todo, len(mine), results)
        if share:  # the others were not idle meanwhile
            results |= _finished(store, stage, [t for t in tasks if t and t[1] not in results])
    return [results.get(task[1]) if task else None for task in tasks]


def _run(
    workers: Workers,
    stage: Stage,
    todo: Sequence[Task],
    total: int,
    results: dict[str, ShardResult],
) -> None:
    """Run all of `todo`, adding to `results`."""
    with progress(stage.name, total=total) as advance:
        advance(total - len(todo))

        def done(key: str, result: ShardResult) -> None:
            results[key] = result
            advance(1)

        run_tasks(workers.store, stage, todo, workers.crew(), done)


def _crew(store: Store, engine: Engine) -> Crew:
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    setup = Setup(store.url, code_version(), levels)
    if engine.kind == "ray":
        from .ray_crew import RayCrew

        return RayCrew(setup, engine.workers)
    return Pool(setup, engine.workers)


def _task(stage: Stage, shard: Shard) -> Task:
    shard = dataclasses.replace(shard, inputs=tuple(shard.inputs), params=plain(shard.params))
    return shard, shard_key(stage, shard)


def _finished(store: Store, stage: Stage, tasks: Sequence[Task | None]) -> dict[str, ShardResult]:
    return finished(store, stage, (task[1] for task in tasks if task))


def _check_distinct(stage: Stage, tasks: Sequence[Task | None]) -> None:
    names: dict[str, str] = {}
    for shard, key in filter(None, tasks):
        if key in names:
            raise StageError(
                f"stage {stage.name}: shards {names[key]} and {shard.name} have the same inputs "
                "and parameters; name each input once"
            )
        names[key] = shard.name
