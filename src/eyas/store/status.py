"""What a store holds: which rooms are done, running or missing, from what they left behind.

Rooms with a manifest are done when one is committed; it is said if what it was made of has been
replaced since. The ledger of work tells how far one is that is not. Where the data plan reads all
tokens from other stores, they and what they were made of are elsewhere. Checkpoints, heartbeats and
reports are counted by their keys. Nothing is read that grows with the data.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from eyas.recipe import format_bytes

from .base import Corrupt, NotFound, ObjectInfo, Store
from .manifest import Manifest, read_manifest
from .sealed import unseal

__all__ = ["RoomStatus", "status"]

FRESH_SECONDS = 120.0
MANIFEST_ROOMS = ("sources", "corpus", "tokenizer", "tokens")
DATA_ROOMS = ("sources", "corpus", "tokens")

_MANIFEST = re.compile(r"([^/]+)/manifest-(\d{6,})\.json")

State = Literal["done", "running", "missing", "damaged", "elsewhere"]


@dataclass(frozen=True)
class RoomStatus:
    """One line of `eyas status`. `created` is UTC, ISO 8601, or empty."""

    room: str
    state: State
    detail: str
    created: str = ""


def status(store: Store) -> list[RoomStatus]:
    """In the order in which things flow."""
    rooms = [_manifest_room(store, room) for room in MANIFEST_ROOMS]
    if any(row.state == "missing" for row in rooms) and (stores := _data_stores(store)):
        rooms = [_elsewhere(row, stores) for row in rooms]
    return [*rooms, _data(store), _train(store), _judge(store)]


def _elsewhere(row: RoomStatus, stores: list[str]) -> RoomStatus:
    if row.state != "missing" or row.room not in DATA_ROOMS:
        return row
    return RoomStatus(row.room, "elsewhere", f"in {', '.join(stores)}")


def _data_stores(store: Store) -> list[str]:
    """The other stores from which the current data plan reads; none if it reads from this one too,
    or cannot be read itself, which `eyas verify` tells."""
    plans = list(store.list("data/plan-"))
    if not plans:
        return []
    try:
        segments = unseal(store, plans[-1].key, store.get(plans[-1].key)).get("segments", [])
    except (Corrupt, NotFound):
        return []
    urls = [source["store"] for segment in segments for source in segment["sources"]]
    return list(dict.fromkeys(urls)) if all(urls) else []


def _manifest_room(store: Store, room: str) -> RoomStatus:
    try:
        manifest = read_manifest(store, room)
        if manifest is not None:
            detail = _summary(manifest) + _superseded(store, manifest)
            return RoomStatus(room, "done", detail, manifest.created)
    except Corrupt as error:
        return RoomStatus(room, "damaged", str(error))
    shards = list(store.list(f"work/{room}."))
    if shards:
        newest = max(info.modified for info in shards)
        return RoomStatus(room, "running", f"{len(shards)} shards done", _utc(newest))
    return RoomStatus(room, "missing", "nothing yet")


def _summary(manifest: Manifest) -> str:
    size = sum(ref.size for ref in manifest.objects)
    count = len(manifest.objects)
    return f"version {manifest.version}: {count} objects, {format_bytes(size)}"


def _superseded(store: Store, manifest: Manifest) -> str:
    """Which of the manifests that it was made of another has taken the place of."""
    words = ""
    for match in filter(None, (_MANIFEST.fullmatch(ref.key) for ref in manifest.inputs)):
        room, version = match[1], int(match[2])
        current, used = read_manifest(store, room), read_manifest(store, room, version)
        if current and (used is None or used.identity != current.identity):
            words += f"; made of {room} version {version}, not of the current {current.version}"
    return words


def _data(store: Store) -> RoomStatus:
    plans = list(store.list("data/plan-"))
    if not plans:
        return RoomStatus("data", "missing", "no data plan yet")
    return RoomStatus("data", "done", f"data plan version {len(plans)}", _last(plans))


def _train(store: Store) -> RoomStatus:
    commits = list(store.list("checkpoints/commits/"))
    hosts = [b for b in _heartbeats(store) if not str(b.get("state")).startswith("ended")]
    detail = f"{len(commits)} checkpoints"
    if commits:
        attempt, _, step = commits[-1].key.rpartition("/")[2].removesuffix(".json").partition("-")
        detail += f", the latest of step {int(step)} in attempt {int(attempt)}"
    created = _last(commits) if commits else ""
    if hosts:
        steps = min(int(beat.get("step", 0)) for beat in hosts)
        detail += f"; {len(hosts)} hosts at step {steps}"
        return RoomStatus("train", "running", detail, created)
    return RoomStatus("train", "done" if commits else "missing", detail, created)


def _heartbeats(store: Store) -> Iterator[dict[str, Any]]:
    """Those of the last two minutes; one host a heartbeat."""
    for info in store.list("heartbeats/"):
        if time.time() - info.modified > FRESH_SECONDS:
            continue
        try:
            beat = json.loads(store.get(info.key))
        except (NotFound, ValueError):
            continue
        if isinstance(beat, dict):
            yield beat


def _judge(store: Store) -> RoomStatus:
    reports = list(store.list("eval/"))
    if not reports:
        return RoomStatus("judge", "missing", "no report yet")
    return RoomStatus("judge", "done", f"{len(reports)} reports", _last(reports))


def _last(infos: list[ObjectInfo]) -> str:
    return _utc(max(info.modified for info in infos))


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
