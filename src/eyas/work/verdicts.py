"""What follows from the deaths of workers: run again, refuse an item for good, or give up.

`refuse` and `hopeless` are pure functions of a shard's deaths since it was last refused an item.
An item that ran past its CPU seconds is refused at once; one that crashed its worker twice running,
or had it killed three times running (out of memory, most likely), too. A death outside items blames
none, and one elsewhere in between acquits: the worker was past the item, or had not come to it.

A verdict is committed before the shard runs again, one sealed object an item, put if absent, under
the identity of stage name, version and settings: every later run, on any machine, repeats it. It
says only what repeats (no machine, no time taken), because it is part of the stage's output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from eyas.store import Corrupt, NotFound, Store, identity, now, seal, unseal

from .contract import Stage, plain

__all__ = [
    "DEATHS",
    "RUNNING",
    "Death",
    "Refusal",
    "commit_refusal",
    "hopeless",
    "refusals",
    "refuse",
]

CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")
CRASHED = 2
KILLED = 3
RUNNING = 8  # deaths outside items, one after another
DEATHS = 40  # deaths wherever
_READERS = 8
_log = logging.getLogger("eyas.work")


@dataclass(frozen=True)
class Refusal:
    """The standing verdict on an item: `reason` is "ran_away" (`value` is its limit in CPU seconds)
    or "killed_worker" (`value` is how many workers it took)."""

    reason: str
    value: float
    detail: str


@dataclass(frozen=True)
class Death:
    """Of a worker that held a shard. `how` is a signal's name or "exit code 1" or the like; `item`
    is what it was at, with its limit."""

    how: str
    item: str | None = None
    cpu_seconds: float = 0.0


def refuse(deaths: Sequence[Death]) -> Refusal | None:
    """The verdict on the item of the last death, if these deaths of one shard are enough for it."""
    last = deaths[-1]
    if last.item is None:
        return None
    if last.how == "SIGPROF":
        detail = f"past {last.cpu_seconds:g} CPU seconds"
        return Refusal("ran_away", last.cpu_seconds, detail)
    crashes = _running(deaths, lambda d: d.item == last.item and _crashed(d.how))
    if crashes >= CRASHED:
        return Refusal("killed_worker", crashes, f"{last.how}, {crashes} times")
    kills = _running(
        deaths, lambda d: d.item == last.item and (_crashed(d.how) or d.how == "SIGKILL")
    )
    if kills >= KILLED:
        return Refusal("killed_worker", kills, f"{last.how}, {kills} times")
    return None


def _crashed(how: str) -> bool:
    """Nobody asked for this end: a crash, or an exit that a C library took upon itself."""
    return how in CRASHES or (how.startswith("exit code") and how != "exit code 143")


def hopeless(deaths: Sequence[Death]) -> str:
    """Why the shard is not run again, or an empty string."""
    running = _running(deaths, lambda d: d.item is None)
    if running < RUNNING and len(deaths) < DEATHS:
        return ""
    return (
        f"its worker died {len(deaths)} times, last by {deaths[-1].how}; if the machine ran out of "
        "memory, run with fewer workers"
    )


def _running(deaths: Sequence[Death], such: Callable[[Death], bool]) -> int:
    """How many of the last deaths are such."""
    count = 0
    for death in reversed(deaths):
        if not such(death):
            break
        count += 1
    return count


def refusals(store: Store, stage: Stage) -> Mapping[str, Refusal]:
    """Item to its committed verdict: what a stage with `watch_item` looks up when a shard begins,
    and does not try again. One listing, and one read a verdict."""
    found: dict[str, Refusal] = {}
    keys = [info.key for info in store.list(_folder(stage))]
    if not keys:
        return found
    with ThreadPoolExecutor(_READERS) as readers:
        for item, refusal in filter(None, readers.map(lambda key: _read(store, key), keys)):
            found[item] = refusal
    return found


def commit_refusal(store: Store, stage: Stage, shard: str, item: str, refusal: Refusal) -> None:
    """The first verdict on an item stands; a damaged one is written anew."""
    key = f"{_folder(stage)}{identity(item)[:32]}.json"
    data = seal({"item": item, "shard": shard, "created": now(), **asdict(refusal)})
    if not store.put_if_absent(key, data) and _read(store, key) is None:
        store.put(key, data)


def _folder(stage: Stage) -> str:
    name = identity(stage.name, stage.version, plain(stage.settings))
    return f"work/refused/{stage.name}/{name[:32]}/"


def _read(store: Store, key: str) -> tuple[str, Refusal] | None:
    try:
        body = unseal(store, key, store.get(key))
        return body["item"], Refusal(body["reason"], body["value"], body["detail"])
    except NotFound:
        return None
    except (Corrupt, KeyError) as error:
        _log.warning("verdict %s is damaged and not followed (%s)", key, error)
        return None
