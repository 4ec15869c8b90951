"""Which engine runs a stage: a value that the command line makes and every stage is handed.

It decides who does the work and how much of it, and no byte of what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from eyas.recipe import UsageError

__all__ = ["ENGINES", "Engine"]

ENGINES = ("pool", "ray")


@dataclass(frozen=True)
class Engine:
    """`kind` is "pool" (processes of this machine) or "ray" (processes of a Ray cluster); `workers`
    0 is one a core. `share` (i, n), for array jobs that share nothing but the store, runs shards i,
    i+n, i+2n, … only. Raises UsageError for an impossible value."""

    kind: str = "pool"
    workers: int = 0
    share: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            raise UsageError(f"engine {self.kind!r} is not known; it is {' or '.join(ENGINES)}")
        if self.workers < 0:
            raise UsageError(f"{self.workers} workers are not possible; 0 is one a core")
        if self.share is None:
            return
        index, count = self.share
        if not 0 <= index < count:
            legal = f"0 to {count - 1}" if count > 0 else "below the second, which is 1 or more"
            raise UsageError(f"shard {index}/{count} is not possible; the first number is {legal}")
