"""What this machine can do: cores, memory, and the rate that bounds a training step.

The rate is measured, not looked up: the products of the very shapes that the model will multiply
(forward and both backward ones), in float32, for about a second, in as many processes at once as
the run will have ranks and with its threads a rank; ranks share caches, memory channels and the
clock, so one process measured alone promises too much. NumPy's BLAS stands in for torch's, so that
the planner needs no torch; how the two compare is a constant of `cost.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eyas.recipe import EyasError
from eyas.shape import ModelShape

__all__ = ["Machine", "cores", "measure_machine", "memory_bytes"]

_LARGEST = 1024  # sizes above this multiply no faster


@dataclass(frozen=True)
class Machine:
    """`matmul_rate` FLOP/s of one rank while all `processes` are busy, each with `threads`;
    `memory` bytes of the whole machine."""

    cores: int
    memory: int
    processes: int
    threads: int
    matmul_rate: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
        return max(1, min(found or 1, int(quota[0]) // int(quota[1])))
    return found or 1


def memory_bytes() -> int:
    """Bytes of memory that the machine, or its container, has in all."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _first_line("/sys/fs/cgroup/memory.max"),
        _first_line("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    return min([total, *(int(limit) for limit in limits if limit.isdigit())])


def measure_machine(
    shape: ModelShape | None = None,
    rows: int = _LARGEST,
    processes: int = 1,
    threads: int = 0,
    seconds: float = 1.0,
) -> Machine:
    """Measure, for a model of `shape` (a middling one if None) that multiplies `rows` tokens at a
    time in `processes` ranks of `threads` threads (0: the cores shared out).

    Takes `seconds` and the start of the processes. Raises EyasError if one of them fails.
    """
    threads = threads or max(1, cores() // processes)
    request = json.dumps({"products": _products(shape, rows), "seconds": seconds})
    answers = _in_processes(request, processes, threads)
    return Machine(
        cores=cores(),
        memory=memory_bytes(),
        processes=processes,
        threads=threads,
        matmul_rate=min(answer["matmul_rate"] for answer in answers),
    )


def _products(shape: ModelShape | None, rows: int) -> list[tuple[int, int, int, int]]:
    """(tokens, inputs, outputs, how many such matrices) of a step, sizes cut where larger ones
    would only take longer to measure."""
    if shape is None:
        return [(_LARGEST, 512, 512, 1)]
    width, heads = shape.d_model, shape.n_heads * shape.head_dim
    groups = shape.n_kv_heads * shape.head_dim
    layers = shape.n_layers
    sizes = [
        (width, heads, layers),
        (width, groups, 2 * layers),
        (heads, width, layers),
        (width, shape.d_ff, (2 if shape.activation == "swiglu" else 1) * layers),
        (shape.d_ff, width, layers),
        (width, shape.vocab_size, 1),
    ]
    cut = [(min(rows, _LARGEST), min(a, _LARGEST), min(b, _LARGEST), n) for a, b, n in sizes]
    # A matrix that is cut must keep its weight in the mean.
    return [
        (m, a, b, max(1, round(n * full_a * full_b / (a * b))))
        for (m, a, b, n), (full_a, full_b, _) in zip(cut, sizes, strict=True)
    ]


def _in_processes(request: str, processes: int, threads: int) -> list[dict[str, float]]:
    """Start all, wait until each has warmed up, let all go at once, and collect."""
    count = str(threads)
    environment = os.environ | {
        name: count for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    argv = [sys.executable, "-m", "eyas.plan.rates", request]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            for _ in range(processes)
        ]
        try:
            for process in started:
                _line(process)
            for process in started:
                _let_go(process)
            return [json.loads(_line(process)) for process in started]
        finally:
            for process in started:
                process.kill()


def _let_go(process: subprocess.Popen[str]) -> None:
    """The line that it waits for. One that has died is found when its answer is read."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("go\n")
        process.stdin.close()


def _line(process: subprocess.Popen[str]) -> str:
    """Its next line, or EyasError with the last line of its complaint."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    if not line:
        error = process.stderr.read().strip().splitlines() or ["no message"]
        raise EyasError(f"this machine's speed could not be measured: {error[-1]}")
    return line


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()[0].strip()
    except (OSError, IndexError):
        return ""
