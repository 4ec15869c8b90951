"""Stores that misbehave, or count, around a real one; and a store in memory for property tests."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from eyas.store import NotFound, ObjectInfo, StoreError

__all__ = ["Ambiguous", "Around", "Counting", "Failing", "Killing", "Memory", "flip"]


class Around:
    """All calls go to `inner`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Counting(Around):
    """Remembers each ranged read as (key, start, length), and each whole read."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.ranges: list[tuple[str, int, int]] = []
        self.gets: list[str] = []
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        with self._lock:
            self.gets.append(key)
        return self.inner.get(key)

    def read_into(self, key: str, start: int, buffer: Any, fresh: bool = False) -> None:
        with self._lock:
            self.ranges.append((key, start, len(buffer)))
        self.inner.read_into(key, start, buffer, fresh)


class Failing(Around):
    """Raises StoreError from `operation` on keys that match."""

    def __init__(self, inner: Any, operation: str, pattern: str) -> None:
        super().__init__(inner)
        self._operation, self._pattern = operation, re.compile(pattern)

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name != self._operation:
            return call

        def failing(key: str, *args: Any, **keywords: Any) -> Any:
            if self._pattern.search(key):
                raise StoreError(f"no answer to {name} {key}")
            return call(key, *args, **keywords)

        return failing


class Killing(Around):
    """This process is killed (SIGKILL) at a phase of a save:
    "payload" before the payload is put, "middle" after one chunk of it, "index" before the index,
    "commit" before the commit, "committed" right after it."""

    def __init__(self, inner: Any, phase: str) -> None:
        super().__init__(inner)
        self._phase = phase

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        self._die_at("payload")

        def dying() -> Iterator[bytes]:
            for chunk in chunks:
                yield chunk
                self._die_at("middle")

        return self.inner.put_chunks(key, dying())

    def put(self, key: str, data: bytes) -> None:
        self._die_at("index")
        self.inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._die_at("commit")
        done = self.inner.put_if_absent(key, data)
        self._die_at("committed")
        return done

    def _die_at(self, phase: str) -> None:
        if phase == self._phase:
            os.kill(os.getpid(), signal.SIGKILL)


class Ambiguous(Around):
    """Each conditional put is applied, its answer lost, and the client's own retry meets it."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.inner.put_if_absent(key, data)
        return self.inner.put_if_absent(key, data)


class Memory:
    """A store in a dictionary: no durability, no speed limit."""

    url = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise NotFound(self.url, key)
        return self.objects[key]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = self.get(key)[start : start + length]
        if len(data) != length:
            raise StoreError(f"{key} ends before {start + length}")
        return data

    def read_into(self, key: str, start: int, buffer: Any, fresh: bool = False) -> None:
        with memoryview(buffer).cast("B") as view:
            view[:] = self.get_range(key, start, len(view))

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = bytes(data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, data) == data

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        self.objects[key] = b"".join(chunks)
        return len(self.objects[key])

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield ObjectInfo(key, len(self.objects[key]), "", 0.0)

    def stat(self, key: str) -> ObjectInfo | None:
        return ObjectInfo(key, len(self.objects[key]), "", 0.0) if key in self.objects else None

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


def flip(store: Any, key: str, at: int) -> None:
    """Flip one bit of a stored object, behind everybody's back."""
    data = bytearray(store.get(key))
    data[at] ^= 1
    store.put(key, bytes(data))
