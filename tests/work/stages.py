"""Stages that the tests of `work` run in real worker processes.

Each run of a shard leaves a file in $EYAS_TEST_MARKS, so that a test can count runs and find the
processes; a stage that must wait does so until the test makes the file `go`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from eyas.store import Store, open_store, put_object, put_object_chunks
from eyas.work import (
    Engine,
    Shard,
    ShardResult,
    Stage,
    Workers,
    refusals,
    run_stage,
    shard_key,
    watch_item,
)


def marks() -> Path:
    return Path(os.environ["EYAS_TEST_MARKS"])


def mark(shard: Shard) -> int:
    """Leave a mark; returns how many runs of this shard came before."""
    before = len(list(marks().glob(f"run-{shard.name}-*")))
    (marks() / f"run-{shard.name}-{os.getpid()}-{uuid.uuid4().hex}").touch()
    return before


def copy(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Two objects a shard, from its parameters and settings."""
    mark(shard)
    text = f"{shard.params['text']} {stage.settings.get('suffix', '')}".encode()
    key = shard_key(stage, shard)[:12]
    objects = tuple(put_object(store, f"out/{key}-{n}.txt", text * (n + 1)) for n in range(2))
    facts = {"text": shard.params["text"], "pair": (1, 2)}
    return ShardResult(objects, {"bytes": sum(o.size for o in objects)}, facts)


def copy_and_run_the_other_share(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """`copy`; shard s0 first lets another job do the share of s1."""
    if shard.name == "s0":
        both = [shard, Shard("s1", params={"text": "1"})]
        with Workers(open_store(store.url), Engine(share=(1, 2))) as workers:
            run_stage(workers, stage, both)
    return copy(store, stage, shard)


def copy_but_die(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """`copy`, killed in its first runs at a place drawn by chance: before, between and after the
    objects, and about when the ledger record is written."""
    place = random.Random(f"{shard.name} {mark(shard)}").choice(
        ["start", "middle", "end", "record"]
    )
    dies = len(list(marks().glob(f"run-{shard.name}-*"))) <= random.Random(shard.name).randrange(4)
    if dies and place == "start":
        os.kill(os.getpid(), signal.SIGKILL)
    text = f"{shard.params['text']} {stage.settings.get('suffix', '')}".encode()
    key = shard_key(stage, shard)[:12]
    first = put_object(store, f"out/{key}-0.txt", text)
    if dies and place == "middle":
        os.kill(os.getpid(), signal.SIGKILL)
    second = put_object(store, f"out/{key}-1.txt", text * 2)
    if dies and place == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    if dies and place == "record":
        threading.Thread(target=_die_when_recorded, args=(store, stage, shard), daemon=True).start()
    facts = {"text": shard.params["text"], "pair": (1, 2)}
    return ShardResult((first, second), {"bytes": first.size + second.size}, facts)


def _die_when_recorded(store: Store, stage: Stage, shard: Shard) -> None:
    while store.stat(f"work/{stage.name}/{shard_key(stage, shard)}.json") is None:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def always_die(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    mark(shard)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fail_on_seven(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    if shard.params["text"] == "7":
        mark(shard)
        raise ValueError("seven is not legal")
    return copy(store, stage, shard)


def copy_with_place(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """`copy`; its facts say under which Ray node. Waits until two nodes are at work."""
    raylet = os.environ["RAY_RAYLET_PID"]
    (marks() / f"raylet-{raylet}").touch()
    while len(list(marks().glob("raylet-*"))) < 2:
        time.sleep(0.005)
    return dataclasses.replace(copy(store, stage, shard), facts={"raylet": raylet})


def wait_for_go(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """`copy`, once the file `go` is there; shard 0 does not wait."""
    if shard.name != "s0":
        mark(shard)
        _wait(marks() / "go")
    return copy(store, stage, shard)


def write_for_ever(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """An object that is never finished."""

    def chunks() -> Iterator[bytes]:
        yield b"begun"
        mark(shard)
        _wait(marks() / "go")

    return ShardResult((put_object_chunks(store, "out/half.txt", chunks()),))


def _wait(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def speak(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    logging.getLogger("eyas.test").warning("shard %s speaks", shard.name, extra={"odd": lambda: 0})
    threads = os.environ["OMP_NUM_THREADS"]
    return ShardResult((), facts={"threads": threads, "pid": os.getpid()})


def meet(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Waits until all shards of the stage are held at once, each by a worker of its own."""
    (marks() / f"{stage.name}-{shard.params['number']}").touch()
    while len(list(marks().glob(f"{stage.name}-*"))) < shard.params["count"]:
        time.sleep(0.005)
    return ShardResult((), facts={"pid": os.getpid()})


def eat(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Holds so many bytes for a moment."""
    return ShardResult((), facts={"eaten": len(b"x" * shard.params["bytes"])})


def watched(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """One object of the shard's items (`params["items"]`), each watched; what an item is named
    says what happens there. An item that was refused is written with its verdict."""
    mark(shard)
    refused = refusals(store, stage)
    lines = []
    for item in shard.params["items"]:
        if item in refused:
            lines.append(f"{item} {refused[item]}")
            continue
        with watch_item(item, stage.settings.get("cpu_seconds", 30.0)):
            _happen(item)
        lines.append(item)
    key = shard_key(stage, shard)[:12]
    return ShardResult((put_object(store, f"out/{key}.txt", "\n".join(lines).encode()),))


def _happen(item: str) -> None:
    what = item.split("-")[0]
    if what == "runaway":
        re.match(r"(a|a)*$", "a" * 40 + "b")  # in C, and for ages
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "stubborn":
        raise ValueError(f"{item} cannot be done")
    else:
        sum(range(200_000))


def refused_and_tried_again(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Does not look up what was refused."""
    mark(shard)
    with watch_item("runaway", 0.1):
        _happen("runaway")
    raise AssertionError
