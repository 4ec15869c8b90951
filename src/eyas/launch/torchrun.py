"""How the ranks of one host are started: torchrun, with no restarts of its own.

Run as a module (`python -m eyas.launch.torchrun …`) it is torchrun that gets SIGTERM when the
supervisor dies without a word, so that even then the ranks checkpoint and leave.
"""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

from .processes import die_with_parent

__all__ = ["torchrun"]


def torchrun(argv: list[str], processes: int, logs: Path) -> list[str]:
    """The command that starts `python *argv` once a rank, each with its output in files below
    `logs`, on loopback. `argv` is `["-m", MODULE, …]` or `[SCRIPT, …]`."""
    return [
        sys.executable,
        "-m",
        "eyas.launch.torchrun",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={processes}",
        "--max-restarts=0",
        "--monitor-interval=0.1",
        "--redirects=3",
        f"--log-dir={logs}",
        *argv,
    ]


if __name__ == "__main__":
    die_with_parent(signal.SIGTERM)
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
