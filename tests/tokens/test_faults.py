"""Batches come out right through every fault, or the damage is named; never wrong, never hung."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import Fault, Proxy, proxy
from tests.seaweed import BUCKET, Seaweed
from tests.tokens.made import BLOCK_BYTES, copy_store
from tests.tokens.sweep import OF_READS, Undisturbed, renewable_credentials, sweep

from eyas.store import Corrupt, Store, open_store, s3_client
from eyas.tokens import open_tokens


@pytest.fixture
def copied(seaweed: Seaweed, made_folder: Path) -> Store:
    """The small set of tokens on the server."""
    store = open_store(f"s3://{BUCKET}/swept")  # not at random: what is drawn goes by the path
    copy_store(open_store(str(made_folder)), store)
    return store


@pytest.fixture
def between(copied: Store, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy to which the environment points from now on; stalls end in half a second."""
    monkeypatch.setattr(s3_client, "READ_SECONDS", 0.5)
    monkeypatch.setattr(s3_client, "STALL_SECONDS", 0.5)
    with proxy(seaweed.endpoint) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
        yield found


def test_reads_by_the_hundred_through_every_fault_are_right(
    copied: Store,
    between: Proxy,
    seaweed: Seaweed,
    made_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = Undisturbed.of(open_store(str(made_folder)))
    renewable_credentials(tmp_path, seaweed.access_key, seaweed.secret_key, monkeypatch)
    swept = sweep(copied.url, between, dict.fromkeys(OF_READS, 0.01), 1, 300, truth)
    assert (swept.wrong, swept.lost) == (0, [])
    assert len(swept.injected) > len(OF_READS) / 2, "the faults did happen"
    assert swept.reads >= 300


def test_without_faults_each_byte_is_fetched_once(copied: Store, between: Proxy) -> None:
    """By an epoch whose blocks fit into the memory given."""
    tokens = open_tokens(open_store(copied.url))
    for step in range(tokens.steps):
        tokens.batch(step)
    path = f"/{copied.url.removeprefix('s3://')}/"
    sizes = {path + o.key: o.size for o in copied.list("tokens/")}
    bodies = {p: n for p, n in sizes.items() if p.endswith(".tok") and "-train-" in p}
    assert {p: between.served[p] for p in bodies} == bodies
    assert max(bodies.values()) > 2 * BLOCK_BYTES


def test_a_block_that_arrives_damaged_is_read_again_on_another_connection(
    copied: Store, between: Proxy
) -> None:
    tokens = open_tokens(open_store(copied.url))
    expected = open_tokens(copied).batch(0).digest
    between.faults.append(Fault("GET", ".tok", "bit flipped"))
    known = between.connections
    assert tokens.batch(0).digest == expected
    assert between.injected == {"bit flipped": 1}
    assert between.connections > known


def test_a_block_that_arrives_damaged_twice_is_named(copied: Store, between: Proxy) -> None:
    tokens = open_tokens(open_store(copied.url))
    between.faults.append(Fault("GET", ".tok", "bits flipped", times=2))
    with pytest.raises(Corrupt, match=r"\.tok is damaged in block \d+ .bytes \d+ to \d+.: CRC32C"):
        tokens.batch(0)
    assert between.injected == {"bits flipped": 2}
    assert tokens.batch(0).digest == open_tokens(copied).batch(0).digest, "the next read is sound"
