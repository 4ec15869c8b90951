"""Where the planner's constants come from: `OMP_NUM_THREADS=1 python bench/plan_fit.py`.

One rank on one thread, in CPU seconds, so that other work on the machine hardly counts: the rate of
NumPy's products, then a real step (network, loss, gradient norm, AdamW) split in its parts, beside
what `eyas.plan.cost` says at that rate. Nine shapes: sequence, vocabulary, width and depth varied.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time

import torch

from eyas.model import initial_weights, network_from, projected_loss
from eyas.plan.cost import Work, seconds_by_kind
from eyas.plan.machine import _products
from eyas.plan.rates import _product
from eyas.shape import Layout, ModelShape, preset_shape

CASES = (
    ("nano-5m", 8, 256, {}),
    ("nano-5m", 4, 512, {}),
    ("nano-5m", 1, 2048, {}),
    ("nano-5m", 8, 256, {"vocab_size": 512}),
    ("nano-5m", 8, 256, {"vocab_size": 32768}),
    ("nano-5m", 8, 256, {"d_model": 512, "n_heads": 8, "d_ff": 2048}),
    ("nano-5m", 8, 256, {"n_layers": 12}),
    ("nano-1m", 8, 256, {}),
    ("nano-1m", 1, 64, {}),
)


def rate(shape: ModelShape, rows: int) -> float:
    """FLOP a CPU second of NumPy's products in this shape."""
    flops = seconds = 0.0
    for m, k, n, count in _products(shape, rows):
        run = _product(m, k, n)
        run()
        took = []
        for _ in range(3):
            begin = time.process_time()
            run()
            took.append(time.process_time() - begin)
        flops += count * 6 * m * k * n
        seconds += count * statistics.median(took)
    return flops / seconds


def step(shape: ModelShape, batch: int, sequence: int) -> list[float]:
    """CPU seconds of forward, loss, backward, optimizer: the second fastest of five each."""
    network = network_from(shape, initial_weights(shape, 1)).requires_grad_(True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(0, shape.vocab_size, (batch, sequence + 1))
    rows = []
    for _ in range(5):
        at = [time.process_time()]
        features = network.features(ids[:, :-1])
        at.append(time.process_time())
        loss, count = projected_loss(features, network.head_weight_VD, ids[:, 1:], None, 1e-4)
        at.append(time.process_time())
        (loss / count).backward()
        at.append(time.process_time())
        torch.nn.utils.get_total_norm([p.grad for p in network.parameters()])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        at.append(time.process_time())
        rows.append([b - a for a, b in itertools.pairwise(at)])
    return [sorted(column)[1] for column in zip(*rows, strict=True)]


def main() -> None:
    torch.set_num_threads(1)
    for preset, batch, sequence, change in CASES:
        shape = dataclasses.replace(preset_shape(preset), **change)
        found, speed = step(shape, batch, sequence), rate(shape, batch * sequence)
        work = Work(shape, Layout(micro_batch=batch), sequence, batch)
        planned = seconds_by_kind(work, speed)
        names = ("forward", "loss", "backward", "optimizer")
        print(
            f"{preset} {change or ''} {batch} x {sequence}: {speed / 1e9:.0f} GFLOP/s; "
            + ", ".join(f"{n} {s:.3f}" for n, s in zip(names, found, strict=True))
            + f"; planned {sum(planned.values()):.3f} s, taken {sum(found):.3f} s, "
            f"ratio {sum(found) / sum(planned.values()):.2f}"
        )


if __name__ == "__main__":
    main()
