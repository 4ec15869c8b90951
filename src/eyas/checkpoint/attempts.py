"""Attempts: one number a (re)start, taken with a conditional put, so that a leftover process of an
older start can be told from the one that runs now.

An attempt is the object `checkpoints/attempts/<a:06d>`; whoever creates it owns the number. A save
under an attempt is refused as soon as a higher one exists. The check and the commit are two steps,
so a leftover may still slip a commit in between; it is a whole checkpoint under a lower attempt,
and loaders order by (attempt, step), so it never hides one of the newer start.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from eyas.store import Store, now, seal

from .errors import CheckpointError, Fenced

__all__ = ["check_attempt", "latest_attempt", "take_attempt"]

_PREFIX = "checkpoints/attempts/"


def take_attempt(store: Store, payload: Mapping[str, Any]) -> int:
    """Take the next attempt number, from 1; `payload` (JSON-able: host, pid, recipe hash) is kept
    with it. Of several takers at once each gets a number of its own."""
    body = {"created": now(), "token": secrets.token_hex(16), **payload}
    while True:
        attempt = latest_attempt(store) + 1
        if store.put_if_absent(f"{_PREFIX}{attempt:06d}", seal({**body, "attempt": attempt})):
            return attempt


def latest_attempt(store: Store) -> int:
    """The highest attempt taken, 0 if none. A listing that fails raises StoreError: it is never
    taken for "none"."""
    names = (info.key[len(_PREFIX) :] for info in store.list(_PREFIX))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def check_attempt(store: Store, attempt: int) -> None:
    """Raises Fenced if a higher attempt exists, CheckpointError if this one was never taken."""
    latest = latest_attempt(store)
    if latest > attempt:
        raise Fenced(
            f"{store.url}: attempt {attempt} may not write, attempt {latest} has been started "
            "since; this process is a leftover and should end"
        )
    if latest < attempt:
        raise CheckpointError(
            f"{store.url}: attempt {attempt} was never taken (the latest is {latest}); "
            "call take_attempt first"
        )
