"""The process that measures: `python -m eyas.plan.rates '{"products": ..., "seconds": ...}'`.

It warms up, says "ready", waits for a line, measures, answers one line of JSON. Started by
`machine.py`, several at once, with the threads of its BLAS set in the environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["main"]


def main(argv: list[str]) -> int:
    request = json.loads(argv[0])
    products = [(_product(*sizes[:3]), *sizes) for sizes in request["products"]]
    for run, *_ in products:
        run()
    print("ready", flush=True)
    sys.stdin.readline()
    each = request["seconds"] / len(products)
    seconds = flops = 0.0
    for run, m, k, n, count in products:
        flops += count * 6 * m * k * n
        seconds += count * _seconds_a_run(run, each)
    print(json.dumps({"matmul_rate": flops / seconds}), flush=True)
    return 0


def _product(m: int, k: int, n: int) -> Callable[[], Any]:
    """Forward and both backward products of a linear layer."""
    x, w, g = (np.full(size, 0.5, np.float32) for size in ((m, k), (n, k), (m, n)))

    def run() -> None:
        x @ w.T
        g @ w
        g.T @ x

    return run


def _seconds_a_run(run: Callable[[], Any], limit: float) -> float:
    """Mean wall time over about `limit` seconds, at least twice."""
    start, n = time.perf_counter(), 0
    while n < 2 or time.perf_counter() - start < limit:
        run()
        n += 1
    return (time.perf_counter() - start) / n


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
