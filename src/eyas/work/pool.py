"""The process pool, the default engine: worker processes of this machine.

Each worker has its own socket and one shard in flight, so that a death costs exactly the shard that
it held. Why not concurrent.futures: there a killed worker breaks the whole pool, and its shared
queue lock can be held by the dead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from .process import Message, WorkerProcess
from .worker import Order, Setup

__all__ = ["Pool"]


class Pool:
    """Workers of this machine (a `Crew`, see schedule.py)."""

    def __init__(self, setup: Setup, workers: int) -> None:
        self._setup = setup
        self._places = workers or _cores()
        self._next = 0
        self._workers: dict[int, WorkerProcess] = {}

    def places(self) -> int:
        return self._places

    def workers(self) -> list[int]:
        return list(self._workers)

    def start(self) -> int:
        self._next += 1
        self._workers[self._next] = WorkerProcess(self._setup, sys.path)
        return self._next

    def send(self, worker: int, order: Order) -> None:
        self._workers[worker].send(order)

    def hear(self) -> list[tuple[int, Message]]:
        by_connection: dict[Connection[Any, Any], int] = {
            process.connection: worker for worker, process in self._workers.items()
        }
        return [
            (worker, self._hear(worker))
            for worker in (by_connection[c] for c in wait(list(by_connection)))  # type: ignore[index]
        ]

    def _hear(self, worker: int) -> Message:
        message = self._workers[worker].hear()
        if message[0] == "ended":
            del self._workers[worker]
        return message

    def end(self, workers: Sequence[int]) -> None:
        going = [self._workers.pop(worker) for worker in workers]
        for process in going:
            process.terminate()
        for process in going:
            process.wait()


def _cores() -> int:
    """Those that this process may use: an array job is given a few of the machine's."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
