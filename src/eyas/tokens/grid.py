"""The grid: how a source's tokens are cut into blocks and samples. Pure arithmetic on object sizes.

An object of n tokens is cut into blocks of 1 MiB, a block into samples of `sequence` tokens, the
last of each shorter. Sample w of a block *predicts* its tokens [w*T, (w+1)*T); what it is given
are the tokens one earlier, and before the first token of a block stands the token recorded beside
the block (end of text at the start of an object). Hence every token of an epoch is a target
exactly once, across blocks and objects too, no sample needs two blocks, and the only padding is in
short samples: none but the last of an object if T divides the block (T a power of two), under
T/block of all otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eyas.recipe import UsageError
from eyas.store import Manifest

from .token_objects import block_tokens, token_objects

__all__ = ["Grid", "Places"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """Where samples lie, one row each: object, its block, tokens `start` to `stop` of the block."""

    object: Integers
    block: Integers
    start: Integers
    stop: Integers


@dataclass(frozen=True)
class Grid:
    """`object_tokens` [objects], `first_block` [objects + 1] and `first_sample` [objects + 1] are
    cumulative over the objects in manifest order."""

    sequence: int
    block_tokens: int
    object_tokens: Integers
    first_block: Integers
    first_sample: Integers

    @classmethod
    def of(cls, manifest: Manifest, source: str, split: str, sequence: int) -> Grid:
        """The grid of a split of a source of a tokens manifest."""
        sizes = [o.tokens.rows for o in token_objects(manifest, source, split)]
        return cls.cut(
            sizes, block_tokens(manifest.facts["dtype"], manifest.facts["block_bytes"]), sequence
        )

    @classmethod
    def cut(cls, object_tokens: Sequence[int], block: int, sequence: int) -> Grid:
        """From object sizes. Raises UsageError if a sample would not fit into a block."""
        if sequence > block:
            raise UsageError(
                f"data.sequence: {sequence} is more than a block of tokens holds; at most {block}"
            )
        tokens = np.array(object_tokens, np.int64).reshape(-1)
        whole, rest = np.divmod(tokens, block)
        blocks = whole + (rest > 0)
        samples = whole * -(-block // sequence) + -(-rest // sequence)
        return cls(sequence, block, tokens, _cumulative(blocks), _cumulative(samples))

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""
        return int(self.object_tokens.sum())

    @property
    def blocks(self) -> int:
        return int(self.first_block[-1])

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return int(self.first_sample[-1])

    @property
    def block_samples(self) -> int:
        """Samples of a whole block."""
        return -(-self.block_tokens // self.sequence)

    def block_sizes(self, blocks: Integers) -> Integers:
        """Tokens of each block, by its number in the split."""
        of = self.object_of(blocks)
        start = (blocks - self.first_block[of]) * self.block_tokens
        sizes: Integers = np.minimum(self.object_tokens[of] - start, self.block_tokens)
        return sizes

    def object_of(self, blocks: Integers) -> Integers:
        """The object of each block."""
        return np.searchsorted(self.first_block, blocks, side="right") - 1

    def places(self, blocks: Integers, windows: Integers) -> Places:
        """Of sample `windows[i]` of block `blocks[i]`."""
        of = self.object_of(blocks)
        start = windows * self.sequence
        stop = np.minimum(start + self.sequence, self.block_sizes(blocks))
        return Places(of, blocks - self.first_block[of], start, stop)


def _cumulative(counts: Integers) -> Integers:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
