"""Processes by the mark in their environment, so that none is ever left behind.

torchrun puts every rank into a session of its own, so one process group does not hold a job. What
all descendants share is the environment they were started with: the supervisor sets one variable
whose value is unique to a start, and whoever carries it is ours, whatever its parent or session is
by now. Linux `/proc` is read directly; a process that vanishes meanwhile is simply not listed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

__all__ = ["children", "die_with_parent", "kill_marked", "marked", "state"]

_PR_SET_PDEATHSIG = 1


def marked(name: str, value: str) -> list[int]:
    """Process ids, ascending, that were started with `name=value` and are not zombies."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        pid = int(entry.name)
        if wanted in environment.split(b"\0") and state(pid) not in ("", "Z", "X"):
            found.append(pid)
    return sorted(found)


def children(pid: int) -> list[int]:
    """Direct children of a process, ascending."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[1:2] == [str(pid)]:
            found.append(int(entry.name))
    return sorted(found)


def state(pid: int) -> str:
    """The state letter of `ps` (R, S, D, T stopped, Z zombie …), or "" when there is none."""
    return (_stat(pid) or [""])[0]


def kill_marked(name: str, value: str, patience: float = 10.0) -> list[int]:
    """SIGKILL every marked process until none is left; returns those that would not die (a process
    in uninterruptible sleep) within `patience` seconds. The caller itself is spared."""
    end = time.monotonic() + patience
    while True:
        left = [pid for pid in marked(name, value) if pid != os.getpid()]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            _reap(pid)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)


def die_with_parent(sign: int) -> None:
    """Ask the kernel to send `sign` to this process when its parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0)


def _reap(pid: int) -> None:
    """Take the exit status of an orphan that became our child (we may be PID 1)."""
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command: state, parent, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
