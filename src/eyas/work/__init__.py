"""Work: a stage's shards run once, by a pool of processes; the ledger of what is done."""

from __future__ import annotations

from .bars import progress
from .code import code_version
from .contract import Shard, ShardResult, Stage, StageError, shard_key
from .stage import run_stage

__all__ = [
    "Shard",
    "ShardResult",
    "Stage",
    "StageError",
    "code_version",
    "progress",
    "run_stage",
    "shard_key",
]
