"""A rank as a process: its signals, its threads, its files, its exit code."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

import torch

from eyas.recipe import EyasError, Recipe, UsageError
from eyas.store import Store

from .loop import train
from .mesh import rank_and_world
from .pages import keep_pages
from .rank_files import RankFiles

__all__ = ["run_rank"]

_log = logging.getLogger("eyas.train")
_DONE, _FAILED, _RESUMABLE, _NO_RETRY = 0, 1, 75, 93


def run_rank(recipe: Recipe, store: Store) -> int:
    """Train as this rank. Returns 0 (done) or 75 (stopped by SIGTERM or Ctrl-C at a commit); every
    other end raises. The code for the supervisor (93: do not retry) is left in EYAS_RUN_DIR."""
    rank, _ = rank_and_world()
    files = RankFiles(rank)
    stop = _stop_on_signal()
    keep_pages()
    torch.set_num_threads(_threads(recipe))
    code = _FAILED
    try:
        result = train(recipe, store, files, stop)
        code = _DONE if result.complete else _RESUMABLE
        return code
    except EyasError as error:
        never = isinstance(error, UsageError) or error.exit_code == _NO_RETRY
        code = _NO_RETRY if never else _FAILED
        raise
    except Exception as error:
        _log.exception("rank %d failed", rank)
        if isinstance(error, RuntimeError) and "gloo" in str(error):
            first = str(error).splitlines()[0]
            raise EyasError(f"rank {rank} lost contact with another rank: {first}") from error
        raise
    finally:
        files.leave(code)


def _stop_on_signal() -> Callable[[], bool]:
    """Whether SIGTERM or SIGINT has come; neither ends anything by itself, but a second SIGINT
    interrupts. Off the main thread they never come."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ask)
        signal.signal(signal.SIGINT, ask)
    return lambda: bool(asked)


def _threads(recipe: Recipe) -> int:
    """Threads of this rank: the recipe's, else its share of the cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", rank_and_world()[1]))
    return recipe.cluster.threads or max(1, len(os.sched_getaffinity(0)) // ranks)
