"""The process pool: shards to worker processes, one in flight each; the default engine.

Each worker is a fresh interpreter with its own socket. The end of a worker is the end of its
socket, so a death costs exactly the shard it held: a new worker is started and the shard runs
again, at most `RETRIES` times. An exception that the shard raised is deterministic and is not
retried: no further shard is handed out, those running finish and are recorded, then StageError.
The same for one worker as for many, so that limits and behaviour do not depend on the count.

Why not concurrent.futures: there a killed worker breaks the whole pool, and its shared queue lock
can be held by the dead.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from .contract import Shard, ShardResult, StageError, decode_result
from .worker import Setup

__all__ = ["RETRIES", "run_pool"]

RETRIES = 3
_GRACE = 10.0
_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from eyas.work.worker import main; main({})"
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
_log = logging.getLogger("eyas.work")


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    task: int | None = None


@dataclass
class _Failure:
    task: int
    sentence: str
    details: str = ""


@dataclass
class _State:
    """What the parent knows: shards to hand out, deaths a shard, the first failure."""

    waiting: deque[int]
    deaths: dict[int, int] = field(default_factory=dict)
    failure: _Failure | None = None


def run_pool(
    setup: Setup,
    tasks: Sequence[tuple[Shard, str]],
    workers: int,
    done: Callable[[int, ShardResult], None],
) -> None:
    """Run all `tasks` (shard, key); `done(index, result)` is called as each is committed.

    Raises StageError for the first shard that failed, after the running ones have finished.
    """
    state = _State(deque(range(len(tasks))))
    crew: list[_Worker] = []
    try:
        while True:
            _hand_out(setup, tasks, state, crew, workers)
            busy = {w.connection: w for w in crew if w.task is not None}
            if not busy:
                break
            for connection in wait(list(busy)):
                _hear(busy[connection], tasks, state, crew, done)  # type: ignore[index]
        _dismiss(crew)
    finally:
        _stop(crew)
    if state.failure:
        failed = tasks[state.failure.task][0].name
        raise StageError(
            f"stage {setup.stage.name}, shard {failed}: {state.failure.sentence}",
            state.failure.details,
        )


def _hand_out(
    setup: Setup,
    tasks: Sequence[tuple[Shard, str]],
    state: _State,
    crew: list[_Worker],
    workers: int,
) -> None:
    if state.failure:
        return
    while state.waiting:
        worker = next((w for w in crew if w.task is None), None)
        if worker is None:
            if len(crew) >= workers:
                return
            worker = _start(setup)
            crew.append(worker)
        worker.task = state.waiting.popleft()
        try:
            worker.connection.send(tasks[worker.task])
        except OSError:
            _bury(worker, tasks, state, crew)


def _hear(
    worker: _Worker,
    tasks: Sequence[tuple[Shard, str]],
    state: _State,
    crew: list[_Worker],
    done: Callable[[int, ShardResult], None],
) -> None:
    """One message of one worker, or its end."""
    assert worker.task is not None
    try:
        kind, *rest = worker.connection.recv()
    except (EOFError, OSError):
        _bury(worker, tasks, state, crew)
        return
    if kind == "log":
        record = logging.makeLogRecord(rest[0])
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
        return
    index, worker.task = worker.task, None
    if kind == "done":
        done(index, decode_result(rest[0]))
    else:
        sentence, details = rest
        _log.debug("shard %s failed:\n%s", tasks[index][0].name, details)
        state.failure = state.failure or _Failure(index, sentence, details)


def _bury(
    worker: _Worker, tasks: Sequence[tuple[Shard, str]], state: _State, crew: list[_Worker]
) -> None:
    """The worker died: its shard is waiting again, first in line, unless it died too often."""
    worker.connection.close()
    crew.remove(worker)
    how = _how(worker.process.wait())
    if worker.task is None:
        return
    name = tasks[worker.task][0].name
    deaths = state.deaths[worker.task] = state.deaths.get(worker.task, 0) + 1
    if deaths > RETRIES:
        sentence = (
            f"its worker died {deaths} times, last {how}; if the machine ran out of memory, "
            "run with fewer workers"
        )
        state.failure = state.failure or _Failure(worker.task, sentence)
        return
    _log.warning("a worker died (%s); shard %s runs again (%d of %d)", how, name, deaths, RETRIES)
    state.waiting.appendleft(worker.task)


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _start(setup: Setup) -> _Worker:
    ours, theirs = Pipe()
    descriptor = theirs.fileno()
    environment = os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-c", _BOOT.format(descriptor), "eyas-worker", *sys.path]
    process = subprocess.Popen(
        command, pass_fds=[descriptor], env=environment, stdin=subprocess.DEVNULL
    )
    theirs.close()
    worker = _Worker(process, ours)
    try:
        ours.send(setup)
    except OSError:
        _log.debug("worker %d was gone before it began", process.pid)
    return worker


def _dismiss(crew: list[_Worker]) -> None:
    """Idle workers are told to go."""
    for worker in crew:
        try:
            worker.connection.send(None)
        except OSError:
            continue


def _stop(crew: list[_Worker]) -> None:
    """No worker outlives the call: one whose connection closes stops itself, and is killed if it
    has not within the grace time."""
    for worker in crew:
        worker.connection.close()
    for worker in crew:
        try:
            worker.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
