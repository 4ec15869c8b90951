"""Run a stage: every shard once, whatever was interrupted before.

The shards' keys are looked up in the ledger, what is not done goes to the pool, results come back
in the order of the shards. Nothing depends on how many workers did it or how many runs it took.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence

from eyas.recipe import UsageError
from eyas.store import Store

from .bars import progress
from .code import code_version
from .contract import Shard, ShardResult, Stage, StageError, plain, shard_key
from .ledger import finished
from .pool import run_pool
from .worker import Setup

__all__ = ["run_stage"]

_log = logging.getLogger("eyas.work")
_LOGGERS = ("", "eyas")


def run_stage(
    store: Store,
    stage: Stage,
    shards: Sequence[Shard],
    workers: int = 0,
    only: tuple[int, int] | None = None,
) -> list[ShardResult]:
    """Results of all shards, in their order; finished ones are not run again.

    `workers` 0 is one a core. `only=(i, n)` runs and returns shards i, i+n, i+2n, … for array jobs
    in which n machines share nothing. Raises StageError naming stage, shard and cause if a shard
    raised (after the running ones have been recorded) or killed its worker four times; UsageError
    for an impossible `only`.
    """
    stage = dataclasses.replace(stage, settings=plain(stage.settings))
    tasks = [_task(stage, shard) for shard in _chosen(shards, only)]
    _check_distinct(stage, tasks)
    results = finished(store, stage, (key for _, key in tasks))
    todo = [task for task in tasks if task[1] not in results]
    if todo:
        _log.info("stage %s: %d shards, %d done before", stage.name, len(tasks), len(results))
        count = min(workers or os.cpu_count() or 1, len(todo))
        with progress(stage.name, total=len(tasks)) as advance:
            advance(len(tasks) - len(todo))

            def done(index: int, result: ShardResult) -> None:
                results[todo[index][1]] = result
                advance(1)

            run_pool(_setup(store, stage), todo, count, done)
    return [results[key] for _, key in tasks]


def _task(stage: Stage, shard: Shard) -> tuple[Shard, str]:
    shard = dataclasses.replace(shard, inputs=tuple(shard.inputs), params=plain(shard.params))
    return shard, shard_key(stage, shard)


def _chosen(shards: Sequence[Shard], only: tuple[int, int] | None) -> Sequence[Shard]:
    if only is None:
        return shards
    index, count = only
    if not 0 <= index < count:
        raise UsageError(
            f"shard {index}/{count} is not possible; the first number is 0 to {count - 1}"
        )
    return shards[index::count]


def _check_distinct(stage: Stage, tasks: Sequence[tuple[Shard, str]]) -> None:
    names: dict[str, str] = {}
    for shard, key in tasks:
        if key in names:
            raise StageError(
                f"stage {stage.name}: shards {names[key]} and {shard.name} have the same inputs "
                "and parameters; name each input once"
            )
        names[key] = shard.name


def _setup(store: Store, stage: Stage) -> Setup:
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    return Setup(store.url, stage, code_version(), levels)
