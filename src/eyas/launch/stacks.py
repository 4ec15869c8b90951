"""Stacks of ranks on request: SIGUSR1 makes faulthandler write them to `rank-R.stacks`.

Only a rank that has a heartbeat is asked, because by then it has registered the handler; without
one SIGUSR1 would kill it. A rank that does not answer is stopped or in the kernel, which its
process state tells.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from .processes import state
from .ranks import Beat

__all__ = ["take_stacks"]

_PATIENCE = 3.0


def take_stacks(folder: Path, beats: Mapping[int, Beat]) -> dict[int, bytes]:
    """Ask all ranks at once; each one's answer (UTF-8 text) below a line that says where it is."""
    files = {rank: folder / f"rank-{rank}.stacks" for rank in beats}
    before = {rank: _size(path) for rank, path in files.items()}
    for beat in beats.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(beat.pid, signal.SIGUSR1)
    _wait_until_written(files, before)
    answers = {}
    for rank, beat in beats.items():
        text = files[rank].read_bytes()[before[rank] :] if files[rank].exists() else b""
        head = f"rank {rank}, pid {beat.pid}, state {state(beat.pid) or 'gone'}, "
        head += f"step {beat.step}, {beat.phase}\n"
        answers[rank] = head.encode() + (text or b"no answer to SIGUSR1\n")
    return answers


def _wait_until_written(files: Mapping[int, Path], before: Mapping[int, int]) -> None:
    """Until every file has grown and stands still, or patience ends."""
    end = time.monotonic() + _PATIENCE
    last: dict[int, int] = {}
    while time.monotonic() < end:
        sizes = {rank: _size(path) for rank, path in files.items()}
        if sizes == last and all(sizes[rank] > before[rank] for rank in files):
            return
        last = sizes
        time.sleep(0.05)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
