"""Real ranks for tests: `run_ranks(fn, n, *args)` runs `fn(rank, world, *args)` in n processes that
share a gloo process group, and gives back what each returned.

Processes come from a fork server that has torch loaded, so a rank starts in tens of milliseconds.
The rendezvous is a file in a temporary folder: no port to be taken. `fn` must be importable (a
module's own function) and its arguments and result picklable. A rank that raises fails the test
with the rank's own traceback; `outcomes` instead gives each rank's end, also that of one killed.
"""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "RankFailed", "outcomes", "run_ranks"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "eyas.checkpoint"])


class RankFailed(AssertionError):
    """A rank raised, died or ran out of time; the message has its traceback."""


@dataclass(frozen=True)
class Outcome:
    """How a rank ended: its `result`, or its `error` (the exception's class name) with `trace`, or
    neither and an `exitcode` (-9: killed)."""

    rank: int
    exitcode: int | None
    result: Any = None
    error: str = ""
    trace: str = ""


def run_ranks(fn: Callable[..., Any], n: int, *args: Any, timeout: float = 60.0) -> list[Any]:
    """What each rank returned, in rank order. Raises RankFailed if any did not return."""
    ended = outcomes(fn, n, *args, timeout=timeout)
    bad = [o for o in ended if o.error or o.exitcode != 0]
    if bad:
        # the first cause is rarely "connection closed by peer"
        bad.sort(key=lambda o: "lost contact" in o.trace or "closed by peer" in o.trace)
        raise RankFailed(
            "\n".join(f"rank {o.rank} ended with {o.exitcode}: {o.trace or o.error}" for o in bad)
        )
    return [o.result for o in ended]


def outcomes(fn: Callable[..., Any], n: int, *args: Any, timeout: float = 60.0) -> list[Outcome]:
    """How each rank ended, in rank order. Ranks alive after `timeout` seconds are killed and raise
    RankFailed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ranks: list[tuple[BaseProcess, Connection]] = []
        for rank in range(n):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_rank_main,
                args=(theirs, fn, rank, n, str(Path(folder) / "meet"), dict(os.environ), args),
                daemon=True,
            )
            process.start()
            theirs.close()
            stack.callback(ours.close)
            stack.callback(_end, process)
            ranks.append((process, ours))
        return list(_collect(ranks, time.monotonic() + timeout))


def _collect(ranks: list[tuple[BaseProcess, Connection]], deadline: float) -> Iterator[Outcome]:
    """A rank's pipe ends with its message or with its death, whichever comes first."""
    for rank, (process, pipe) in enumerate(ranks):
        if not wait([pipe], max(0.0, deadline - time.monotonic())):
            raise RankFailed(f"rank {rank} did not end in time")
        try:
            result, error, trace = pipe.recv()
        except EOFError:
            result, error, trace = None, "", ""
        process.join(max(0.1, deadline - time.monotonic()))
        yield Outcome(rank, process.exitcode, result, error, trace)


def _end(process: BaseProcess) -> None:
    if process.is_alive():
        process.kill()
    process.join()


def _rank_main(
    pipe: Connection,
    fn: Callable[..., Any],
    rank: int,
    world: int,
    meet: str,
    environ: dict[str, str],
    args: tuple[Any, ...],
) -> None:
    os.environ.update(environ)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{meet}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=30),
        )
        message = (fn(rank, world, *args), "", "")
    except BaseException as error:  # noqa: BLE001 - told to the test
        message = (None, type(error).__name__, traceback.format_exc())
    pipe.send(message)
    if not message[1]:
        dist.destroy_process_group()
