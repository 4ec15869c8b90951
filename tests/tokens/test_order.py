"""Promises of the grid and of the order: every token once an epoch, pure, no stored permutation."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.recipe import UsageError
from eyas.tokens.grid import Grid, Places
from eyas.tokens.order import ORDER, FixedOrder, Order, ShuffledOrder, permute, unpermute

grids = st.builds(
    Grid.cut,
    st.lists(st.integers(0, 200), min_size=1, max_size=30).filter(any),
    st.just(32),
    st.integers(3, 32),
)


@given(st.integers(1, 5000), st.text(max_size=5))
@settings(deadline=None)
def test_a_permutation_takes_each_value_once_and_has_its_inverse(n: int, key: str) -> None:
    values = np.arange(n)
    taken = permute(values, n, key)
    assert np.array_equal(np.sort(taken), values)
    assert np.array_equal(unpermute(taken, n, key), values)


def test_a_permutation_of_billions_needs_no_memory_for_them() -> None:
    n = 10**12 + 39
    values = np.array([0, 1, 10**6, n - 1])
    taken = permute(values, n, "k")
    assert len(set(taken.tolist())) == 4
    assert ((taken >= 0) & (taken < n)).all()
    assert np.array_equal(unpermute(taken, n, "k"), values)


def _by_the_book(value: int, n: int, key: str) -> int:
    """The permutation as the documentation writes it, in plain whole numbers."""
    bits = max(2, (n - 1).bit_length())
    low_bits = bits // 2
    while True:
        high, low = value >> low_bits, value % 2**low_bits
        for r in range(6):
            z = (low if r % 2 == 0 else high) + xxhash.xxh3_64_intdigest(f"{key}/{r}".encode())
            z %= 2**64
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
            z ^= z >> 31
            if r % 2 == 0:
                high ^= z % 2 ** (bits - low_bits)
            else:
                low ^= z % 2**low_bits
        value = (high << low_bits) + low
        if value < n:
            return value


@given(st.integers(1, 2000), st.text(max_size=5))
@settings(deadline=None)
def test_the_permutation_is_the_one_that_is_written_down(n: int, key: str) -> None:
    values = np.arange(0, n, max(1, n // 20))
    assert permute(values, n, key).tolist() == [_by_the_book(int(v), n, key) for v in values]


def test_the_order_never_changes_under_its_name() -> None:
    assert ORDER == "feistel-blocks-2"
    places = ShuffledOrder(Grid.cut([100, 70, 33], 32, 8), 1, 4).places(np.arange(8))
    found = zip(places.object, places.block, places.start, places.stop, strict=True)
    assert [tuple(int(x) for x in row) for row in found] == PINNED


PINNED = [
    (0, 0, 0, 8),
    (0, 0, 24, 32),
    (2, 0, 0, 8),
    (0, 0, 8, 16),
    (0, 3, 0, 4),
    (2, 0, 24, 32),
    (0, 0, 16, 24),
    (2, 0, 8, 16),
]


def _targets(grid: Grid, places: Places) -> Counter[tuple[int, int]]:
    """How often each token (object, position) is a target."""
    seen: Counter[tuple[int, int]] = Counter()
    for number, block, start, stop in zip(
        places.object, places.block, places.start, places.stop, strict=True
    ):
        base = int(block) * grid.block_tokens
        seen.update((int(number), base + t) for t in range(int(start), int(stop)))
    return seen


def _everything(grid: Grid) -> Counter[tuple[int, int]]:
    sizes = enumerate(grid.object_tokens.tolist())
    return Counter((number, token) for number, size in sizes for token in range(size))


@given(grids, st.integers(0, 3), st.integers(1, 9), st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_every_token_is_a_target_exactly_once_in_every_epoch(
    grid: Grid, seed: int, window: int, epoch: int
) -> None:
    orders: list[Order] = [ShuffledOrder(grid, seed, window)]
    if epoch == 0:
        orders.append(FixedOrder(grid))
    numbers = np.arange(epoch * grid.samples, (epoch + 1) * grid.samples)
    for order in orders:
        assert _targets(grid, order.places(numbers)) == _everything(grid)


@given(grids, st.data())
@settings(deadline=None)
def test_a_samples_place_does_not_depend_on_what_is_asked_with_it(
    grid: Grid, data: st.DataObject
) -> None:
    number = st.integers(0, 3 * grid.samples)
    numbers = np.array(data.draw(st.lists(number, min_size=1, max_size=20)))
    together = ShuffledOrder(grid, 5, 4).places(numbers)
    for i, one in enumerate(numbers):
        alone = ShuffledOrder(grid, 5, 4).places(np.array([one]))
        for name in ("object", "block", "start", "stop"):
            assert getattr(alone, name)[0] == getattr(together, name)[i]


def test_a_window_of_samples_reads_only_a_window_of_blocks() -> None:
    grid = Grid.cut([3200] * 40 + [17] * 10, 32, 4)
    places = ShuffledOrder(grid, 1, 8).places(np.arange(grid.samples))
    blocks = places.object * 1000 + places.block
    firsts = {int(b): int(np.argmax(blocks == b)) for b in np.unique(blocks)}
    lasts = {int(b): len(blocks) - 1 - int(np.argmax(blocks[::-1] == b)) for b in np.unique(blocks)}
    assert max(lasts[b] - firsts[b] for b in firsts) < 8 * grid.block_samples


def test_epochs_and_seeds_differ() -> None:
    grid = Grid.cut([3000, 500], 32, 8)
    n = grid.samples

    def order(seed: int, epoch: int) -> list[tuple[int, int, int]]:
        places = ShuffledOrder(grid, seed, 8).places(np.arange(epoch * n, (epoch + 1) * n))
        return list(
            zip(places.object.tolist(), places.block.tolist(), places.start.tolist(), strict=True)
        )

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_shuffle_is_near_a_permutation_of_all_samples(seed: int) -> None:
    grid = Grid.cut([32 * 64] * 64, 32, 4)
    places = ShuffledOrder(grid, seed, 32).places(np.arange(grid.samples))
    where = (places.object * 64 + places.block) * 8 + places.start // 4
    true = np.random.default_rng(seed).permutation(grid.samples)
    moved = np.abs(where - np.arange(grid.samples)).mean() / grid.samples
    assert 0.3 < moved < 0.37, "a permutation moves by a third"
    assert (np.abs(np.diff(where)) == 1).mean() < 0.02

    def straying(order: npt.NDArray[np.int64], batch: int) -> float:
        rows = (order // (64 * 8)).reshape(-1, batch)
        return float(np.stack([np.bincount(r, minlength=64) for r in rows]).var(axis=0).sum())

    for batch in (16, 64, 256):
        assert straying(where, batch) < (1 + 1.5 * batch / 32) * straying(true, batch)
        rows = np.sort((where // 8).reshape(-1, batch))
        blocks = (np.diff(rows) > 0).sum(axis=1).mean() + 1
        assert blocks > 0.9 * 32 * (1 - (1 - 1 / 32) ** batch), "nearly all that a window has"


@given(grids, st.integers(0, 2), st.data())
@settings(deadline=None)
def test_the_samples_of_a_block_are_found_without_looking_for_them(
    grid: Grid, epoch: int, data: st.DataObject
) -> None:
    block = data.draw(st.integers(0, grid.blocks - 1))
    order = ShuffledOrder(grid, 7, 4)
    found = order.block_samples(block, epoch)
    numbers = np.arange(epoch * grid.samples, (epoch + 1) * grid.samples)
    places = order.places(numbers)
    mine = grid.first_block[places.object] + places.block == block
    assert np.array_equal(found, numbers[mine])


def test_padding_is_only_in_last_samples() -> None:
    grid = Grid.cut([100, 64, 31], 32, 8)
    places = FixedOrder(grid).places(np.arange(grid.samples))
    short = places.stop - places.start < 8
    assert short.sum() == 2
    assert grid.samples == 13 + 8 + 4


def test_a_sample_longer_than_a_block_is_refused_with_the_limit() -> None:
    with pytest.raises(UsageError, match="at most 32"):
        Grid.cut([100], 32, 33)


def test_a_hundred_thousand_objects_are_placed_at_once() -> None:
    sizes = np.full(100_000, 131_072_000) - np.arange(100_000) * 7
    grid = Grid.cut(sizes.tolist(), 2**18, 2048)
    assert grid.samples > 10**9
    order = ShuffledOrder(grid, 1)
    places = order.places(np.array([0, grid.samples - 1, grid.samples, 5 * grid.samples + 12345]))
    assert (places.stop > places.start).all()
