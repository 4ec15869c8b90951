"""How good the shuffle is: our order against a true permutation of all samples.

    python bench/shuffle.py [--objects 64] [--blocks 64] [--window 128]

One epoch of samples of 2,048 tokens (uint16: 256 to a block) is laid out by `ShuffledOrder` and by
one random permutation of them all, which needs 8 bytes a sample in memory. For batches of several
sizes, the mean over all batches: distinct blocks and objects in a batch, and how far the share of a
label in a batch strays from its share in the corpus (the variance over batches, summed over labels)
as a ratio to that of the permutation. Labels: the object a sample lies in, and the quarter of the
corpus. Ours strays more, since a window of blocks is all that a batch can draw from: 1 would be a
permutation, and about 1 + batch / window is what drawing blocks instead of samples costs while the
batch is smaller than a window. Last, for the whole epoch: mean displacement (a permutation moves a
sample by a third of the epoch), and pairs of neighbours in the corpus that are consumed one right
after the other or in the same batch. Deterministic; a Markdown table on stdout. Then what it costs
to place a batch among a billion samples, in CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from eyas.tokens.grid import Grid
from eyas.tokens.order import WINDOW_BLOCKS, ShuffledOrder

BLOCK, SEQUENCE = 2**19, 2048
PER_BLOCK = BLOCK // SEQUENCE
BATCHES = (64, 512, 2048, 8192)

Integers = npt.NDArray[np.int64]


def ours(grid: Grid, window: int) -> Integers:
    """Sample (by its place in the corpus) at each position of an epoch."""
    places = ShuffledOrder(grid, 1, window).places(np.arange(grid.samples))
    return (grid.first_block[places.object] + places.block) * PER_BLOCK + places.start // SEQUENCE


def distinct(order: Integers, batch: int, per_label: int) -> float:
    """Mean number of labels in a batch; `per_label` neighbouring samples have the same."""
    rows = np.sort((order // per_label)[: len(order) // batch * batch].reshape(-1, batch))
    return float((np.diff(rows) > 0).sum(axis=1).mean() + 1)


def straying(order: Integers, batch: int, per_label: int) -> float:
    """Variance over batches of the share of a label, summed over labels."""
    labels = (order // per_label)[: len(order) // batch * batch].reshape(-1, batch)
    count = int(order.max()) // per_label + 1
    shares = np.stack([np.bincount(row, minlength=count) for row in labels]) / batch
    return float(shares.var(axis=0).sum())


def together(order: Integers, batch: int) -> float:
    """Share of neighbours in the corpus that are in the same batch."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return float((np.diff(position // batch) == 0).mean())


def cost(window: int) -> tuple[float, float]:
    """CPU milliseconds of the first batch of 2,048 samples, and of one of the next hundred."""
    grid = Grid.cut([2**29 - 7 * n for n in range(4000)], BLOCK, SEQUENCE)
    order, marks = ShuffledOrder(grid, 1, window), [time.process_time()]
    for step in range(101):
        order.places(np.arange(step * 2048, (step + 1) * 2048))
        marks.append(time.process_time())
    return (marks[1] - marks[0]) * 1e3, (marks[-1] - marks[1]) * 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=64, help="blocks an object")
    parser.add_argument("--window", type=int, default=WINDOW_BLOCKS)
    args = parser.parse_args()
    grid = Grid.cut([args.blocks * BLOCK] * args.objects, BLOCK, SEQUENCE)
    shuffled = ours(grid, args.window)
    true = np.random.default_rng(1).permutation(grid.samples)
    per_object, per_quarter = args.blocks * PER_BLOCK, -(-grid.samples // 4)

    def pair(measure: Callable[[Integers], float]) -> tuple[float, float]:
        return measure(shuffled), measure(true)

    print(f"{grid.samples:,} samples, {grid.blocks} blocks, {args.objects} objects")
    print(f"window of {args.window} blocks; each cell: ours / a permutation, or their ratio\n")
    print("| batch | blocks | objects | object share | quarter share | neighbours together |")
    print("| --- | --- | --- | --- | --- | --- |")
    for batch in BATCHES:
        blocks = pair(lambda o, b=batch: distinct(o, b, PER_BLOCK))  # type: ignore[misc]
        objects = pair(lambda o, b=batch: distinct(o, b, per_object))  # type: ignore[misc]
        by_object = pair(lambda o, b=batch: straying(o, b, per_object))  # type: ignore[misc]
        by_quarter = pair(lambda o, b=batch: straying(o, b, per_quarter))  # type: ignore[misc]
        near = pair(lambda o, b=batch: together(o, b))  # type: ignore[misc]
        print(
            f"| {batch} | {blocks[0]:.1f} / {blocks[1]:.1f} | {objects[0]:.1f} / {objects[1]:.1f} "
            f"| {by_object[0] / by_object[1]:.1f} | {by_quarter[0] / by_quarter[1]:.1f} "
            f"| {near[0]:.2%} / {near[1]:.2%} |"
        )
    moved = pair(lambda o: float(np.abs(o - np.arange(len(o))).mean() / len(o)))
    next_to = pair(lambda o: float((np.abs(np.diff(o)) == 1).mean()))
    print(f"\nmean displacement, of the epoch: {moved[0]:.3f} / {moved[1]:.3f}")
    print(f"neighbours that stay neighbours: {next_to[0]:.4%} / {next_to[1]:.4%}")
    first, each = cost(args.window)
    print(f"placing 2,048 of a billion samples: first {first:.1f} ms, then {each:.2f} ms of CPU")


if __name__ == "__main__":
    main()
