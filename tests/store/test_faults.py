"""Whatever breaks between us and the server, no call gives wrong data, hangs or loses anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.faults import Fault, Kind, Proxy, Rates
from tests.seaweed import Seaweed

from eyas.store import Corrupt, StoreError, crc32c, put_object, read_object, s3_client
from eyas.store.s3 import S3Store

SIZE = 300_000
STALL = 0.5
DATA = bytes(n * n % 251 for n in range(SIZE))
PASSING: tuple[Kind, ...] = (
    *("slow down", "slow down, retry after", "internal error"),
    *("reset", "lost answer", "stall", "closed when idle"),
)
IN_BODY: tuple[Kind, ...] = ("reset in body", "truncated", "stall in body")


@pytest.fixture
def store(between: Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """Stalls end soon."""
    monkeypatch.setattr(s3_client, "READ_SECONDS", STALL)
    monkeypatch.setattr(s3_client, "STALL_SECONDS", STALL)
    return S3Store(f"s3://eyas/{uuid.uuid4().hex}")


def _into(store: S3Store, start: int, length: int) -> bytes:
    buffer = bytearray(length)
    store.read_into("k", start, buffer)
    return bytes(buffer)


READS: dict[str, tuple[Callable[[S3Store], bytes], bytes]] = {
    "get": (lambda s: s.get("k"), DATA),
    "get_range": (lambda s: s.get_range("k", 1000, 200_000), DATA[1000:201_000]),
    "read_into": (lambda s: _into(s, 1000, 200_000), DATA[1000:201_000]),
}


@pytest.mark.parametrize("kind", [*PASSING, *IN_BODY])
@pytest.mark.parametrize("call", READS)
def test_a_read_survives_what_passes(between: Proxy, store: S3Store, call: str, kind: Kind) -> None:
    read, expected = READS[call]
    store.put("k", DATA)
    between.faults.append(Fault("GET", "/k", kind))
    assert [read(store) for _ in range(2)] == [expected] * 2
    assert between.injected == {kind: 1}, "the fault did happen"


@pytest.mark.parametrize("kind", ["wrong range", "short length"])
@pytest.mark.parametrize("call", ["get_range", "read_into"])
def test_a_range_that_was_not_asked_for_is_not_taken(
    between: Proxy, store: S3Store, call: str, kind: Kind
) -> None:
    read, expected = READS[call]
    store.put("k", DATA)
    between.faults.append(Fault("GET", "/k", kind))
    assert read(store) == expected
    assert between.injected == {kind: 1}


@pytest.mark.parametrize("kind", ["bit flipped", "bits flipped", "short length"])
def test_damage_on_the_way_never_passes_for_the_object(
    between: Proxy, store: S3Store, kind: Kind
) -> None:
    """What is vouched for is read right or not at all."""
    reference = put_object(store, "k", DATA)
    between.faults.append(Fault("GET", "/k", kind))
    assert read_object(store, reference) == DATA  # on another connection
    assert between.injected == {kind: 1}


@pytest.mark.parametrize("kind", ["bit flipped", "bits flipped"])
def test_damage_that_stays_is_named(between: Proxy, store: S3Store, kind: Kind) -> None:
    reference = put_object(store, "k", DATA)
    between.faults.append(Fault("GET", "/k", kind, times=2))
    with pytest.raises(Corrupt, match="k is damaged"):
        read_object(store, reference)


@pytest.mark.parametrize("call", READS)
def test_a_read_that_breaks_goes_on_from_the_byte_where_it_broke(
    between: Proxy, store: S3Store, call: str
) -> None:
    read, expected = READS[call]
    store.put("k", DATA)
    between.faults.append(Fault("GET", "/k", "truncated", times=3, after=50_000))
    assert read(store) == expected
    assert between.served[_path(store, "k")] == len(expected), "no byte came twice"
    assert len(between.sent("GET", "/k")) == 4


def _path(store: S3Store, key: str) -> str:
    address = store.address(key)
    return f"/{address['Bucket']}/{address['Key']}"


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("kind", IN_BODY)
def test_an_object_replaced_while_it_breaks_is_never_mixed(
    between: Proxy, store: S3Store, call: str, kind: Kind
) -> None:
    read, expected = READS[call]
    new = bytes(255 - byte for byte in DATA)
    store.put("k", DATA)
    fault = Fault("GET", "/k", kind, after=50_000, then=lambda: store.put("k", new))
    between.faults.append(fault)
    assert read(store) == bytes(255 - byte for byte in expected)
    assert between.injected == {kind: 1}


@pytest.mark.parametrize("kind", [k for k in (*PASSING, *IN_BODY) if k != "closed when idle"])
@pytest.mark.parametrize("call", ["get", "read_into"])
def test_what_never_passes_ends_in_a_sentence(
    between: Proxy, call: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    store = S3Store(f"s3://eyas/{uuid.uuid4().hex}")
    store.put("k", DATA)
    between.faults.append(Fault("GET", "/k", kind, times=99, after=0))
    with pytest.raises(StoreError, match="cannot get k") as caught:
        READS[call][0](store)
    assert "\n" not in str(caught.value)
    assert between.injected[kind] == 2, "it was tried as often as was said"


WRITES: dict[str, Callable[[S3Store], object]] = {
    "put": lambda s: s.put("k", DATA),
    "put_if_absent": lambda s: s.put_if_absent("k", DATA),
}


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("call", WRITES)
def test_a_write_survives_what_passes(
    between: Proxy, store: S3Store, call: str, kind: Kind
) -> None:
    between.faults.append(Fault("PUT", "/k", kind))
    assert WRITES[call](store) in (None, True)
    assert store.get("k") == DATA
    store.put("other/k", b"")  # on what is left of the connections
    assert between.injected == {kind: 1}


@pytest.mark.parametrize("kind", ["slow down", "reset", "lost answer"])
def test_of_two_writers_behind_faults_the_second_is_told_so(
    between: Proxy, store: S3Store, kind: Kind
) -> None:
    assert store.put_if_absent("k", b"first")
    between.faults.append(Fault("PUT", "/k", kind))
    assert not store.put_if_absent("k", b"second")
    assert store.get("k") == b"first"


def test_an_upload_in_parts_survives_a_fault_in_each_of_its_steps(
    between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_client, "READ_SECONDS", 3)  # the server thinks for long about a part
    store = S3Store(f"s3://eyas/{uuid.uuid4().hex}")
    between.faults += [
        Fault("POST", "?uploads", "slow down"),
        Fault("PUT", "partNumber=1", "stall"),
        Fault("PUT", "partNumber=1", "reset"),
        Fault("PUT", "partNumber=2", "lost answer"),
        Fault("POST", "uploadId=", "error in 200"),
        Fault("POST", "uploadId=", "internal error"),
        Fault("POST", "uploadId=", "lost answer"),
    ]
    data = DATA * 60  # 18 MB: two parts
    assert store.put_chunks("k", [data]) == len(data)
    assert sum(between.injected.values()) == len(between.faults)
    assert crc32c(store.get("k")) == crc32c(data)
    assert store.unfinished_uploads("") == 0


@pytest.mark.parametrize("kind", [*PASSING, *IN_BODY])
def test_a_listing_survives_what_passes_and_is_never_short(
    between: Proxy, store: S3Store, kind: Kind
) -> None:
    keys = [f"a/{n:02d}" for n in range(20)]
    for key in keys:
        store.put(key, b"")
    between.faults.append(Fault("GET", "list-type=2", kind))
    for _ in range(2):
        assert [info.key for info in store.list("a/")] == keys
    assert between.injected == {kind: 1}


@pytest.mark.parametrize("kind", ["slow down", "lost answer", "stall", "closed when idle"])
def test_a_deletion_survives_what_passes(between: Proxy, store: S3Store, kind: Kind) -> None:
    for key in ("a", "b"):
        store.put(key, b"")
    between.faults.append(Fault("POST", "delete", kind))
    for _ in range(2):
        store.delete(["a", "b"])
    assert list(store.list()) == []
    assert between.injected == {kind: 1}


CALLS: dict[str, Callable[[S3Store], object]] = {
    **{name: read for name, (read, _) in READS.items()},
    "put": lambda s: s.put("k", DATA),
    "stat": lambda s: s.stat("k"),
    "list": lambda s: list(s.list()),
    "delete": lambda s: s.delete(["k"]),
}


REFUSED = "refuses these credentials .ExpiredToken.: renew|may not look up k .403"  # HEAD: no code


@pytest.mark.parametrize("source", ["file", "process"])
@pytest.mark.parametrize("call", CALLS)
def test_credentials_that_were_renewed_where_they_come_from_are_taken_up(
    between: Proxy,
    seaweed: Seaweed,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: str,
    source: str,
) -> None:
    url = f"s3://eyas/{uuid.uuid4().hex}"
    S3Store(url).put("k", DATA)
    hand_out = _handing_out(tmp_path, source, monkeypatch)
    hand_out("OLD", "old")
    between.expired = {"OLD"}
    store = S3Store(url)
    with pytest.raises(StoreError, match=REFUSED):
        CALLS[call](store)
    assert between.injected["expired token"] <= 3, "asking again does not help"
    hand_out(seaweed.access_key, seaweed.secret_key)
    result = CALLS[call](store)
    if call in READS:
        assert result == READS[call][1]


def _handing_out(
    folder: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], object]:
    """From now on the environment has no keys, but names where they come from: a file of shared
    credentials, or a process that prints them. Returns what changes them there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    shared, printed, config = folder / "credentials", folder / "printed.json", folder / "config"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    if source == "process":
        config.write_text(f"[default]\ncredential_process = cat {printed}\n", encoding="utf-8")

    def hand_out(access: str, secret: str) -> None:
        if source == "file":
            lines = f"aws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
            shared.write_text(f"[default]\n{lines}", encoding="utf-8")
            return
        keys = {"AccessKeyId": access, "SecretAccessKey": secret}
        keys |= {"Version": 1, "Expiration": "2100-01-01T00:00:00Z"}  # type: ignore[dict-item]
        printed.write_text(json.dumps(keys), encoding="utf-8")

    return hand_out


OF_WRITES: tuple[Kind, ...] = (*PASSING, "error in 200")


def test_of_two_that_race_through_faults_one_wins_each_time(between: Proxy) -> None:
    """And what stands is the winner's, whichever answer was lost."""
    url = "s3://eyas/race"  # what is drawn goes by the path
    stores = [S3Store(url) for _ in range(2)]
    stores[0].delete(info.key for info in stores[0].list())
    between.rates = Rates(1, dict.fromkeys(OF_WRITES, 0.05))

    def race(who: int) -> list[bool]:
        return [stores[who].put_if_absent(f"{n}", b"%d by %d" % (n, who)) for n in range(12)]

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(race, range(2)))
    assert [a + b for a, b in zip(*won, strict=True)] == [1] * 12
    between.rates = Rates(1, {})
    for n, first in enumerate(won[0]):
        assert stores[0].get(f"{n}") == b"%d by %d" % (n, 0 if first else 1)
    assert between.injected["lost answer"] > 0


STORM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from eyas.store import open_store, retry_budget

retry_budget.BURST, retry_budget.RATE = float(sys.argv[2]), float(sys.argv[3])
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(8) as pool:
    for data in pool.map(lambda _: store.get("k"), range(8)):
        assert data == b"data"
"""


def test_four_processes_in_a_storm_keep_to_one_budget_of_retries(
    between: Proxy, store: S3Store, tmp_path: Path
) -> None:
    """However many processes ask at once: no more retries come than the burst, and then so many a
    second."""
    burst, rate, reads = 5, 20, 4 * 8
    store.put("k", b"data")
    between.times.clear()
    between.faults.append(Fault("GET", "/k", "slow down", times=60))
    command = [sys.executable, "-c", STORM, store.url, str(burst), str(rate)]
    environment = os.environ | {"TMPDIR": str(tmp_path), "AWS_MAX_ATTEMPTS": "100"}
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    with ThreadPoolExecutor(4) as pool:  # all at once
        list(pool.map(lambda process: process.communicate(), processes))
    assert [process.returncode for process in processes] == [0] * 4
    assert between.injected == {"slow down": 60}
    assert len(between.times) == reads + 60
    retries = [at - between.times[0] for at in between.times[reads:]]
    assert all(at >= (n - burst) / rate for n, at in enumerate(retries))
