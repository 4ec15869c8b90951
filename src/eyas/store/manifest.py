"""Manifests: written last means committed.

A stage writes its data objects first and its manifest last. A room's manifests are versions
`<room>/manifest-<n>.json`; a new one is taken with If-None-Match, the highest is current, older
ones stay as history. A manifest says from what (inputs), with which settings (identity, recipe
hash), by which code, and names every object with size and CRC32C. More than `PART` objects go into
part files of their own, so a manifest of 10^5 objects stays a small file and is read in pieces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import Corrupt, NotFound, Store, StoreError
from .sealed import crc32c, dump_json, now, seal, unseal

__all__ = [
    "Manifest",
    "ObjectRef",
    "check_object",
    "commit_manifest",
    "manifest_versions",
    "put_object",
    "put_object_chunks",
    "read_manifest",
    "read_object",
]

FORMAT = 1
PART = 10_000


@dataclass(frozen=True)
class ObjectRef:
    """An object that a manifest vouches for. `crc32c` is 8 hex digits of the whole content;
    `rows` counts its records where it has some."""

    key: str
    size: int
    crc32c: str
    rows: int = 0


@dataclass(frozen=True)
class Manifest:
    """What a finished stage made. `counters` are numbers that add up; `facts` is anything else."""

    room: str
    identity: str
    recipe: str = ""
    code: str = ""
    created: str = ""
    inputs: tuple[ObjectRef, ...] = ()
    objects: tuple[ObjectRef, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    def under(self, prefix: str) -> tuple[ObjectRef, ...]:
        """Its objects whose key starts with `prefix`."""
        return tuple(o for o in self.objects if o.key.startswith(prefix))


def put_object(store: Store, key: str, data: bytes, rows: int = 0) -> ObjectRef:
    """Put and vouch."""
    store.put(key, data)
    return ObjectRef(key, len(data), f"{crc32c(data):08x}", rows)


def put_object_chunks(store: Store, key: str, chunks: Iterable[bytes], rows: int = 0) -> ObjectRef:
    """Put from pieces and vouch; the checksum is taken while streaming."""
    value = 0

    def watched() -> Iterator[bytes]:
        nonlocal value
        for chunk in chunks:
            value = crc32c(chunk, value)
            yield chunk

    size = store.put_chunks(key, watched())
    return ObjectRef(key, size, f"{value:08x}", rows)


def read_object(store: Store, ref: ObjectRef) -> bytes:
    """Read and verify. What differs is read once more on a fresh connection, since the wire may be
    at fault and not the object. Raises Corrupt naming the object; NotFound."""
    data = store.get(ref.key)
    if len(data) <= ref.size and f"{crc32c(data):08x}" != ref.crc32c:
        again = bytearray(ref.size)
        with contextlib.suppress(StoreError):  # then what was read first is what there is
            store.read_into(ref.key, 0, again, fresh=True)
            data = bytes(again)
    check_object(store, ref, len(data), crc32c(data))
    return data


def check_object(store: Store, ref: ObjectRef, size: int, checksum: int) -> None:
    """Raises Corrupt, naming the object, unless size and CRC32C are what `ref` vouches for."""
    if (size, f"{checksum:08x}") != (ref.size, ref.crc32c):
        raise Corrupt(
            f"{store.url}: {ref.key} is damaged: {size} bytes with CRC32C {checksum:08x}, "
            f"{ref.size} bytes with {ref.crc32c} were written; run "
            "`eyas verify`, then make its stage again with `eyas run RECIPE --force STAGE`"
        )


def manifest_versions(store: Store, room: str) -> list[int]:
    """Committed versions, ascending."""
    name = re.compile(re.escape(room) + r"/manifest-(\d{6,})\.json")
    found = (name.fullmatch(o.key) for o in store.list(f"{room}/manifest-"))
    return sorted(int(match[1]) for match in found if match)


def read_manifest(store: Store, room: str, version: int | None = None) -> Manifest | None:
    """The current manifest of a room (or that version), or None. Its own checksum and those of its
    part files are verified. Raises Corrupt, NotFound (a part file is gone)."""
    if version is None:
        versions = manifest_versions(store, room)
        if not versions:
            return None
        version = versions[-1]
    key = f"{room}/manifest-{version:06d}.json"
    try:
        sealed = store.get(key)
    except NotFound:
        return None
    raw = unseal(store, key, sealed)
    if raw.pop("format", None) != FORMAT:
        raise StoreError(f"{store.url}: {key} is of another format: use the Eyas that wrote it")
    objects = list(_refs(raw.pop("objects")))
    for part in _refs(raw.pop("parts")):
        objects.extend(_refs(json.loads(read_object(store, part))))
    inputs = tuple(_refs(raw.pop("inputs")))
    return Manifest(**raw, inputs=inputs, objects=tuple(objects), version=version)


def commit_manifest(store: Store, manifest: Manifest) -> Manifest:
    """Write it as the room's next version. If the current one has the same identity and objects (a
    finished stage run again, another writer ahead), that one is returned. One that is damaged is
    passed over."""
    created = manifest.created or now()
    while True:
        versions = manifest_versions(store, manifest.room)
        current = _standing(store, manifest.room, versions[-1]) if versions else None
        if current and (current.identity, current.objects) == (manifest.identity, manifest.objects):
            return current
        version = versions[-1] + 1 if versions else 1
        result = dataclasses.replace(manifest, version=version, created=created)
        head, parts = _encode(store, result)
        key = f"{manifest.room}/manifest-{version:06d}.json"
        if store.put_if_absent(key, seal(head | {"parts": parts})):
            return result


def _standing(store: Store, room: str, version: int) -> Manifest | None:
    try:
        return read_manifest(store, room, version)
    except (Corrupt, NotFound):
        return None


def _encode(store: Store, m: Manifest) -> tuple[dict[str, Any], Sequence[ObjectRef]]:
    head = {
        "format": FORMAT,
        "room": m.room,
        "identity": m.identity,
        "recipe": m.recipe,
        "code": m.code,
        "created": m.created,
        "inputs": m.inputs,
        "counters": m.counters,
        "facts": m.facts,
        "objects": m.objects if len(m.objects) <= PART else (),
    }
    if len(m.objects) <= PART:
        return head, ()
    parts = []
    for start in range(0, len(m.objects), PART):
        data = dump_json(m.objects[start : start + PART])
        name = f"{m.room}/manifest-parts/{m.identity[:16]}-{crc32c(data):08x}-{start}.json"
        parts.append(put_object(store, name, data))
    return head, parts


def _refs(raw: Iterable[Mapping[str, Any]]) -> Iterator[ObjectRef]:
    return (ObjectRef(**r) for r in raw)
