"""Where the seconds of a step go: phases that nest, each second counted in the innermost one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["PHASES", "Clock"]

PHASES = ("data", "compute", "communication", "optimizer", "checkpoint", "other")


class Clock:
    """`phase(name)` is a context; `announce` is told each outermost phase as it begins. Seconds
    outside any phase are "other"."""

    def __init__(self, announce: Callable[[str], None] = lambda phase: None) -> None:
        self._announce = announce
        self._stack = ["other"]
        self._since = time.perf_counter()
        self._seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside as `name`, one of PHASES."""
        if len(self._stack) == 1:
            self._announce(name)
        self._tick()
        self._stack.append(name)
        try:
            yield
        finally:
            self._tick()
            self._stack.pop()

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        self._tick()
        taken, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return taken

    def _tick(self) -> None:
        now = time.perf_counter()
        self._seconds[self._stack[-1]] += now - self._since
        self._since = now
