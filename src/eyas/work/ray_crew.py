"""Ray: the same workers on the machines of a cluster, one thin supervisor each.

A supervisor is an actor that takes one CPU of the cluster and runs one worker process, the very one
of the pool: the same deaths, the same verdicts, the same logs. Ray places the supervisors and tells
when one is lost with its machine; it holds no data and remembers nothing. The scheduler is ours and
the record is the ledger, so that a lost machine costs the shards that its workers held.

A machine needs this package, the store under the same URL and its own credentials: nothing of the
driver's environment is sent. Workers are looked for on the driver's `sys.path` too, which matters
where the machines share a file system.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from eyas.recipe import UsageError

from .contract import StageError
from .process import Message, WorkerProcess
from .verdicts import Death
from .worker import Order, Setup

__all__ = ["RayCrew"]

_PATIENCE = 30.0
_log = logging.getLogger("eyas.work")


class RayCrew:
    """Workers of a Ray cluster (a `Crew`, see schedule.py): the one of RAY_ADDRESS, else one that
    runs here, else one of this machine's cores, started now. The connection stays for the next
    call. `workers` 0 is one a CPU of the cluster, whose machines may come and go. Raises
    StageError if Ray is not installed or the cluster cannot be reached."""

    def __init__(self, setup: Setup, workers: int) -> None:
        self._ray = _connect()
        one_cpu = self._ray.remote(num_cpus=1, max_restarts=0, max_concurrency=2)
        self._supervisor = one_cpu(_Supervisor)
        self._setup = setup
        self._places = workers
        self._next = 0
        self._actors: dict[int, Any] = {}
        self._heard: dict[Any, int] = {}  # the answer that we wait for: of which worker
        self._met: set[int] = set()  # workers that have spoken: the others may have no place yet

    def places(self) -> int:
        if self._places:
            return self._places
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def workers(self) -> list[int]:
        return list(self._actors)

    def start(self) -> int:
        self._next += 1
        self._actors[self._next] = self._supervisor.remote(self._setup, list(sys.path))
        return self._next

    def send(self, worker: int, order: Order) -> None:
        self._actors[worker].send.remote(order)
        self._listen(worker)

    def hear(self) -> list[tuple[int, Message]]:
        while True:
            ready, _ = self._ray.wait(list(self._heard), num_returns=1, timeout=_PATIENCE)
            if ready:
                return [self._message(answer) for answer in ready]
            if not self._met:
                _log.warning("waiting for a free CPU of the Ray cluster")

    def _message(self, answer: Any) -> tuple[int, Message]:
        worker = self._heard.pop(answer)
        self._met.add(worker)
        try:
            message: Message = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            _log.debug("worker %d on Ray is lost: %s", worker, error)
            message = ("ended", Death("the loss of its Ray actor or machine"))
        if message[0] == "ended":
            self._ray.kill(self._actors.pop(worker))
        elif message[0] == "log":
            self._listen(worker)
        return worker, message

    def _listen(self, worker: int) -> None:
        self._heard[self._actors[worker].hear.remote()] = worker

    def end(self, workers: Sequence[int]) -> None:
        """Those that have a place unwind first, as they do in the pool; on a lost machine nobody
        answers."""
        self._heard = {answer: w for answer, w in self._heard.items() if w not in workers}
        actors = {worker: self._actors.pop(worker) for worker in workers}
        going = [actor.close.remote() for worker, actor in actors.items() if worker in self._met]
        if going:
            self._ray.wait(going, num_returns=len(going), timeout=_PATIENCE)
        for actor in actors.values():
            self._ray.kill(actor)


class _Supervisor:
    """The actor: a worker process of its machine."""

    def __init__(self, setup: Setup, path: Sequence[str]) -> None:
        here = [place for place in sys.path if place not in path]
        self._process = WorkerProcess(setup, [*path, *here])

    def send(self, order: Order) -> None:
        self._process.send(order)

    def hear(self) -> Message:
        return self._process.hear()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def _connect() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError("engine ray needs Ray: pip install 'eyas[ray]'") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = os.environ.get("RAY_ADDRESS", "")
        try:
            _check_answers(address)
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        except (OSError, RuntimeError, ValueError) as error:
            which = f"RAY_ADDRESS={address}" if address else "of this machine"
            raise StageError(f"the Ray cluster {which} cannot be used: {error}") from error
    return ray


def _check_answers(address: str) -> None:
    """Ray itself ends the program, after minutes, if nobody listens there."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
