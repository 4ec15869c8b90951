"""What a store can do, tried out on the store itself.

Each check is a promise that Eyas builds on: of two racers one wins, damaged bytes are refused, what
was written is what is read and listed, an aborted upload leaves nothing. A check that fails says
what was seen. All trials lie below `doctor/<random>/` and are removed at the end.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import os
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Store, StoreError
from .sealed import crc32c

if TYPE_CHECKING:
    from .s3 import S3Store

__all__ = ["Finding", "doctor"]

RACERS = 16
ROUNDS = 20
LANES = 4  # races at once, since some servers let the losers wait for seconds
SKEW_SECONDS = 30.0
MIB = 1 << 20


@dataclass(frozen=True)
class Finding:
    """One promise: whether it holds here, and what was seen."""

    name: str
    ok: bool
    detail: str


def doctor(store: Store) -> list[Finding]:
    """Try every promise; takes some seconds. If the store cannot be written at all, the one finding
    says why."""
    trial = f"doctor/{uuid.uuid4().hex}/"
    first = _try("write and read", lambda: _write_and_read(store, trial))
    if not first.ok:
        return [first]
    checks: list[tuple[str, Callable[[], str]]] = [
        ("endpoint", lambda: _endpoint(store, trial)),
        ("clock", lambda: _clock(store, trial)),
        ("read your writes", lambda: _read_your_writes(store, trial)),
        ("conditional race", lambda: _race(store, trial)),
        ("ambiguous put", lambda: _ambiguous(store, trial)),
        ("checksum", lambda: _checksum(store, trial)),
        ("ranges", lambda: _ranges(store, trial)),
        ("listing", lambda: _listing(store, trial)),
        ("multipart", lambda: _multipart(store, trial)),
        ("speed", lambda: _speed(store, trial)),
    ]
    try:
        return [first, *(_try(name, check) for name, check in checks)]
    finally:
        with contextlib.suppress(StoreError):
            store.delete([info.key for info in store.list(trial)])


class _Broken(Exception):
    """A promise does not hold; the message says what was seen."""


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except (_Broken, StoreError) as error:
        return Finding(name, False, str(error))


def _expect(holds: bool, seen: str) -> None:
    if not holds:
        raise _Broken(seen)


def _write_and_read(store: Store, trial: str) -> str:
    store.put(f"{trial}first", b"eyas")
    _expect(store.get(f"{trial}first") == b"eyas", "an object read back differs from what was put")
    store.delete([f"{trial}first"])
    return f"{store.url} can be written, read and deleted"


def _endpoint(store: Store, trial: str) -> str:
    s3 = _s3(store)
    if s3 is None:
        return f"a folder of this machine, {store.url}"
    used = _hosts_used(s3, lambda: store.stat(f"{trial}first"))
    configured = urllib.parse.urlsplit(s3.endpoint)
    bucket = s3.address("x")["Bucket"]
    legal = {
        (configured.scheme, configured.netloc),
        (configured.scheme, f"{bucket}.{configured.netloc}"),
    }
    _expect(used <= legal, f"requests went to {sorted(used)}, {s3.endpoint} is configured")
    return f"requests went to {s3.endpoint}, as configured"


def _hosts_used(s3: S3Store, request: Callable[[], object]) -> set[tuple[str, str]]:
    """Scheme and host of the requests really sent, seen at the last moment before the wire."""
    used: set[tuple[str, str]] = set()

    def see(request: Any, **_: Any) -> None:
        parts = urllib.parse.urlsplit(request.url)
        used.add((parts.scheme, parts.netloc))

    s3.client.meta.events.register("before-send.s3", see)
    try:
        request()
    finally:
        s3.client.meta.events.unregister("before-send.s3", see)
    _expect(bool(used), "no request was seen")
    return used


def _clock(store: Store, trial: str) -> str:
    before = time.time()
    theirs = _their_time(store, trial)
    after = time.time()
    skew = theirs - min(max(theirs, before), after)
    if abs(skew) < 1:  # their answer has whole seconds
        return "the store's clock and ours agree within a second"
    words = f"the store's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
    _expect(abs(skew) <= SKEW_SECONDS, f"{words}; set the time of this machine")
    return words


def _their_time(store: Store, trial: str) -> float:
    store.put(f"{trial}clock", b"")
    s3 = _s3(store)
    if s3 is None:
        found = store.stat(f"{trial}clock")
        _expect(found is not None, "an object just put is not there")
        return found.modified if found else 0.0
    answer = s3.client.head_object(**s3.address(f"{trial}clock"))
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    _expect(bool(date), "the server's answers have no Date")
    there: datetime.datetime = email.utils.parsedate_to_datetime(date)
    return there.timestamp()


def _read_your_writes(store: Store, trial: str) -> str:
    for turn in range(10):
        key, data = f"{trial}own/{turn}", os.urandom(1000)
        store.put(key, b"old")
        store.put(key, data)
        _expect(store.get(key) == data, "an overwritten object was read in its old state")
        _expect(_keys(store, key) == [key], "an object just put is not listed")
        store.delete([key])
        _expect(store.stat(key) is None, "a deleted object is still there")
        _expect(_keys(store, key) == [], "a deleted object is still listed")
    return "10 of 10 puts, overwrites and deletes were seen at once"


def _race(store: Store, trial: str) -> str:
    with ThreadPoolExecutor(LANES) as lanes:
        keys = [f"{trial}race/{turn}" for turn in range(ROUNDS)]
        for winners in lanes.map(lambda key: _one_race(store, key), keys):
            _expect(
                winners == 1,
                f"{winners} of {RACERS} racers won: conditional puts do not hold here, so no "
                "commit is safe",
            )
    return f"{ROUNDS} of {ROUNDS} races of {RACERS} had one winner"


def _one_race(store: Store, key: str) -> int:
    start = threading.Barrier(RACERS)

    def run(racer: int) -> bool:
        start.wait()
        return store.put_if_absent(key, b"%d" % racer)

    with ThreadPoolExecutor(RACERS) as pool:
        wins = list(pool.map(run, range(RACERS)))
    if sum(wins) == 1:
        _expect(store.get(key) == b"%d" % wins.index(True), "a loser's bytes stand after a race")
    return sum(wins)


def _ambiguous(store: Store, trial: str) -> str:
    key = f"{trial}ambiguous"
    _expect(store.put_if_absent(key, b"ours"), "a conditional put of a new key failed")
    _expect(store.put_if_absent(key, b"ours"), "a put that had been applied came back as lost")
    _expect(not store.put_if_absent(key, b"theirs"), "a conditional put replaced an object")
    _expect(store.get(key) == b"ours", "a conditional put replaced an object")
    return "a put whose answer is lost is settled by reading back"


def _checksum(store: Store, trial: str) -> str:
    s3 = _s3(store)
    if s3 is None:
        return "a folder verifies nothing on write; Eyas verifies all that it reads"
    from .s3_client import code_of, failures
    from .s3_upload import checksum

    address = s3.address(f"{trial}checksum")
    try:
        s3.client.put_object(**address, Body=b"damaged", ChecksumCRC32C=checksum(b"as sent"))
    except failures.ClientError as error:
        return f"bytes with a wrong CRC32C are refused ({code_of(error)})"
    raise _Broken("bytes with a wrong CRC32C were taken: damage on the way is seen only on reading")


def _ranges(store: Store, trial: str) -> str:
    key, data = f"{trial}ranges", os.urandom(100_000)
    store.put(key, data)
    for start, length in ((0, 1), (1, 99_999), (99_999, 1), (0, 100_000), (4095, 8192), (50, 0)):
        found = store.get_range(key, start, length)
        _expect(found == data[start : start + length], f"{length} bytes from {start} differ")
    for start, length in ((99_999, 2), (100_000, 1), (200_000, 10)):
        try:
            store.get_range(key, start, length)
        except StoreError:
            continue
        raise _Broken(f"{length} bytes from {start} of 100000 were answered")
    return "ranges are exact, and refused past the end"


def _listing(store: Store, trial: str) -> str:
    """Over a thousand keys, so in pages; some sort otherwise by path part than by byte."""
    names = ["a-b", "a.b", "a/b", "a/c-d", "a/c/d", "a0", "a b", "é", "ب/ت", "~", "%2F", "x+y"]
    keys = [f"{trial}list/{name}" for name in names]
    keys += [f"{trial}list/many/{n:04d}" for n in range(1100)]
    with ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    found = _keys(store, f"{trial}list/")
    missing, extra = sorted(set(keys) - set(found)), sorted(set(found) - set(keys))
    _expect(not missing, f"{len(missing)} of {len(keys)} keys are not listed, {missing[:1]} first")
    _expect(not extra, f"{len(extra)} keys are listed that were not put, {extra[:1]} first")
    _expect(found == sorted(keys, key=str.encode), "keys are not listed in byte order, or twice")
    s3 = _s3(store)
    sorts = s3 is not None and not s3.server_lists_in_order(f"{trial}list/")
    return f"{len(keys)} keys, in pages, in byte order" + (
        " (the server has an order of its own; Eyas sorts)" if sorts else ""
    )


def _multipart(store: Store, trial: str) -> str:
    key = f"{trial}multipart"
    blocks = [os.urandom(MIB) for _ in range(33)]
    value = 0
    for block in blocks:
        value = crc32c(block, value)
    _expect(store.put_chunks(key, blocks) == 33 * MIB, "an object in parts has another size")
    _expect(crc32c(store.get(key)) == value, "an object in parts is read with other bytes")

    def breaking() -> Iterator[bytes]:
        yield from blocks[:20]
        raise _Interrupted

    with contextlib.suppress(_Interrupted):
        store.put_chunks(f"{trial}aborted", breaking())
    _expect(store.stat(f"{trial}aborted") is None, "an interrupted put is visible")
    s3 = _s3(store)
    left = s3.unfinished_uploads(f"{trial}aborted") if s3 is not None else 0
    _expect(left == 0, "an interrupted put left an unfinished upload behind")
    return "33 MiB in parts are whole; an interrupted put leaves nothing"


class _Interrupted(Exception):
    pass


def _speed(store: Store, trial: str) -> str:
    key, data = f"{trial}speed", os.urandom(16 * MIB)
    start = time.perf_counter()
    store.put(key, data)
    middle = time.perf_counter()
    _expect(store.get(key) == data, "16 MiB were read with other bytes")
    end = time.perf_counter()
    up, down = 16 / (middle - start), 16 / (end - middle)
    return f"{up:.0f} MiB/s up, {down:.0f} MiB/s down, one object of 16 MiB on one connection"


def _keys(store: Store, prefix: str) -> list[str]:
    return [info.key for info in store.list(prefix)]


def _s3(store: Store) -> S3Store | None:
    """The store as an S3 store, for what only those can be asked."""
    if not store.url.startswith("s3://"):
        return None
    from .s3 import S3Store

    return store if isinstance(store, S3Store) else None
