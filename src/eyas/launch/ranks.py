"""What ranks leave in their run directory, and what follows from it.

The protocol is files, so that a rank needs no connection and a dead one still speaks: `rank-R.beat`
(one line of JSON, overwritten: rank, pid, step, phase, time, monotonic), `rank-R.exit` (its exit
code), `rank-R.stacks` (written by faulthandler on SIGUSR1). `decide` is pure: exit codes in, what
the supervisor does next out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "DONE",
    "FAILED",
    "NO_RETRY",
    "RESTART",
    "RESUMABLE",
    "Beat",
    "cause",
    "decide",
    "read_beats",
    "read_exits",
    "silent",
]

DONE, FAILED, RESUMABLE, NO_RETRY = 0, 1, 75, 93
RESTART = -1

_TORCHRUN_SAYS = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")


@dataclass(frozen=True)
class Beat:
    """Where a rank was when it last spoke. `time` is seconds since 1970, `monotonic` the host's
    monotonic clock."""

    rank: int
    pid: int
    step: int
    phase: str
    time: float
    monotonic: float

    def published(self, now: float) -> dict[str, Any]:
        """As it stands in the host's heartbeat object; `age` is seconds since it spoke."""
        shown = asdict(self)
        shown["age"] = round(max(0.0, now - shown.pop("monotonic")), 1)
        return shown


def read_beats(folder: Path, processes: int) -> dict[int, Beat]:
    """The last heartbeat of each rank that has one; a torn one is left out."""
    beats = {}
    for rank in range(processes):
        try:
            beats[rank] = Beat(**json.loads((folder / f"rank-{rank}.beat").read_text()))
        except (OSError, ValueError, TypeError):
            continue
    return beats


def read_exits(folder: Path, processes: int) -> tuple[int | None, ...]:
    """The exit code that each rank left, None where it left none."""
    codes: list[int | None] = []
    for rank in range(processes):
        try:
            codes.append(int((folder / f"rank-{rank}.exit").read_text()))
        except (OSError, ValueError):
            codes.append(None)
    return tuple(codes)


def decide(codes: Sequence[int | None], stopping: bool, restarts_left: int) -> int:
    """What follows when the ranks are gone: DONE only if all are, NO_RETRY if any says so,
    RESUMABLE if all are checkpointed or done, else RESTART; FAILED when asked to stop or out of
    restarts."""
    if NO_RETRY in codes:
        return NO_RETRY
    if all(code == DONE for code in codes):
        return DONE
    if all(code in (DONE, RESUMABLE) for code in codes):
        return RESUMABLE
    if stopping or restarts_left <= 0:
        return FAILED
    return RESTART


def cause(
    codes: Sequence[int | None], beats: Mapping[int, Beat], launcher_code: int, launcher_log: str
) -> str:
    """One sentence on why the ranks ended: the rank that left without a word comes before those
    that only report the loss of it."""
    said = {int(rank): int(code) for code, rank in _TORCHRUN_SAYS.findall(launcher_log)}
    silent_ranks = [rank for rank, code in enumerate(codes) if code is None]
    spoken = {rank: code for rank, code in enumerate(codes) if code}
    if silent_ranks:
        first = next((r for r in silent_ranks if r in said), silent_ranks[0])
        rest = [r for r in silent_ranks if r != first]
        tail = f"; ranks {_join(rest)} left no exit code either" if rest else ""
        return f"rank {first} {_death(said.get(first))}{_where(beats.get(first))}{tail}"
    if spoken:
        first = min(spoken, key=lambda r: (r not in said, r))
        return f"rank {first} left with exit code {spoken[first]}{_where(beats.get(first))}"
    return f"all ranks left with 0, the launcher with {launcher_code}"


def silent(
    beats: Mapping[int, Beat], processes: int, since: float, now: float, hang: float
) -> list[int]:
    """Ranks that have said nothing for `hang` seconds; `since` (monotonic) counts for a rank that
    has not spoken yet, and nothing before it counts against any."""
    out = []
    for rank in range(processes):
        last = max(since, beats[rank].monotonic) if rank in beats else since
        if now - last > hang:
            out.append(rank)
    return out


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by signal {-code}"
    if code is not None:
        return f"left with exit code {code} before it could say so"
    return "died without a word"


def _where(beat: Beat | None) -> str:
    return f" at step {beat.step} in {beat.phase}" if beat else " before its first heartbeat"


def _join(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
