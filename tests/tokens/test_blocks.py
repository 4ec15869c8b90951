"""Promises of blocks: verified, read again on a fresh connection, or named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.tokens.made import Watched

from eyas.store import Corrupt, Store, StoreError
from eyas.tokens import open_tokens
from eyas.tokens.blocks import ByteCache


def test_a_bit_flipped_on_the_wire_is_read_again_on_a_fresh_connection(made: Store) -> None:
    """Of the first block that is read, the first answer is damaged."""

    def flip(key: str, start: int, buffer: Any, fresh: bool) -> None:
        if len(watched.reads) == 1:
            memoryview(buffer)[len(buffer) // 2] ^= 1

    watched = Watched(made, flip)
    assert torch.equal(open_tokens(watched).batch(0).ids, open_tokens(made).batch(0).ids)
    (key, start, fresh), again = watched.reads[:2]
    assert not fresh
    assert again == (key, start, True)
    assert not any(fresh for _, _, fresh in watched.reads[2:])


@pytest.mark.parametrize("bit", [0, 7])
def test_a_damaged_block_is_named_and_never_given_out(made_here: Store, bit: int) -> None:
    tokens = open_tokens(made_here)
    _, number, index = tokens._one(4, 0, 1).runs[0].key
    key = tokens._sources[0].objects[number].tokens.key
    data = bytearray(made_here.get(key))
    data[index * 1024 + 5] ^= 1 << bit
    made_here.put(key, bytes(data))
    with pytest.raises(Corrupt, match=rf"{key} is damaged in block {index} ") as caught:
        open_tokens(made_here).batch(4)
    assert isinstance(caught.value, StoreError)


def test_a_truncated_object_is_named(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    for shard in tokens._sources[0].objects:
        made_here.put(shard.tokens.key, b"")
    with pytest.raises(StoreError, match=r"\.tok"):
        tokens.batch(0)


def test_a_damaged_list_of_checksums_is_named(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    for shard in tokens._sources[0].objects:
        data = bytearray(made_here.get(shard.blocks.key))
        data[3] ^= 4
        made_here.put(shard.blocks.key, bytes(data))
    with pytest.raises(Corrupt, match=r"\.blocks"):
        tokens.batch(0)


def test_each_block_is_read_once_a_window_and_memory_is_bounded(made_here: Store) -> None:
    watched = Watched(made_here)
    tokens = open_tokens(watched)
    for step in range(8):
        tokens.batch(step)
    assert len(watched.reads) == len(set(watched.reads))
    small = open_tokens(watched, cache_bytes=3000)
    assert torch.equal(small.batch(11).ids, tokens.batch(11).ids)
    assert small._blocks._held <= 3000


def test_a_block_in_given_memory_is_the_same(made_here: Store) -> None:
    reader = open_tokens(made_here)._sources[0].blocks
    memory = np.full(reader.memory_bytes, 0xFF, np.uint8)
    for index in range(2):
        own, given = reader.read(1, index), reader.read(1, index, memory)
        assert np.shares_memory(given.tokens, memory)
        assert own.tokens.tolist() == given.tokens.tolist()
        assert own.ends.tolist() == given.ends.tolist()
        assert (own.documents, own.first) == (given.documents, index == 0)


def test_a_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    cache: ByteCache[int, str] = ByteCache(10)
    made: list[int] = []

    def get(key: int, size: int = 4) -> None:
        assert cache.get(key, lambda: (made.append(key) or str(key), size)) == str(key)  # type: ignore[func-returns-value]

    for key in (1, 2, 1, 3, 1, 2):
        get(key)
    assert made == [1, 2, 3, 2]
    get(9, 100)
    get(9, 100)
    assert made == [1, 2, 3, 2, 9], "the newest is kept, however large"
