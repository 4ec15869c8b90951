"""What a rank leaves for the supervisor of its host, in the folder EYAS_RUN_DIR.

`rank-R.beat` is one line of JSON, overwritten in place with a single write (a few microseconds, so
every phase of every step can be told); `rank-R.exit` its exit code; `rank-R.stacks` what
faulthandler writes on SIGUSR1. Without a supervisor there is no folder and nothing is written.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import time
from pathlib import Path

__all__ = ["RankFiles"]

_WIDTH = 240
_PR_SET_PDEATHSIG = 1


class RankFiles:
    """The files of one rank. From here on SIGUSR1 dumps stacks, and SIGKILL follows the death of
    the launcher, so that no rank outlives its job."""

    def __init__(
        self, rank: int, folder: str | None = None, die_with_launcher: bool = True
    ) -> None:
        self._rank = rank
        self._step = 0
        self._phase = "starting"
        named = folder or os.environ.get("EYAS_RUN_DIR")
        self._folder = Path(named) if named else None
        self._file = -1
        if self._folder is None:
            return
        self._stacks = (self._folder / f"rank-{rank}.stacks").open("w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True)
        if die_with_launcher:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        path = self._folder / f"rank-{rank}.beat"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._beat()

    def phase(self, name: str) -> None:
        """Now in this phase."""
        self._phase = name
        self._beat()

    def step(self, number: int) -> None:
        """This step begins."""
        self._step = number
        self.phase("data")

    def leave(self, code: int) -> None:
        """The exit code, before the process ends."""
        if self._folder is not None:
            (self._folder / f"rank-{self._rank}.exit").write_text(str(code), encoding="utf-8")

    def _beat(self) -> None:
        if self._file < 0:
            return
        line = {
            "rank": self._rank,
            "pid": os.getpid(),
            "step": self._step,
            "phase": self._phase,
            "time": round(time.time(), 3),
            "monotonic": round(time.monotonic(), 3),
        }
        os.pwrite(self._file, json.dumps(line).ljust(_WIDTH).encode() + b"\n", 0)
