"""Promises of streams: the same batches, read ahead within a bound, errors at their step, no thread
left."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tokens.made import BLOCK_BYTES, Watched, recipe
from torch.utils.data import DataLoader, Dataset, IterableDataset

from eyas.recipe import UsageError
from eyas.store import Corrupt, NotFound, Store, StoreError, open_store
from eyas.tokens import Batch, Tokens, make_data_plan, open_tokens

BLOCK = BLOCK_BYTES + 2
"""Memory of a block and the token before it."""
BATCH = 12 * (33 * 8 + 32)
"""Memory of a batch of 12 samples of 32 tokens."""


def _threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("eyas-stream")]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    assert not _threads()
    yield
    assert not _threads()


def _same(left: Batch, right: Batch) -> bool:
    names = ("ids", "document_ids", "loss_mask")
    equal = all(torch.equal(getattr(left, n), getattr(right, n)) for n in names)
    return equal and (left.samples, left.digest) == (right.samples, right.digest)


def test_a_stream_gives_the_same_batches(made: Store) -> None:
    tokens = open_tokens(made)
    with tokens.stream() as stream:
        found = list(stream)
    assert len(found) == 40
    assert all(_same(batch, tokens.batch(step)) for step, batch in enumerate(found))


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("ahead_bytes", [BATCH + 12 * (BLOCK + 256), 2**20])
def test_of_any_part_of_any_world_within_any_bound(
    mixed: Store, split: str, ahead_bytes: int
) -> None:
    tokens = open_tokens(mixed, split=split, ragged=True)
    for rank, world, first, stop in ((0, 1, 0, None), (1, 3, 1, 3), (4, 5, 2, None), (0, 1, 2, 2)):
        steps = range(first, tokens.steps if stop is None else stop)
        with tokens.stream(first, stop, rank, world, ahead_bytes) as stream:
            found = list(stream)
        assert len(found) == len(steps)
        pure = (tokens.batch(step, rank, world) for step in steps)
        assert all(map(_same, found, pure))


def test_each_block_is_read_once_and_a_rank_reads_only_its_own(made_here: Store) -> None:
    watched = Watched(made_here)
    tokens = open_tokens(watched)
    list(tokens.stream())
    assert len(watched.reads) == len(set(watched.reads))
    watched.reads.clear()
    list(tokens.stream(rank=1, world=4))
    needed = {run.key for step in range(40) for run in tokens._one(step, 1, 4).runs}
    objects = tokens._sources[0].objects
    assert sorted(watched.reads) == sorted(
        (objects[number].tokens.key, index * BLOCK_BYTES, False) for _, number, index in needed
    )


def test_blocks_of_later_steps_are_read_before_they_are_asked_for(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    sequence = [{run.key for run in tokens._one(step, 0, 1).runs} for step in range(40)]
    late = next(s for s in range(1, 40) if sequence[s] - set().union(*sequence[:s]))
    _, number, index = (sequence[late] - set().union(*sequence[:late])).pop()
    wanted = (tokens._sources[0].objects[number].tokens.key, index * BLOCK_BYTES)
    read = threading.Event()

    def note(key: str, start: int, buffer: Any, fresh: bool) -> None:
        if (key, start) == wanted:
            read.set()

    with open_tokens(Watched(made_here, note)).stream():
        assert read.wait(60)


def test_what_is_held_stays_within_the_bound(made_here: Store) -> None:
    limit = 3 * BATCH + 14 * (BLOCK + 256)
    most: list[int] = []

    def note(key: str, start: int, buffer: Any, fresh: bool) -> None:
        assert opened.wait(60)
        flow = stream._flow
        with flow._lock:
            held = sum(len(h.memory) + h.extra for h in flow._blocks.values())
            waiting = sum(size for _, size in flow._ready) + sum(s.bytes for s in flow._admitted)
            assert flow._used == held + waiting
            most.append(flow._used)

    opened, watched = threading.Event(), Watched(made_here, note)
    stream = open_tokens(watched).stream(ahead_bytes=limit)
    opened.set()
    with stream:
        assert len(list(stream)) == 40
    documents = 8 * 512  # the ends of a block are counted when it has come
    assert max(most) <= limit + documents
    assert len(watched.reads) > len(set(watched.reads)), "some blocks had to go and come again"


def test_a_bound_that_one_step_does_not_fit_in_says_what_would_do(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    with tokens.stream(3, 4, ahead_bytes=5000) as stream, pytest.raises(UsageError) as caught:
        next(stream)
    keys = {run.key for run in tokens._one(3, 0, 1).runs}
    least = BATCH + len(keys) * BLOCK
    assert f"step 3 needs {least} bytes" in str(caught.value)
    assert f"ahead_bytes of {least} or more" in str(caught.value)
    with tokens.stream(3, 4, ahead_bytes=least) as stream:
        assert _same(next(stream), tokens.batch(3))


def test_a_wrong_world_or_step_is_refused_at_once_or_at_its_step(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    with pytest.raises(UsageError, match="cannot be shared by 5"):
        tokens.stream(world=5)
    with pytest.raises(UsageError, match="step 40 is not in"):
        tokens.stream(40, 41)
    stream = tokens.stream(38, 42)
    assert _same(next(stream), tokens.batch(38))
    assert _same(next(stream), tokens.batch(39))
    with pytest.raises(UsageError, match="step 40 is not in"):
        next(stream)
    assert list(stream) == []


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_what_is_wrong_with_a_block_is_raised_at_the_step_that_needs_it(
    made_here: Store, how: str
) -> None:
    tokens = open_tokens(made_here)
    expected = [tokens.batch(step) for step in range(40)]
    sequence = [{run.key for run in tokens._one(step, 0, 1).runs} for step in range(40)]
    late = next(s for s in range(2, 40) if sequence[s] - set().union(*sequence[:s]))
    _, number, index = (sequence[late] - set().union(*sequence[:late])).pop()
    key = tokens._sources[0].objects[number].tokens.key

    def harm(name: str, start: int, buffer: Any, fresh: bool) -> None:
        if (name, start) != (key, index * BLOCK_BYTES):
            return
        if how == "gone":
            raise NotFound("test", name)
        memoryview(buffer)[7] ^= 1

    watched = Watched(made_here, harm)
    stream = open_tokens(watched).stream()
    for step in range(late):
        assert _same(next(stream), expected[step])
    kind, words = (
        (NotFound, key) if how == "gone" else (Corrupt, f"{key} is damaged in block {index} ")
    )
    with pytest.raises(kind, match=words):
        next(stream)
    assert not _threads()
    assert list(stream) == []
    if how == "damaged":
        place = (key, index * BLOCK_BYTES)
        assert [fresh for *at, fresh in watched.reads if tuple(at) == place] == [False, True]
    harmless = open_tokens(Watched(made_here, harm)).stream(stop=late)
    assert len(list(harmless)) == late, "a block that no step needs is nobody's error"


def test_a_bit_flipped_on_the_wire_changes_nothing(made: Store) -> None:
    flipped: list[tuple[str, int]] = []

    def flip(key: str, start: int, buffer: Any, fresh: bool) -> None:
        if not fresh and key.endswith(".tok"):
            flipped.append((key, start))
            memoryview(buffer)[len(buffer) // 2] ^= 0x40

    tokens = open_tokens(made)
    with open_tokens(Watched(made, flip)).stream(0, 6) as stream:
        assert all(_same(batch, tokens.batch(step)) for step, batch in enumerate(stream))
    assert flipped


@pytest.mark.parametrize("end", ["close", "exception", "drop", "exhaust"])
def test_no_thread_is_left(made_here: Store, end: str) -> None:
    stream = open_tokens(made_here).stream()
    next(stream)
    assert len(_threads()) > 1
    if end == "close":
        stream.close()
        stream.close()
        assert list(stream) == []
    elif end == "exception":
        with pytest.raises(ZeroDivisionError), stream:
            raise ZeroDivisionError
    elif end == "exhaust":
        assert len(list(stream)) == 39
    else:
        del stream
        gc.collect()
    assert not _threads()


def test_a_consumer_that_stops_while_a_read_hangs_waits_for_that_read_only(
    made_here: Store,
) -> None:
    hanging, go = threading.Event(), threading.Event()

    def hang(key: str, start: int, buffer: Any, fresh: bool) -> None:
        hanging.set()
        assert go.wait(60)

    stream = open_tokens(Watched(made_here, hang)).stream()
    assert hanging.wait(60)
    closing = threading.Thread(target=stream.close)
    closing.start()
    go.set()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("left", ["open", "failed", "unread"])
def test_the_interpreter_exits_with_a_stream_left_over(made_folder: Path, left: str) -> None:
    code = (
        "import sys; from eyas.store import open_store; from eyas.tokens import open_tokens;"
        "tokens = open_tokens(open_store(sys.argv[1])); stream = tokens.stream();"
        f"{'' if left == 'unread' else 'next(stream);'}"
        f"{'raise SystemExit(7)' if left == 'failed' else 'kept = [stream]'}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(made_folder)],
        env=os.environ | {"PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7 if left == "failed" else 0, "")


def test_after_fork_it_says_what_to_do_and_the_parent_goes_on(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    stream = tokens.stream()
    next(stream)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(stream)
        except StoreError as error:
            stream.close()
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert b"start workers with spawn" in os.read(reading, 1000)
    os.waitpid(child, 0)
    assert _same(next(stream), tokens.batch(1))
    stream.close()


class Steps(Dataset[Batch]):
    """A batch for each step, as a map."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return 6

    def __getitem__(self, step: int) -> Batch:
        return self.tokens.batch(step)


class Streamed(IterableDataset[Batch]):
    """Each worker streams a part of the world."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        with self.tokens.stream(0, 6, worker.id, worker.num_workers) as stream:
            yield from stream


def _loader(data: Any, context: str) -> DataLoader[Batch]:
    return DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=context)


@pytest.mark.slow
def test_it_works_in_a_data_loader_under_spawn(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    found = list(_loader(Steps(tokens), "spawn"))
    assert len(found) == 6
    assert all(_same(batch, tokens.batch(step)) for step, batch in enumerate(found))
    parts = list(_loader(Streamed(tokens), "spawn"))
    assert len(parts) == 12
    assert all(_same(part, tokens.batch(i // 2, i % 2, 2)) for i, part in enumerate(parts))


def test_a_data_loader_that_forks_is_refused_with_a_sentence(made_here: Store) -> None:
    for data in (Steps(open_tokens(made_here)), Streamed(open_tokens(made_here))):
        with pytest.raises(StoreError, match="start workers with spawn"):
            list(_loader(data, "fork"))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_memory_is_flat_over_a_hundred_thousand_steps(made_here: Store) -> None:
    steps = 100_000
    keys = {
        "data__sequence": 16,
        "train__global_batch": 64,
        "train__tokens": 64 * steps,
        "data__epochs": 10_000,
    }
    make_data_plan(recipe(made_here, **keys), made_here)
    tokens = open_tokens(open_store(made_here.url))
    blocks, resident = [], []
    with tokens.stream(ahead_bytes=2**18) as stream:
        for step, _ in enumerate(stream, 1):
            if step % 10_000 == 0:
                gc.collect()
                blocks.append(sys.getallocatedblocks())
                pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
                resident.append(int(pages) * resource.getpagesize())
    assert len(blocks) == 10
    assert max(blocks[5:]) < 1.01 * max(blocks[:5]), "objects: located steps come in groups"
    assert max(resident[5:]) < max(resident[:5]) + 2**20, "bytes"
