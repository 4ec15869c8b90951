"""How long `eyas --help` takes, beside a bare interpreter and a rival's command line.

    python bench/help.py

Runs each in turn, 15 times, in one process tree; prints medians of CPU seconds and the ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

EYAS = str(Path(sys.executable).with_name("eyas"))
TRANSFORMERS = str(Path(sys.executable).with_name("transformers"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "eyas --help": [EYAS, "--help"],
    "transformers --help": [TRANSFORMERS, "--help"],
}


def _once(command: list[str]) -> tuple[float, float]:
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return cpu, time.perf_counter() - start


def main() -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(15):
        for name, command in COMMANDS.items():
            taken[name].append(_once(command))
    base = statistics.median(cpu for cpu, _ in taken["eyas --help"])
    for name, pairs in taken.items():
        cpu = statistics.median(c for c, _ in pairs)
        wall = statistics.median(w for _, w in pairs)
        print(f"{name:<22} {cpu:6.3f} CPU-s  {wall:6.3f} s  x{cpu / base:.2f}")


if __name__ == "__main__":
    main()
