"""How often one host may ask a struggling store again: a token bucket that its processes share.

Backing off spreads the retries of one reader; it does not bound those of a hundred ranks that
fail in the same second. So every retry takes a token of a bucket that all processes of this user on
this host share for an endpoint: `BURST` at once, `RATE` a second after that. Nobody is refused; who
finds the bucket empty is told how long to wait for a token, at most `LONGEST` seconds.

The bucket is sixteen bytes in a file of the temporary folder, opened and locked only when something
has failed. Anybody may write to that folder, so a file that is not ours alone, or a link, or locked
for long, is not used: then this process counts for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BURST", "LONGEST", "RATE", "Bucket", "RetryBudget", "take"]

BURST = 200.0
RATE = 20.0
LONGEST = 20.0

_LAYOUT = struct.Struct("<dd")
_LOCK_TRIES = 50


@dataclass(frozen=True)
class Bucket:
    """`tokens` at the moment `at`, in seconds of the host's monotonic clock; negative: promised."""

    tokens: float
    at: float


def take(bucket: Bucket, now: float) -> tuple[Bucket, float]:
    """The bucket without one token, and the seconds to wait for it. A bucket from the future (the
    host was started again) or with no numbers in it is full."""
    sound = math.isfinite(bucket.tokens) and bucket.at <= now
    tokens = min(BURST, bucket.tokens + (now - bucket.at) * RATE) if sound else BURST
    left = max(tokens - 1, -LONGEST * RATE)
    return Bucket(left, now), max(0.0, -left / RATE)


class RetryBudget:
    """The bucket of one endpoint. Threads may share it."""

    def __init__(self, endpoint: str, folder: Path | None = None) -> None:
        name = hashlib.sha256(endpoint.encode()).hexdigest()[:16]
        place = folder or Path(tempfile.gettempdir())
        self._path = place / f"eyas-retries-{os.getuid()}-{name}"
        self._own = Bucket(BURST, 0.0)
        self._lock = threading.Lock()

    def wait(self) -> float:
        """Take a token; returns the seconds to wait before the retry that it is for."""
        with self._lock:
            try:
                with self._locked() as file:
                    bucket, seconds = take(_read(file), time.monotonic())
                    os.pwrite(file, _LAYOUT.pack(bucket.tokens, bucket.at), 0)
                    return seconds
            except OSError:
                self._own, seconds = take(self._own, time.monotonic())
                return seconds

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, ours alone. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            found = os.fstat(file)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
            if not ours or found.st_nlink != 1 or found.st_mode & 0o077:
                raise PermissionError(f"{self._path} is not ours alone")
            _flock(file)
            yield file
        finally:
            os.close(file)


def _flock(file: int) -> None:
    """Who holds the lock does so for microseconds, unless it was stopped meanwhile."""
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt == _LOCK_TRIES - 1:
                raise
            time.sleep(0.001)


def _read(file: int) -> Bucket:
    data = os.pread(file, _LAYOUT.size, 0)
    return Bucket(*_LAYOUT.unpack(data)) if len(data) == _LAYOUT.size else Bucket(BURST, 0.0)
