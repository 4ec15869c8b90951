"""One worker as its parent sees it: a fresh interpreter, a socket, a flight recorder.

Started as `python -c …` and not by `multiprocessing` or a fork: no lock of another thread is
copied, and the calling script needs no `if __name__ == "__main__"`. The end of the worker is the
end of its socket: `hear` then says how it ended and at which item.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import Any

from .items import read_note, recorder
from .verdicts import Death
from .worker import Setup

__all__ = ["Message", "WorkerProcess"]

Message = tuple[Any, ...]  # what a worker says (see worker.py), or ("ended", Death)

_GRACE = 10.0
_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from eyas.work.worker import main; main({}, {})"
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


class WorkerProcess:
    """A worker of this machine, with the parent's environment. `connection` can be waited for."""

    def __init__(self, setup: Setup, path: Sequence[str]) -> None:
        self.connection, theirs = Pipe()
        self._recorder = recorder()
        given = (theirs.fileno(), self._recorder.fileno())
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT.format(*given), "eyas-worker", *path],
            pass_fds=given,
            env=environment | {"TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.send(setup)

    def send(self, message: Any) -> None:
        """To a worker that is gone, nothing: `hear` will tell."""
        try:
            self.connection.send(message)
        except OSError:
            return

    def hear(self) -> Message:
        """The next message; ("ended", Death) when there will be no other."""
        try:
            message: Message = self.connection.recv()
            return message
        except (EOFError, OSError):
            code = self._process.wait()
        note = read_note(self._recorder)
        return "ended", Death(_how(code), *(note or ()))

    def terminate(self) -> None:
        """Tell it to give up what it holds and go."""
        self._process.terminate()

    def wait(self) -> None:
        """Until it is gone, killed if it has not gone within the grace time."""
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
