"""The scheduler: shards to workers, one in flight each, whatever dies meanwhile.

It is the same over every engine. An engine is a `Crew`: something that starts workers and hears
them; those that are idle when a stage ends wait for the next one. A worker that dies costs the
shard that it held, which runs again, first in line; what the death means for the shard and its item
is decided in verdicts.py. An exception that the shard raised is deterministic and is not retried:
no further shard is handed out, those running finish and are recorded, then StageError. The same for
one worker as for many, so that limits and behaviour do not depend on the count.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eyas.store import Store

from .contract import Shard, ShardResult, Stage, StageError, decode_result
from .process import Message
from .verdicts import Death, commit_refusal, hopeless, refuse
from .worker import Order, Task

__all__ = ["Crew", "run_tasks"]

STARTS = 20  # workers that died before any was ready, one after another
_log = logging.getLogger("eyas.work")


class Crew(Protocol):
    """Workers, by number. A message is what a worker said (see worker.py), or ("ended", Death),
    after which the worker is no more."""

    def places(self) -> int:
        """How many workers there may be at a time; may change."""
        ...

    def workers(self) -> list[int]:
        """Those that have been started and have not ended, as far as is known."""
        ...

    def start(self) -> int:
        """A new worker, which is to be sent a stage."""
        ...

    def send(self, worker: int, order: Order) -> None:
        """A stage, which the worker answers with ("ready",), or a shard of it; one at a time."""
        ...

    def hear(self) -> list[tuple[int, Message]]:
        """Wait for at least one message; at most one a worker."""
        ...

    def end(self, workers: Sequence[int]) -> None:
        """End these workers, busy ones too."""
        ...


@dataclass
class _Task:
    shard: Shard
    key: str
    deaths: list[Death] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)


def run_tasks(
    store: Store,
    stage: Stage,
    tasks: Sequence[Task],
    crew: Crew,
    done: Callable[[str, ShardResult], None],
) -> None:
    """Run all `tasks` (shard, key); `done(key, result)` is called as each is committed. Of the
    workers, those stay that wait for work.

    Raises StageError for the first shard that failed, after the running ones have finished.
    """
    run = _Run(store, stage, [_Task(*task) for task in tasks], crew, done)
    run.recall()
    while run.hand_out():
        for worker, message in crew.hear():
            run.take(worker, message)
    run.leave()
    if run.failure:
        raise run.failure


class _Run:
    """What the parent knows: who holds what, what waits, the first failure."""

    def __init__(
        self,
        store: Store,
        stage: Stage,
        tasks: Sequence[_Task],
        crew: Crew,
        done: Callable[[str, ShardResult], None],
    ) -> None:
        self.failure: StageError | None = None
        self._store = store
        self._stage = stage
        self._waiting = deque(tasks)
        self._crew = crew
        self._done = done
        self._starting: set[int] = set()  # told of the stage and not ready yet
        self._recalled: set[int] = set()
        self._idle: set[int] = set()
        self._held: dict[int, _Task] = {}
        self._lost_starts = 0

    def recall(self) -> None:
        """Tell the stage to the workers of the one before; those that it cannot use end: a task
        that nobody shares may need their memory, or others their places in the cluster."""
        before = self._crew.workers()
        useful = min(self._crew.places(), len(self._waiting))
        self._crew.end(before[useful:])
        self._recalled = set(before[:useful])
        for worker in before[:useful]:
            self._tell(worker)

    def leave(self) -> None:
        """Who is not ready by now was not needed."""
        self._crew.end(sorted(self._starting))

    def _tell(self, worker: int) -> None:
        self._starting.add(worker)
        self._crew.send(worker, self._stage)

    def hand_out(self) -> bool:
        """Give what waits to whom is ready; False when there is nothing more to hear."""
        while self._waiting and self._idle and not self.failure:
            worker = self._idle.pop()
            self._held[worker] = task = self._waiting.popleft()
            self._crew.send(worker, (task.shard, task.key))
        if not self._held and (self.failure or not self._waiting):
            return False
        if not self.failure:
            useful = len(self._held) + len(self._waiting)
            workers = len(self._held) + len(self._idle) + len(self._starting)
            for _ in range(min(self._crew.places(), useful) - workers):
                self._tell(self._crew.start())
        return True

    def take(self, worker: int, message: Message) -> None:
        """One message of one worker, or its end."""
        kind, *rest = message
        if kind == "log":
            _log_here(*rest)
        elif kind == "ended":
            self._bury(worker, *rest)
        elif kind == "ready":
            self._lost_starts = 0
            self._starting.discard(worker)
            self._idle.add(worker)
        elif kind == "done":
            task = self._held.pop(worker)
            self._idle.add(worker)
            self._done(task.key, decode_result(rest[0]))
        elif worker in self._starting:
            self._fail(None, *rest)
        else:
            task = self._held.pop(worker)
            self._idle.add(worker)
            self._fail(task, *rest)

    def _bury(self, worker: int, death: Death) -> None:
        self._idle.discard(worker)
        task = self._held.pop(worker, None)
        if worker in self._starting:
            self._starting.discard(worker)
            self._lost_starts += worker not in self._recalled
            _log.warning("a worker died before it was ready (%s)", death.how)
            if self._lost_starts >= STARTS:
                self._fail(None, f"{STARTS} workers died before one was ready, last by {death.how}")
        elif task is not None:
            self._judge(task, death)

    def _judge(self, task: _Task, death: Death) -> None:
        """The worker died with this shard: it is first in line again, unless it is hopeless."""
        task.deaths.append(death)
        name = task.shard.name
        place = f" at {death.item}" if death.item else ""
        _log.warning("a worker died with shard %s (%s%s)", name, death.how, place)
        refusal = refuse(task.deaths)
        if refusal is not None and death.item is not None:
            if death.item in task.refused:
                self._fail(task, f"item {death.item} was refused and yet tried again")
                return
            _log.warning("%s is refused from now on: %s", death.item, refusal.detail)
            commit_refusal(self._store, self._stage, name, death.item, refusal)
            task.refused.add(death.item)
            task.deaths.clear()
        elif why := hopeless(task.deaths):
            self._fail(task, why)
            return
        self._waiting.appendleft(task)

    def _fail(self, task: _Task | None, sentence: str, details: str = "") -> None:
        where = f"stage {self._stage.name}" + (f", shard {task.shard.name}" if task else "")
        _log.debug("%s failed: %s\n%s", where, sentence, details)
        self.failure = self.failure or StageError(f"{where}: {sentence}", details)


def _log_here(fields: dict[str, object]) -> None:
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
