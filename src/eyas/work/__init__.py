"""Work: a stage's shards run once, by an engine; the ledger of what is done."""

from __future__ import annotations

from .bars import progress
from .code import code_version
from .contract import NotYet, Shard, ShardResult, Stage, StageError, complete, shard_key
from .engine import ENGINES, Engine
from .items import watch_item
from .stage import Workers, run_stage
from .verdicts import Refusal, refusals

__all__ = [
    "ENGINES",
    "Engine",
    "NotYet",
    "Refusal",
    "Shard",
    "ShardResult",
    "Stage",
    "StageError",
    "Workers",
    "code_version",
    "complete",
    "progress",
    "refusals",
    "run_stage",
    "shard_key",
    "watch_item",
]
