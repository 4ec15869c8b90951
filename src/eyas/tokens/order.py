"""The order of samples: number in, place in the tokens out. Pure, no stored permutation.

Algorithm `feistel-blocks-2`. Sample number n is epoch e = n // samples, position q = n % samples.
The blocks of the split are permuted by a Feistel network keyed by (seed, e); the permuted blocks
are taken in windows of `WINDOW_BLOCKS`, and the samples of a window are permuted by a Feistel
network keyed by (seed, e, window). So a reader that holds one window in memory reads each block
once a window, documents of one block meet those of the others, and any sample is found in O(log
blocks).

Blocks are not equally full: the last of each object is short. With the positions of the short
blocks in the permuted order (the inverse permutation, one for each object) the samples before
permuted block p are p * full - (what the short ones before p lack), which is all that is needed to
find the window of q. State is O(objects), as the manifest's own list is, and is made anew for each
epoch.

Feistel on [0, n): 6 rounds on the bits of n - 1 (at least 2), split in a high and a low part; even
rounds xor F(low) into high, odd ones F(high) into low; results at or above n are walked through
again. F(v) is the splitmix64 finaliser of v + key of the round. Keys are xxh3_64 of texts: see
`_round_keys`. Luby and Rackoff 1988; Black and Rogaway 2002 (cycle walking).
"""

from __future__ import annotations

import bisect
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from .grid import Grid, Places

__all__ = [
    "ORDER",
    "WINDOW_BLOCKS",
    "FixedOrder",
    "Order",
    "ShuffledOrder",
    "carried",
    "permute",
    "unpermute",
]

ORDER = "feistel-blocks-2"
WINDOW_BLOCKS = 128
_ROUNDS = 6
_KEPT = 4

T = TypeVar("T")
Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Order(Protocol):
    """Sample numbers to places."""

    def places(self, samples: Integers) -> Places:
        """Where each sample lies."""
        ...


@dataclass(frozen=True)
class FixedOrder:
    """Samples as they lie in the tokens: the validation split."""

    grid: Grid

    def places(self, samples: Integers) -> Places:
        """Numbers are 0 to samples - 1."""
        of = np.searchsorted(self.grid.first_sample, samples, side="right") - 1
        block, window = np.divmod(samples - self.grid.first_sample[of], self.grid.block_samples)
        return self.grid.places(self.grid.first_block[of] + block, window)


class ShuffledOrder:
    """Samples by `feistel-blocks-2`; safe to share between threads."""

    def __init__(self, grid: Grid, seed: int, window: int = WINDOW_BLOCKS) -> None:
        self._grid = grid
        self._seed = seed
        self._window = window
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._lock = threading.Lock()

    def places(self, samples: Integers) -> Places:
        """Any numbers from 0 on."""
        blocks = np.empty(len(samples), np.int64)
        windows = np.empty(len(samples), np.int64)
        epochs, positions = np.divmod(samples, self._grid.samples)
        with self._lock:
            for number in np.unique(epochs):
                chosen = epochs == number
                blocks[chosen], windows[chosen] = self._epoch(int(number)).find(positions[chosen])
        return self._grid.places(blocks, windows)

    def _epoch(self, number: int) -> _Epoch:
        return _kept(
            self._epochs, number, lambda: _Epoch(self._grid, f"{self._seed}/{number}", self._window)
        )

    def block_samples(self, block: int, epoch: int) -> Integers:
        """Numbers of the samples of one block of the split in one epoch, ascending."""
        with self._lock:
            inside = self._epoch(epoch).block_positions(block)
        return epoch * self._grid.samples + np.sort(inside)


def carried(old: Grid, new: Grid, number: int, seed: int, window: int = WINDOW_BLOCKS) -> int:
    """The number of the sample with which a source goes on that has been read up to sample `number`
    of grid `old` and is now cut into other samples: the first of the next window, whose blocks are
    the same for any cut."""
    if not number:  # perhaps of a source without any token
        return 0
    epoch, position = divmod(number, old.samples)
    if not position:
        return epoch * new.samples
    before = _Epoch(old, f"{seed}/{epoch}", window)
    after = _Epoch(new, f"{seed}/{epoch}", window)
    return epoch * new.samples + after.start(before.window_of(position - 1) + 1)


class _Epoch:
    """One epoch: the permuted blocks and their windows."""

    def __init__(self, grid: Grid, key: str, window: int) -> None:
        self._grid = grid
        self._key = f"{ORDER}/{key}"
        self._blocks_key = f"{self._key}/blocks"
        self._span = window
        self._windows: OrderedDict[int, _Window] = OrderedDict()
        last = grid.first_block[1:][grid.object_tokens > 0] - 1
        lacks = grid.block_samples - -(-grid.block_sizes(last) // grid.sequence)
        short = lacks > 0
        positions = unpermute(last[short], grid.blocks, self._blocks_key)
        order = np.argsort(positions)
        self._positions = positions[order]
        self._lacking = np.concatenate((np.zeros(1, np.int64), np.cumsum(lacks[short][order])))

    def find(self, positions: Integers) -> tuple[Integers, Integers]:
        """Block in the split and sample in the block of each position in the epoch."""
        blocks = np.empty_like(positions)
        samples = np.empty_like(positions)
        todo = np.ones(len(positions), bool)
        while todo.any():
            window = self._window(self.window_of(int(positions[todo].min())))
            chosen = todo & (positions < window.stop)
            blocks[chosen], samples[chosen] = window.find(positions[chosen])
            todo &= ~chosen
        return blocks, samples

    def window_of(self, position: int) -> int:
        """The window that holds a position."""
        for number, window in self._windows.items():
            if window.start <= position < window.stop:
                return number
        count = -(-self._grid.blocks // self._span)
        starts = range(count)
        return bisect.bisect_right(starts, position, key=lambda k: self._before(k * self._span)) - 1

    def start(self, window: int) -> int:
        """The first position of a window; after the last one, the samples of the epoch."""
        return self._before(min(window * self._span, self._grid.blocks))

    def block_positions(self, block: int) -> Integers:
        """Positions in the epoch of the samples of a block."""
        permuted = unpermute(np.array([block]), self._grid.blocks, self._blocks_key)
        window = self._window(int(permuted[0]) // self._span)
        return window.positions(int(permuted[0]) % self._span)

    def _before(self, permuted: int) -> int:
        """Samples before a permuted block."""
        short = int(np.searchsorted(self._positions, permuted))
        return permuted * self._grid.block_samples - int(self._lacking[short])

    def _window(self, number: int) -> _Window:
        return _kept(self._windows, number, lambda: self._make_window(number))

    def _make_window(self, number: int) -> _Window:
        first = number * self._span
        stop = min(first + self._span, self._grid.blocks)
        blocks = permute(np.arange(first, stop), self._grid.blocks, self._blocks_key)
        counts = -(-self._grid.block_sizes(blocks) // self._grid.sequence)
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        return _Window(self._before(first), blocks, before, f"{self._key}/window/{number}")


@dataclass(frozen=True)
class _Window:
    """`blocks` [W] with `before` [W + 1] samples before each; `start` is its first position."""

    start: int
    blocks: Integers
    before: Integers
    key: str

    @property
    def stop(self) -> int:
        return self.start + int(self.before[-1])

    def find(self, positions: Integers) -> tuple[Integers, Integers]:
        inside = permute(positions - self.start, int(self.before[-1]), self.key)
        of = np.searchsorted(self.before, inside, side="right") - 1
        return self.blocks[of], inside - self.before[of]

    def positions(self, block: int) -> Integers:
        """Positions in the epoch of the samples of its `block`-th block."""
        inside = np.arange(self.before[block], self.before[block + 1])
        return self.start + unpermute(inside, int(self.before[-1]), self.key)


def permute(values: Integers, n: int, key: str) -> Integers:
    """Where the permutation of [0, n) named `key` takes each value."""
    return _walk(values, n, key, range(_ROUNDS))


def unpermute(values: Integers, n: int, key: str) -> Integers:
    """The inverse of `permute`."""
    return _walk(values, n, key, range(_ROUNDS - 1, -1, -1))


def _walk(values: Integers, n: int, key: str, rounds: range) -> Integers:
    if not len(values):
        return values
    bits = max(2, (n - 1).bit_length())
    keys = _round_keys(key)
    result = _network(values.astype(np.uint64), bits, keys, rounds)
    while (outside := result >= n).any():
        result[outside] = _network(result[outside], bits, keys, rounds)
    return result.astype(np.int64)


def _network(values: Words, bits: int, keys: Words, rounds: range) -> Words:
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64(2 ** (bits // 2) - 1)
    high_mask = np.uint64(2 ** (bits - bits // 2) - 1)
    high, low = values >> low_bits, values & low_mask
    for r in rounds:
        if r % 2 == 0:
            high = high ^ (_mix(low + keys[r]) & high_mask)
        else:
            low = low ^ (_mix(high + keys[r]) & low_mask)
    return (high << low_bits) | low


def _mix(z: Words) -> Words:
    """The finaliser of splitmix64, modulo 2^64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@functools.lru_cache(maxsize=1024)
def _round_keys(key: str) -> Words:
    return np.array(
        [xxhash.xxh3_64_intdigest(f"{key}/{r}".encode()) for r in range(_ROUNDS)], np.uint64
    )


def _kept(cache: OrderedDict[int, T], number: int, make: Callable[[], T]) -> T:
    """The cached value, made if it is not there; the oldest goes first."""
    if number not in cache:
        cache[number] = make()
        if len(cache) > _KEPT:
            cache.popitem(last=False)
    return cache[number]
