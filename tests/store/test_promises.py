"""What every store promises, on both kinds."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eyas.store import NotFound, Store, StoreError, open_store, put_piece, read_pieces
from eyas.store.s3_upload import split

MIB = 1 << 20
ONE_STORE = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

PARTS = st.text(
    st.characters(
        min_codepoint=32, exclude_characters="/\\\x7f\ufffe\uffff", exclude_categories=["Cs"]
    ),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", "..") and not part.startswith(".tmp-"))
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


def _keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def _free_of_folders(keys: set[str]) -> set[str]:
    """Without those that are another's folder."""
    return {k for k in keys if not any(other.startswith(k + "/") for other in keys)}


def test_what_was_put_is_read(store: Store) -> None:
    for data in (b"", b"a", bytes(range(256)) * 5000):
        store.put("some/key", data)
        assert store.get("some/key") == data
        info = store.stat("some/key")
        assert info is not None
        assert (info.key, info.size) == ("some/key", len(data))
        assert list(store.list("some/")) == [info]


def test_another_store_on_the_same_place_sees_it(store: Store) -> None:
    store.put("a", b"1")
    assert open_store(store.url).get("a") == b"1"


@ONE_STORE
@given(start=st.integers(0, 1100), length=st.integers(0, 1100))
def test_a_range_is_a_slice_or_an_error(store: Store, start: int, length: int) -> None:
    data = bytes(range(250)) * 4
    if store.stat("o") is None:
        store.put("o", data)
    if length and start + length > len(data):
        with pytest.raises(StoreError, match="ends before"):
            store.get_range("o", start, length)
    else:
        assert store.get_range("o", start, length) == data[start : start + length]


@ONE_STORE
@given(start=st.integers(0, 1100), length=st.integers(1, 1100), fresh=st.booleans())
def test_a_buffer_is_filled_whole_or_it_is_an_error(
    store: Store, start: int, length: int, fresh: bool
) -> None:
    data = bytes(range(250)) * 4
    if store.stat("o") is None:
        store.put("o", data)
    around = bytearray(length + 2)
    with memoryview(around) as view:
        if start + length > len(data):
            with pytest.raises(StoreError, match=f"ends before byte {start + length}"):
                store.read_into("o", start, view[1:-1], fresh)
            return
        store.read_into("o", start, view[1:-1], fresh)
    assert around == b"\0" + data[start : start + length] + b"\0", "and nothing beside it"


def test_a_buffer_may_have_any_shape(store: Store) -> None:
    numbers = np.arange(600, dtype=np.uint32).reshape(20, 30)
    store.put("n", numbers.tobytes())
    found = np.zeros((10, 30), np.uint32)
    store.read_into("n", 10 * 30 * 4, found)
    assert (found == numbers[10:]).all()
    store.read_into("n", 2400, np.zeros((0, 5)))
    with pytest.raises(NotFound):
        store.read_into("not there", 0, bytearray())


def test_a_buffer_that_cannot_be_filled_is_refused(store: Store) -> None:
    store.put("n", bytes(100))
    for buffer in (b"only to read", np.zeros((6, 6), np.uint8)[:, ::2]):
        with pytest.raises(TypeError):
            store.read_into("n", 0, buffer)


def test_an_empty_object_has_no_range(store: Store) -> None:
    store.put("empty", b"")
    assert store.get_range("empty", 0, 0) == b""
    with pytest.raises(StoreError, match="ends before"):
        store.get_range("empty", 0, 1)


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
def test_a_negative_range_is_refused(store: Store, start: int, length: int) -> None:
    store.put("o", b"abc")
    with pytest.raises(StoreError, match="negative"):
        store.get_range("o", start, length)


def test_what_is_not_there_is_named(store: Store) -> None:
    store.put("there/is", b"")
    for key in ("not", "there", "there/not", "there/is/not"):
        assert store.stat(key) is None
        for read in (
            store.get,
            lambda k: store.get_range(k, 0, 1),
            lambda k: store.get_range(k, 0, 0),
            lambda k: store.read_into(k, 0, bytearray(1)),
        ):
            with pytest.raises(NotFound, match=f"no object {key}") as caught:
                read(key)
            assert caught.value.key == key
    store.delete(["not", "there/not"])
    assert _keys(store) == ["there/is"]


def test_a_conditional_put_never_replaces(store: Store) -> None:
    assert store.put_if_absent("k", b"first")
    assert not store.put_if_absent("k", b"second")
    assert store.get("k") == b"first"
    assert store.put_if_absent("k", b"first"), "what stands there is ours"
    store.delete(["k"])
    assert store.put_if_absent("k", b"second")


def test_sixteen_racers_have_one_winner(store: Store) -> None:
    """Twenty rounds, some at once: the S3 server lets losers wait for seconds."""

    def one_round(number: int) -> None:
        start = threading.Barrier(16)

        def run(racer: int) -> bool:
            start.wait()
            return store.put_if_absent(f"race/{number}", b"%d" % racer)

        with ThreadPoolExecutor(16) as racers:
            wins = list(racers.map(run, range(16)))
        assert wins.count(True) == 1
        assert store.get(f"race/{number}") == b"%d" % wins.index(True)

    with ThreadPoolExecutor(5) as lanes:
        list(lanes.map(one_round, range(20)))


def _race(url: str, start: Any, results: Any, name: int) -> None:
    store = open_store(url)
    start.wait()
    results.put((name, [store.put_if_absent(f"r/{n}", b"%d" % name) for n in range(20)]))


def test_racing_processes_have_one_winner(folder_store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(4), context.Queue()
    racers = [
        context.Process(target=_race, args=(folder_store.url, start, results, name))
        for name in range(4)
    ]
    for racer in racers:
        racer.start()
    wins = dict(results.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join(60)
    for number in range(20):
        winners = [name for name, won in wins.items() if won[number]]
        assert len(winners) == 1
        assert folder_store.get(f"r/{number}") == b"%d" % winners[0]


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40))
def test_pieces_have_one_size_and_the_same_bytes(chunks: list[bytes], size: int) -> None:
    pieces = list(split(chunks, size))
    assert b"".join(pieces) == b"".join(chunks)
    assert all(len(p) == size for p in pieces[:-1])
    assert all(0 < len(p) <= size for p in pieces)


@pytest.mark.parametrize("size", [0, 1, 16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 70 * MIB])
def test_an_object_of_any_size_comes_whole_from_chunks(store: Store, size: int) -> None:
    block = random.Random(size).randbytes(MIB + 7)
    whole = (block * (size // len(block) + 1))[:size]
    chunks = (whole[i : i + 3 * MIB + 1] for i in range(0, size, 3 * MIB + 1))
    assert store.put_chunks("big", chunks) == size
    assert store.get("big") == whole
    assert [(o.key, o.size) for o in store.list()] == [("big", size)]


def test_a_large_put_comes_whole(s3_store: Store) -> None:
    data = random.Random(1).randbytes(MIB) * 65
    s3_store.put("big", data)
    assert s3_store.get("big") == data


class _Stop(Exception):
    pass


@pytest.mark.parametrize("error", [_Stop("mine"), FileNotFoundError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("size", [0, 5, 40 * MIB])
def test_an_exception_in_chunks_passes_and_leaves_nothing(
    store: Store, size: int, error: BaseException
) -> None:
    def breaking() -> Iterator[bytes]:
        for _ in range(0, size, 4 * MIB):
            yield bytes(min(size, 4 * MIB))
        raise error

    with pytest.raises(type(error)) as caught:
        store.put_chunks("k", breaking())
    assert caught.value is error
    _assert_nothing_left(store)


def _assert_nothing_left(store: Store) -> None:
    assert _keys(store) == []
    assert store.stat("k") is None
    if store.url.startswith("s3://"):
        assert store.unfinished_uploads("") == 0  # type: ignore[attr-defined]
    else:
        assert [p for p in Path(store.url).rglob("*") if p.is_file()] == []


def test_an_exception_in_chunks_leaves_what_stood_there(store: Store) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"new"
        raise _Stop

    store.put("k", b"old")
    with pytest.raises(_Stop):
        store.put_chunks("k", breaking())
    assert store.get("k") == b"old"


KILLED = """
import sys
from eyas.store import open_store

def chunks():
    for _ in range(40):
        yield bytes(1 << 20)
    print("mid-write", flush=True)
    sys.stdin.read()

open_store(sys.argv[1]).put_chunks("k", chunks())
"""


def test_a_writer_killed_in_the_middle_leaves_nothing_visible(store: Store) -> None:
    store.put("before", b"")
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"mid-write\n"
    child.send_signal(signal.SIGKILL)
    assert child.wait(30) == -signal.SIGKILL
    child.communicate()
    assert _keys(store) == ["before"]
    assert store.stat("k") is None
    with pytest.raises(NotFound):
        store.get("k")
    if store.url.startswith("s3://"):
        assert store.unfinished_uploads("k") == 1, "it was in the middle"  # type: ignore[attr-defined]
    else:
        assert len(list(Path(store.url).glob(".tmp-*"))) == 1, "it was in the middle"
    assert store.put_if_absent("k", b"now")
    assert _keys(store) == ["before", "k"]


def test_listing_is_in_byte_order_over_many_pages(store: Store) -> None:
    keys = [f"{n % 7}{'-./'[n % 3]}{n:04d}" for n in range(1100)]
    keys += ["0/a-b", "0/a.b", "0/a/b", "0/a/c-d", "0/a/c/d", "0/a0", "é/ب", "~"]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    assert _keys(store) == sorted(keys, key=str.encode)
    for prefix in ("0", "0/", "0/a", "0/a/c", "0/a-", "3.", "nothing", "é/"):
        wanted = sorted((k for k in keys if k.startswith(prefix)), key=str.encode)
        assert _keys(store, prefix) == wanted
    store.delete(key for key in keys if not key.startswith("0/a"))
    assert _keys(store) == ["0/a-b", "0/a.b", "0/a/b", "0/a/c-d", "0/a/c/d", "0/a0"]


@ONE_STORE
@given(st.sets(KEYS, max_size=8).map(_free_of_folders), KEYS)
def test_any_legal_key_is_put_listed_and_deleted(store: Store, keys: set[str], prefix: str) -> None:
    below = f"t/{uuid.uuid4().hex}/"
    for key in keys:
        store.put(below + key, key.encode())
    assert _keys(store, below) == sorted((below + k for k in keys), key=str.encode)
    wanted = sorted((below + k for k in keys if k.startswith(prefix)), key=str.encode)
    assert _keys(store, below + prefix) == wanted
    for key in keys:
        assert store.get(below + key) == key.encode()
    store.delete(below + key for key in keys)
    assert _keys(store, below) == []


ILLEGAL = ("", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\nb", "a\x00", "a\\b", "\ud800")
HIDDEN = (".tmp-x", "a/.tmp-1/b", "\x7f", "a" * 251, "/".join(["a" * 200] * 5), "é" * 126)


def test_an_illegal_key_is_refused_by_every_call(store: Store) -> None:
    for key in (*ILLEGAL, *HIDDEN):
        for call in (
            store.get,
            lambda k: store.get_range(k, 0, 1),
            lambda k: store.read_into(k, 0, bytearray(1)),
            lambda k: store.put(k, b""),
            lambda k: store.put_if_absent(k, b""),
            lambda k: store.put_chunks(k, []),
            store.stat,
            lambda k: store.delete([k]),
        ):
            with pytest.raises(StoreError, match="illegal key"):
                call(key)
    assert _keys(store) == []


def test_an_illegal_prefix_is_refused(store: Store) -> None:
    for prefix in ("../x", "a/../", "/", "a//b", "./a", "a\n"):
        with pytest.raises(StoreError, match="illegal prefix"):
            _keys(store, prefix)


def test_threads_may_share_a_store(store: Store) -> None:
    def own(n: int) -> bool:
        data = os.urandom(5000)
        store.put(f"t/{n}", data)
        return store.get(f"t/{n}") == data and store.get_range(f"t/{n}", 10, 20) == data[10:30]

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(own, range(200)))


def test_a_store_used_after_fork_says_so(store: Store) -> None:
    store.put("k", b"1")
    calls = (
        lambda: store.get("k"),
        lambda: store.get_range("k", 0, 1),
        lambda: store.read_into("k", 0, bytearray(1)),
        lambda: store.put("k", b""),
        lambda: store.put_if_absent("k", b""),
        lambda: store.put_chunks("k", [b""]),
        lambda: list(store.list()),
        lambda: store.stat("k"),
        lambda: store.delete(["k"]),
    )
    child = os.fork()
    if child == 0:  # no assertion may return from here
        said = 0
        for call in calls:
            try:
                call()
            except StoreError as error:
                said += "after" in str(error) and "fork" in str(error)
            except BaseException:  # noqa: BLE001
                os._exit(99)
        os._exit(said)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    assert store.get("k") == b"1"


def test_pieces_of_a_stream_come_back_in_order(store: Store) -> None:
    for number in (0, 200, 1000, 30):
        put_piece(store, "metrics/000001", number, [{"step": number}, {"step": number + 1}])
    put_piece(store, "metrics/000002", 0, [{"step": -1}])
    store.put("metrics/000001/notes.txt", b"no piece")
    steps = [r["step"] for r in read_pieces(store, "metrics/000001")]
    assert steps == [0, 1, 30, 31, 200, 201, 1000, 1001]


def test_a_broken_line_of_a_stream_is_named(store: Store) -> None:
    key = put_piece(store, "s", 7, [{"a": 1}])
    store.put(key, io.BytesIO(store.get(key)).read() + b'{"a":\n{"a":2}\n')
    assert list(read_pieces(store, "s")) == [{"a": 1}, {"broken": f"{key}:2"}, {"a": 2}]
