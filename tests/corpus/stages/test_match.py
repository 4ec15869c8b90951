"""Pairs and clusters do not depend on how the work was cut; a cluster is named by its lowest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.corpus.stages.exchange import BAND, BUCKETS, PAIR, put_bands, read_bands
from eyas.corpus.stages.match_stage import join, match_shards, run_match
from eyas.corpus.stages.write_stage import split_of
from eyas.store import Corrupt, Store
from eyas.work import Shard, Stage

STAGE = Stage("corpus.match", 1, "eyas.corpus.stages.match_stage:run_match", {})


def band_rows(rows: list[tuple[int, int]]) -> np.ndarray:
    return np.array([(h, 0, d) for h, d in rows], dtype=BAND)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60))
def test_clusters_are_the_connected_components_by_lowest_id(edges: list[tuple[int, int]]) -> None:
    pairs = np.array([(0, a, a, 0, b, b) for a, b in edges], dtype=PAIR)
    rows, shards = join(pairs)
    lowest = {n: n for edge in edges for n in edge}
    for _ in lowest:
        for a, b in edges:
            lowest[a] = lowest[b] = min(lowest[a], lowest[b])
    found = dict(zip(rows["low"].tolist(), rows["cluster_low"].tolist(), strict=True))
    assert found == lowest
    assert shards.tolist() == rows["low"].tolist()


def test_a_long_chain_is_one_cluster() -> None:
    chain = np.array([(0, n, 0, 0, n + 1, 0) for n in range(20_000)], dtype=PAIR)
    rows, _ = join(np.random.default_rng(1).permutation(chain))
    assert len(rows) == 20_001
    assert set(rows["cluster_low"].tolist()) == {0}


def test_bands_read_by_range_are_all_bands(store: Store) -> None:
    numbers = np.random.default_rng(1).integers(0, 2**64, size=5000, dtype=np.uint64)
    rows = np.zeros(len(numbers) + 2, dtype=BAND)
    rows["hash"][:-2] = numbers
    rows["hash"][-2:] = (0, 2**64 - 1)
    ref = put_bands(store, "corpus/bands/a.bin", rows)
    expected = np.sort(rows, order=["hash", "high", "low"])
    for parts in (1, 4, BUCKETS):
        cuts = [BUCKETS * p // parts for p in range(parts + 1)]
        found = [read_bands(store, ref, a, b) for a, b in pairwise(cuts)]
        assert np.array_equal(np.concatenate(found), expected)


def test_a_damaged_band_file_is_noticed(folder_store: Store) -> None:
    ref = put_bands(
        folder_store, "corpus/bands/a.bin", band_rows([(n << 50, n) for n in range(99)])
    )
    data = folder_store.get(ref.key)
    for where in (3, 20, len(data) - 5):
        folder_store.put(ref.key, data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
        with pytest.raises(Corrupt, match=r"corpus/bands/a\.bin"):
            read_bands(folder_store, ref, 0, BUCKETS)


def test_pairs_do_not_depend_on_the_number_of_match_shards(folder_store: Store) -> None:
    random = np.random.default_rng(5)
    refs = []
    for name in range(3):
        rows = np.zeros(400, dtype=BAND)
        rows["hash"] = random.integers(0, 300, size=400, dtype=np.uint64) << np.uint64(55)
        rows["low"] = random.integers(0, 10_000, size=400)
        refs.append(put_bands(folder_store, f"corpus/bands/{name}.bin", rows))
    found = {}
    for parts in (1, 2, 8):
        pairs = []
        for part in range(parts):
            params = {"part": part, "parts": parts, "numbers": [0, 1, 2]}
            result = run_match(folder_store, STAGE, Shard("", tuple(refs), params))
            for ref in result.objects:
                pairs.append(np.frombuffer(folder_store.get(ref.key), dtype=PAIR))
        found[parts] = np.sort(np.concatenate(pairs))
    assert len(found[1]) > 100
    for parts in (2, 8):
        assert np.array_equal(np.unique(found[parts]), found[1])


def test_match_shards_grow_with_the_rows_and_stop_at_the_buckets() -> None:
    counts = [match_shards(n) for n in (0, 1, 4_000_000, 4_000_001, 10**8, 10**12)]
    assert counts == [1, 1, 1, 2, 32, BUCKETS]


def test_the_split_is_decided_by_cluster_and_seed_in_the_wanted_share() -> None:
    names = [f"{n:032x}" for n in range(20_000)]
    found = [split_of(n, 1, 0.05) for n in names]
    assert found == [split_of(n, 1, 0.05) for n in names]
    assert found.count("validation") == pytest.approx(1000, abs=120)
    assert found != [split_of(n, 2, 0.05) for n in names]
    assert {split_of(n, 1, 0.0) for n in names} == {"train"}
