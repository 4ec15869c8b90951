"""Batches read ahead: the future is known exactly, so it is fetched before it is asked for.

One thread plans and builds, a few fetch blocks, each on a connection of its own; the consumer takes
finished batches. Steps are *admitted* in order: a step is admitted when its batch and those of its
blocks that are not there yet fit under the bound of bytes, after blocks that no admitted step needs
have gone, the longest unused first. Since the oldest admitted step always has all it needs, the
consumer's taking batches is what moves everything on (backpressure), and nothing can wait in a
circle. A step that does not fit alone is an error that says what would do.

An error waits for its step: what could not be read five steps ahead is raised when those five have
been handed out. Threads hold the flow but not the `Stream`, so one that is dropped, closed or left
over at exit stops them; a block being read is waited for, so that no connection is cut in two.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from eyas.recipe import UsageError
from eyas.store import StoreError

from .blocks import Block
from .rows import BlockKey, Located, batch_bytes

__all__ = ["AHEAD_BYTES", "Feed", "Stream"]

AHEAD_BYTES = 512 * 2**20
_CONNECTIONS = 4
_READY = 4
_STEPS_AHEAD = 256
_PATIENCE = 30.0

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Feed(Protocol[T_co]):
    """What a stream reads from: all calls come from its threads, `read` from several."""

    @property
    def block_bytes(self) -> int:
        """Memory that `read` needs."""
        ...

    def locate(self, steps: range) -> list[Located]:
        """Where the rows of the first of these steps lie, and of as many more as are worked out
        together."""
        ...

    def read(self, key: BlockKey, memory: npt.NDArray[np.uint8]) -> Block:
        """A verified block, in that memory."""
        ...

    def build(self, where: Located, block: Callable[[BlockKey], Block]) -> T_co:
        """The batch, of blocks that are there."""
        ...


class Stream(Iterator[T]):
    """An iterator over the batches of `steps`, for one consumer. Raises UsageError if the first
    step cannot be located; on `next`, what its step fails with, and StoreError after fork."""

    def __init__(self, feed: Feed[T], steps: range, ahead_bytes: int) -> None:
        self._pid = os.getpid()
        self._flow = _Flow(feed, steps, ahead_bytes)
        self._end = weakref.finalize(self, self._flow.end)

    def __next__(self) -> T:
        if os.getpid() != self._pid:
            raise StoreError(
                "a stream opened before fork was used after it; open tokens and stream in the "
                "child, or start workers with spawn"
            )
        try:
            return self._flow.take()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop reading ahead. Returns when the threads have ended; `next` then ends at once."""
        self._end()

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass
class _Held:
    """A block that is there, on its way or failed; `users` are admitted steps that need it."""

    memory: npt.NDArray[np.uint8]
    users: int = 0
    block: Block | None = None
    error: BaseException | None = None
    extra: int = 0

    @property
    def settled(self) -> bool:
        return self.block is not None or self.error is not None


@dataclass(frozen=True)
class _Step:
    """A located step; `keys` are its blocks, each once, in the order of its rows."""

    number: int
    where: Located
    keys: tuple[BlockKey, ...] = field(default=())

    @property
    def bytes(self) -> int:
        return batch_bytes(self.where.height, self.where.sequence)


class _Flow(Generic[T]):
    """What consumer and threads share, under one lock. `_used` bytes are accounted for: memory of
    blocks, batches of admitted steps and batches that wait."""

    def __init__(self, feed: Feed[T], steps: range, limit: int) -> None:
        self._feed = feed
        self._limit = limit
        self._pid = os.getpid()
        self._todo = steps
        self._located: deque[_Step] = deque()
        self._locate()  # in the caller's thread: a wrong rank is refused at once
        self._admitted: deque[_Step] = deque()
        self._blocks: OrderedDict[BlockKey, _Held] = OrderedDict()
        self._wanted: deque[BlockKey] = deque()
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._ready: deque[tuple[T, int]] = deque()
        self._used = 0
        self._error: BaseException | None = None
        self._last: Exception | None = None
        self._done = self._stopping = False
        self._lock = threading.RLock()  # the end may come while it is held, from the collector
        self._taker, self._worker, self._fetchers = (
            threading.Condition(self._lock) for _ in range(3)
        )
        self._threads = [threading.Thread(target=self._work, name="eyas-stream", daemon=True)]
        self._threads += [
            threading.Thread(target=self._fetch, name=f"eyas-stream-{i}", daemon=True)
            for i in range(_CONNECTIONS)
        ]
        for thread in self._threads:
            thread.start()

    def take(self) -> T:
        """The next batch, waited for. Raises StopIteration at the end."""
        with self._lock:
            self._taker.wait_for(lambda: self._ready or self._done or self._stopping)
            if self._stopping:
                raise StopIteration
            if not self._ready:
                raise self._error or StopIteration
            batch, size = self._ready.popleft()
            self._used -= size
            self._worker.notify()
            return batch

    def end(self) -> None:
        """Stop the threads and wait for them; in a forked child there are none."""
        if os.getpid() != self._pid:
            return
        self._stopping = True
        self._wake_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)
        self._ready.clear()
        self._blocks.clear()

    def _wake_all(self) -> None:
        with self._lock:
            for condition in (self._taker, self._worker, self._fetchers):
                condition.notify_all()

    def _work(self) -> None:
        """The thread that admits and builds, until the end or the first error."""
        try:
            while self._advance():
                pass
        except BaseException as error:  # noqa: BLE001 - the consumer's to raise
            self._error = error
        self._done = True
        self._wake_all()

    def _advance(self) -> bool:
        """Build the oldest step if its blocks are there, else admit one more, else wait. False when
        there is nothing left to do."""
        if not self._located and self._todo:
            try:
                self._locate()
            except Exception as error:  # noqa: BLE001 - raised after the steps before it
                self._last, self._todo = error, self._todo[:0]
        with self._lock:
            while not self._stopping and (self._admitted or self._located):
                if self._buildable():
                    step = self._admitted[0]
                    break
                if self._located and self._admit(self._located[0]):
                    self._located.popleft()
                    return True
                self._worker.wait()
            else:
                if self._last is not None:
                    raise self._last
                return False
        self._build(step)
        return True

    def _buildable(self) -> bool:
        if not self._admitted or len(self._ready) >= _READY:
            return False
        return all(self._blocks[key].settled for key in self._admitted[0].keys)

    def _build(self, step: _Step) -> None:
        for key in step.keys:
            if (error := self._blocks[key].error) is not None:
                raise error
        batch = self._feed.build(step.where, self._block)
        with self._lock:
            self._admitted.popleft()
            for key in step.keys:
                self._blocks[key].users -= 1
            self._ready.append((batch, step.bytes))
            self._taker.notify()

    def _block(self, key: BlockKey) -> Block:
        block = self._blocks[key].block
        assert block is not None
        return block

    def _locate(self) -> None:
        """Some more of the steps to do."""
        if not self._todo:
            return
        for where in self._feed.locate(self._todo):
            keys = tuple(dict.fromkeys(run.key for run in where.runs))
            self._located.append(_Step(self._todo[0], where, keys))
            self._todo = self._todo[1:]

    def _admit(self, step: _Step) -> bool:
        """Make room for a step and ask for its blocks; False if it must wait."""
        if len(self._admitted) >= _STEPS_AHEAD:
            return False
        missing = [key for key in step.keys if key not in self._blocks]
        size = self._feed.block_bytes
        if not self._make_room(step, len(missing) * size + step.bytes):
            if not self._admitted and not self._ready:
                raise self._too_small(step)
            return False
        for key in missing:
            memory = self._memory.pop() if self._memory else np.empty(size, np.uint8)
            self._blocks[key] = _Held(memory)
        self._memory.clear()
        for key in step.keys:
            self._blocks[key].users += 1
            self._blocks.move_to_end(key)
        self._used += len(missing) * size + step.bytes
        self._wanted.extend(missing)
        self._admitted.append(step)
        self._fetchers.notify(len(missing))
        return True

    def _make_room(self, step: _Step, size: int) -> bool:
        """Let go of unused blocks, the longest unused first, until `size` bytes are free."""
        if self._used + size <= self._limit:
            return True
        own = set(step.keys)
        unused = [
            key
            for key, held in self._blocks.items()
            if not held.users and held.settled and key not in own
        ]
        for key in unused:
            held = self._blocks.pop(key)
            self._used -= len(held.memory) + held.extra
            self._memory.append(held.memory)
            if self._used + size <= self._limit:
                return True
        return False

    def _too_small(self, step: _Step) -> UsageError:
        least = step.bytes + len(step.keys) * self._feed.block_bytes
        least += sum(self._blocks[key].extra for key in step.keys if key in self._blocks)
        return UsageError(
            f"step {step.number} needs {least} bytes (a batch of {step.where.height} x "
            f"{step.where.sequence} tokens and {len(step.keys)} blocks), the stream may hold "
            f"{self._limit}: give it ahead_bytes of {least} or more"
        )

    def _fetch(self) -> None:
        """A thread that reads blocks, in the order in which they are needed."""
        while True:
            with self._lock:
                self._fetchers.wait_for(lambda: self._wanted or self._stopping or self._done)
                if self._stopping or self._done:
                    return
                held = self._blocks[key := self._wanted.popleft()]
            block = error = None
            try:
                block = self._feed.read(key, held.memory)
            except BaseException as failure:  # noqa: BLE001 - raised at the step that needs it
                error = failure
            with self._lock:
                held.block, held.error = block, error
                if block is not None:
                    held.extra = block.ends.nbytes
                    self._used += held.extra
                if self._buildable():
                    self._worker.notify()
