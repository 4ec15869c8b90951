"""How many blocks the ranks of a large run read: no data is needed, places are arithmetic.

    python bench/block_reads.py [--ranks 64 256 1024] [--tokens 2e12] [--days 60] [--sources 1]

Sources alike of uint32 tokens in objects of 256 MiB, samples of 2,048 tokens, 2,048 samples a step,
ranks that keep the blocks of their part of a window. Prints one JSON object a number of ranks:
blocks that a rank reads while every source passes a window (mean, most), reads of those windows by
all ranks, and what that comes to for the whole run: reads, reads a second, MB a second and rank.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eyas.tokens.grid import Grid
from eyas.tokens.mixture import CYCLE, mixture
from eyas.tokens.order import WINDOW_BLOCKS, ShuffledOrder
from eyas.tokens.selection import rank_rows, reading_order

BLOCK = 2**20
BLOCKS = 256  # of an object
SEQUENCE = 2048
BATCH = 2048

Integers = npt.NDArray[np.int64]


def windows(tokens: float, sources: int, first: int, count: int) -> Iterator[list[Integers]]:
    """The blocks of each row of each step, in the order in which ranks share them, by window (of
    all sources together: as many windows as there are sources)."""
    in_block = BLOCK // 4
    objects = -(-int(tokens / sources) // (BLOCKS * in_block))
    grid = Grid.cut([BLOCKS * in_block] * objects, in_block, SEQUENCE)
    order = ShuffledOrder(grid, 1, WINDOW_BLOCKS)
    counts = [CYCLE // sources] * sources
    counts[0] += CYCLE - sum(counts)
    mixed = mixture(tuple(counts), 1, 0)
    span = sources * WINDOW_BLOCKS * in_block // SEQUENCE
    for start in range(first * span, (first + count) * span, span):
        steps = []
        for step in range(start, start + span, BATCH):
            source, number = mixed.place(np.arange(step, step + BATCH))
            places = order.places(number)
            rows = reading_order(source.astype(np.int16), places)
            objects_in_all = source.astype(np.int64) * objects + places.object
            steps.append((objects_in_all * BLOCKS + places.block)[rows])
        yield steps


def reads(steps: list[Integers], ranks: int) -> list[int]:
    """Different blocks that each rank needs in a window."""
    parts = [rank_rows(BATCH, rank, ranks) for rank in range(ranks)]
    return [len(np.unique(np.concatenate([s[p.first : p.stop] for s in steps]))) for p in parts]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--tokens", type=float, default=2e12)
    parser.add_argument("--days", type=float, default=60)
    parser.add_argument("--sources", type=int, default=1)
    args = parser.parse_args()
    seen = list(windows(args.tokens, args.sources, 1000 // args.sources, 4))
    whole = 1 / args.sources * args.tokens / (WINDOW_BLOCKS * BLOCK / 4)
    for ranks in args.ranks:
        found = np.array([reads(steps, ranks) for steps in seen])
        in_all = float(found.sum(axis=1).mean() * whole)
        a_second = in_all / (args.days * 86400)
        print(
            json.dumps(
                {
                    "ranks": ranks,
                    "blocks_a_rank": round(float(found.mean()), 2),
                    "most_blocks_a_rank": int(found.max()),
                    "reads_a_window": int(found.sum(axis=1).mean()),
                    "reads": round(in_all / 1e6) * 10**6,
                    "reads_a_second": round(a_second, 1),
                    "mb_a_second_and_rank": round(a_second * BLOCK / 1e6 / ranks, 3),
                }
            )
        )


if __name__ == "__main__":
    main()
