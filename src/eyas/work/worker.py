"""One worker process: takes a shard from its parent, runs it, commits it to the ledger, says so.

It is a fresh interpreter (a fork would copy locks held by other threads), started by `process.py`
with one end of a socket pair. The first message is the set-up, then come orders: a stage, and
shards of it one at a time, until another stage. Answers are `("ready",)` when it can take shards of
the stage, `("done", record)`, `("error", sentence, traceback)`, and `("log", fields)` for the
parent's logging: each worker has its own connection, so one killed in the middle of a word disturbs
no other. A thread reads the connection; when the parent is gone or has closed it, the worker stops
itself. SIGTERM unwinds (temporary files and multipart uploads are cleaned up), SIGINT is the
parent's to handle.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import queue
import re
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from eyas.recipe import EyasError
from eyas.store import Store, open_store

from .contract import RunShard, Shard, Stage, encode_result, load_run, plain
from .items import note_items_in
from .ledger import record

__all__ = ["Order", "Setup", "Task", "main"]

_GRACE = 5.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PEAK = re.compile(r"VmHWM:\s*(\d+) kB")
Task = tuple[Shard, str]  # with its key
Order = Stage | Task


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know once. `levels` are logger names with their levels."""

    store: str
    code: str
    levels: dict[str, int]


@dataclass(frozen=True)
class _Opened:
    """A stage that the worker is ready for."""

    store: Store
    stage: Stage
    run: RunShard
    code: str


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
        _serve(setup, _orders(connection), send)
    except (_Stopped, EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(143)


def _serve(setup: Setup, orders: queue.Queue[Order], send: Any) -> None:
    opened: _Opened | None = None
    while True:
        order = orders.get()
        try:
            answer: tuple[Any, ...]
            if isinstance(order, Stage):
                opened = _Opened(open_store(setup.store), order, load_run(order), setup.code)
                _forget_peak()
                answer = ("ready",)
            else:
                assert opened is not None
                answer = ("done", _run_recorded(opened, *order))
        except _Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 anything may be raised; the parent decides
            answer = ("error", _sentence(error), traceback.format_exc())
        send(*answer)


def _run_recorded(opened: _Opened, shard: Shard, key: str) -> dict[str, Any]:
    """Run one shard and commit it; returns the standing result, JSON-able."""
    store, stage = opened.store, opened.stage
    started, cpu_started = time.monotonic(), time.process_time()
    result = opened.run(store, stage, shard)
    about = {
        "code": opened.code,
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
        "peak_bytes": _peak_bytes(),
        "host": socket.gethostname(),
    }
    return plain(encode_result(record(store, stage, shard, key, result, about)))


def _forget_peak() -> None:
    """An earlier stage's; where it cannot be forgotten it counts on."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    """Not getrusage's figure where there is a better one: that begins at the parent's size, which
    exec hands on."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def _sentence(error: BaseException) -> str:
    if isinstance(error, EyasError):
        return str(error)
    return traceback.format_exception_only(error)[-1].strip()


def _orders(connection: Connection[Any, Any]) -> queue.Queue[Order]:
    """Orders as they arrive. When the parent is gone the process is told to stop, and made to if it
    has not within the grace time."""
    orders: queue.Queue[Order] = queue.Queue()

    def read() -> None:
        try:
            while True:
                orders.put(connection.recv())
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_GRACE)
            os._exit(143)

    threading.Thread(target=read, name="parent", daemon=True).start()
    return orders


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
