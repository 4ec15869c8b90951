"""Progress of anything that takes over two seconds: a bar on a terminal, a log line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["progress"]

_DELAY = 2.0
_LOG_EVERY = 30.0
_log = logging.getLogger("eyas.work")


@contextlib.contextmanager
def progress(title: str, total: float, unit: str = "") -> Iterator[Callable[[float], None]]:
    """`with progress("extract pages", total=n) as advance: advance(1)`. With the unit "bytes"
    sizes and speed are shown as such.

    Shows nothing within the first two seconds. When stderr is not a terminal there is no bar, and
    an INFO line to the log every 30 seconds. `advance` may be called from any thread.
    """
    if sys.stderr.isatty():
        with _bar(title, total, unit) as advance:
            yield advance
    else:
        yield _lines(title, total)


@contextlib.contextmanager
def _bar(title: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    counts = (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else ()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *(counts or (MofNCompleteColumn(),)),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=total)
    timer = threading.Timer(_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda amount: bar.advance(task, amount)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _lines(title: str, total: float) -> Callable[[float], None]:
    lock = threading.Lock()
    done = 0.0
    last = time.monotonic()

    def advance(amount: float) -> None:
        nonlocal done, last
        with lock:
            done += amount
            if time.monotonic() - last < _LOG_EVERY:
                return
            last = time.monotonic()
        _log.info("%s: %g of %g", title, done, total)

    return advance
