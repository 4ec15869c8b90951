"""One worker process: takes a shard from its parent, runs it, commits it to the ledger, says so.

It is a fresh interpreter (a fork would copy locks held by other threads), started by `process.py`
with one end of a socket pair. The first message is the set-up, then shards one at a time. Answers
are `("ready",)` when it can take a shard, `("done", record)`, `("error", sentence, traceback)`, and
`("log", fields)` for the parent's logging: each worker has its own connection, so one killed in the
middle of a word disturbs no other. A thread reads the connection; when the parent is gone or has
closed it, the worker stops itself. SIGTERM unwinds (temporary files and multipart uploads are
cleaned up), SIGINT is the parent's to handle.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from eyas.recipe import EyasError
from eyas.store import Store, open_store

from .contract import RunShard, Shard, Stage, encode_result, load_run, plain
from .items import note_items_in
from .ledger import record

__all__ = ["Setup", "Task", "main"]

_GRACE = 5.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
Task = tuple[Shard, str]


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know once. `levels` are logger names with their levels."""

    store: str
    stage: Stage
    code: str
    levels: dict[str, int]


class _Stopped(BaseException):
    """SIGTERM, or the parent is gone."""


def main(descriptor: int, recorder: int) -> None:
    """The life of a worker on the inherited socket and flight recorder."""
    os.set_inheritable(descriptor, False)
    os.set_inheritable(recorder, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    note_items_in(recorder)
    connection: Connection[Any, Any] = Connection(descriptor)
    sending = threading.Lock()

    def send(*message: Any) -> None:
        with sending:
            connection.send(message)

    try:
        setup: Setup = connection.recv()
        _forward_logs(setup, send)
        _serve(setup, _tasks(connection), send)
    except (_Stopped, EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(143)


def _serve(setup: Setup, tasks: queue.Queue[Task], send: Any) -> None:
    try:
        store, run = open_store(setup.store), load_run(setup.stage)
    except _Stopped:
        raise
    except BaseException as error:  # noqa: BLE001 a module may raise anything; the parent decides
        send("error", _sentence(error), traceback.format_exc())
        return
    send("ready")
    while True:
        task = tasks.get()
        try:
            answer = ("done", _run_recorded(store, setup, run, *task))
        except _Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 a shard may raise anything; the parent decides
            send("error", _sentence(error), traceback.format_exc())
        else:
            send(*answer)


def _run_recorded(
    store: Store, setup: Setup, run: RunShard, shard: Shard, key: str
) -> dict[str, Any]:
    """Run one shard and commit it; returns the standing result, JSON-able."""
    started, cpu_started = time.monotonic(), time.process_time()
    result = run(store, setup.stage, shard)
    about = {
        "code": setup.code,
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
        "host": socket.gethostname(),
    }
    return plain(encode_result(record(store, setup.stage, shard, key, result, about)))


def _sentence(error: BaseException) -> str:
    if isinstance(error, EyasError):
        return str(error)
    return traceback.format_exception_only(error)[-1].strip()


def _tasks(connection: Connection[Any, Any]) -> queue.Queue[Task]:
    """Tasks as they arrive. When the parent is gone the process is told to stop, and made to if it
    has not within the grace time."""
    tasks: queue.Queue[Task] = queue.Queue()

    def read() -> None:
        try:
            while True:
                tasks.put(connection.recv())
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_GRACE)
            os._exit(143)

    threading.Thread(target=read, name="parent", daemon=True).start()
    return tasks


def _stop(*_: object) -> None:
    raise _Stopped


def _forward_logs(setup: Setup, send: Any) -> None:
    class Forward(logging.handlers.QueueHandler):
        def enqueue(self, record: logging.LogRecord) -> None:
            plain_fields = (type(None), str, int, float, bool)
            fields = {k: v for k, v in vars(record).items() if isinstance(v, plain_fields)}
            send("log", fields)

    logging.getLogger().handlers[:] = [Forward(queue.SimpleQueue())]
    for name, level in setup.levels.items():
        logging.getLogger(name).setLevel(level)
