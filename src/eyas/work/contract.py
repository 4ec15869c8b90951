"""The one contract of all work on many machines: a stage, its shards, what a shard made.

A stage is a function `run_shard(store, stage, shard) -> ShardResult` with the settings it reads; a
shard is a named piece of its input. A shard's identity (`shard_key`) hashes what its output depends
on (stage name, version, settings, the shard's inputs and parameters) and nothing else: not its
position, not how many shards or workers there are, not the code version. So any engine, any number
of workers and any later run agree on what is already done. Everything here is JSON-able, because it
crosses processes and is written to the ledger; tuples arrive as lists.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eyas.recipe import EyasError
from eyas.store import ObjectRef, Store, dump_json, identity

__all__ = [
    "NotYet",
    "RunShard",
    "Shard",
    "ShardResult",
    "Stage",
    "StageError",
    "complete",
    "decode_result",
    "encode_result",
    "load_run",
    "plain",
    "shard_key",
]


@dataclass(frozen=True)
class Shard:
    """A piece of a stage's input. `name` is for people; `params` is JSON-able."""

    name: str
    inputs: tuple[ObjectRef, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """What to run. `version` is raised by hand when the output changes for the same input; `run` is
    `"module:function"`; `settings` are exactly the recipe values that it reads, JSON-able."""

    name: str
    version: int
    run: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardResult:
    """What a shard made. `counters` are numbers that add up over shards; `facts` is anything else
    that is JSON-able and small, since the caller holds those of all shards.

    `spent` tells of the run that made it and is filled in by the ledger: `seconds`, `cpu_seconds`,
    `peak_bytes` (resident, of the worker in this stage until then) and `host`. Two runs of a shard
    differ in nothing else, so it takes no part in equality or in any hash.
    """

    objects: tuple[ObjectRef, ...]
    counters: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    spent: Mapping[str, Any] = field(default_factory=dict, compare=False)


_SPENT = ("seconds", "cpu_seconds", "peak_bytes", "host")
RunShard = Callable[[Store, Stage, Shard], ShardResult]


class StageError(EyasError):
    """A stage cannot go on: the message names the stage, the shard and the cause. `details` is the
    worker's traceback where there is one."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class NotYet(StageError):
    """A stage whose shards are shared out is not complete: start again when the others are done."""


def complete(stage_name: str, results: Sequence[ShardResult | None]) -> list[ShardResult]:
    """`results` if all are there. Raises NotYet, which says how many are not."""
    done = [result for result in results if result is not None]
    if len(done) < len(results):
        raise NotYet(
            f"stage {stage_name}: {len(results) - len(done)} of {len(results)} shards are still "
            "with the other jobs of this array"
        )
    return done


def shard_key(stage: Stage, shard: Shard) -> str:
    """SHA-256 (hex) of all that the shard's output depends on."""
    return identity(stage.name, stage.version, stage.settings, shard.inputs, shard.params)


def load_run(stage: Stage) -> RunShard:
    """The function that `stage.run` names."""
    module, _, name = stage.run.partition(":")
    run: RunShard = getattr(importlib.import_module(module), name)
    return run


def plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """`mapping` as it comes back from JSON."""
    value: dict[str, Any] = json.loads(dump_json(dict(mapping)))
    return value


def encode_result(result: ShardResult) -> dict[str, Any]:
    """JSON-able form of a result."""
    return {
        "objects": list(result.objects),
        "counters": dict(result.counters),
        "facts": dict(result.facts),
        **result.spent,
    }


def decode_result(raw: Mapping[str, Any]) -> ShardResult:
    """The inverse of `encode_result`, other keys ignored."""
    spent = {name: raw[name] for name in _SPENT if name in raw}
    return ShardResult(_refs(raw["objects"]), raw["counters"], raw["facts"], spent)


def _refs(raw: Iterable[Mapping[str, Any]]) -> tuple[ObjectRef, ...]:
    return tuple(ObjectRef(**r) for r in raw)
