"""Manifests: written last means committed.

A stage writes its data objects first and its manifest last. A room's manifests are versions
`<room>/manifest-<n>.json`; a new one is taken with If-None-Match, the highest is current, older ones
stay as history. A manifest says from what (inputs), with which settings (identity, recipe hash),
by which code, and names every object with size and CRC32C. More than `PART` objects go into part
files of their own, so a manifest of 10^5 objects stays a small file and is read in pieces.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import google_crc32c

from .base import Corrupt, NotFound, Store

__all__ = [
    "Manifest",
    "ObjectRef",
    "commit_manifest",
    "crc32c",
    "dump_json",
    "identity",
    "manifest_versions",
    "now",
    "put_object",
    "put_object_chunks",
    "read_manifest",
    "read_object",
    "seal",
    "unseal",
]

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


def crc32c(data: bytes | memoryview, value: int = 0) -> int:
    """CRC32C (Castagnoli) of `data`, continuing from `value`."""
    return int(google_crc32c.extend(value, bytes(data)))


def identity(*parts: Any) -> str:
    """SHA-256 (hex) of JSON-able parts: what a stage's result depends on."""
    return hashlib.sha256(dump_json(parts)).hexdigest()


def dump_json(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. Dataclasses are objects."""
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain
    )
    return text.encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    """Read and verify. Raises Corrupt naming the object; NotFound."""
    data = store.get(ref.key)
    found = f"{crc32c(data):08x}"
    if len(data) != ref.size or found != ref.crc32c:
        raise Corrupt(
            f"{store.url}: {ref.key} is damaged: {len(data)} bytes with CRC32C {found}, the manifest "
            f"says {ref.size} bytes with {ref.crc32c}; run `eyas verify` and re-run its stage"
        )
    return data


def manifest_versions(store: Store, room: str) -> list[int]:
    """Committed versions, ascending."""
    head = f"{room}/manifest-"
    keys = (o.key for o in store.list(head))
    return [int(k[len(head) : -5]) for k in keys if k.endswith(".json") and "/" not in k[len(head) :]]


def read_manifest(store: Store, room: str, version: int | None = None) -> Manifest | None:
    """The current manifest of a room (or that version), or None. Its own checksum is verified."""
    if version is None:
        versions = manifest_versions(store, room)
        if not versions:
            return None
        version = versions[-1]
    key = f"{room}/manifest-{version:06d}.json"
    try:
        raw = unseal(store, key, store.get(key))
    except NotFound:
        return None
    objects = list(_refs(raw.pop("objects")))
    for part in _refs(raw.pop("parts")):
        objects.extend(_refs(json.loads(read_object(store, part))))
    inputs = tuple(_refs(raw.pop("inputs")))
    return Manifest(**raw, inputs=inputs, objects=tuple(objects), version=version)


def commit_manifest(store: Store, manifest: Manifest) -> Manifest:
    """Write it as the room's next version. If another writer commits the same identity first, that
    manifest is returned instead: both made the same thing."""
    created = manifest.created or now()
    while True:
        versions = manifest_versions(store, manifest.room)
        version = versions[-1] + 1 if versions else 1
        if versions:
            current = read_manifest(store, manifest.room, versions[-1])
            if current and current.identity == manifest.identity:
                same = [o.crc32c for o in current.objects] == [o.crc32c for o in manifest.objects]
                if same:
                    return current
        result = dataclasses.replace(manifest, version=version, created=created)
        head, parts = _encode(store, result)
        key = f"{manifest.room}/manifest-{version:06d}.json"
        if store.put_if_absent(key, seal(head | {"parts": parts})):
            return result


def seal(body: Mapping[str, Any]) -> bytes:
    """JSON with a CRC32C of itself, so that a manifest or commit vouches for its own bytes."""
    payload = dump_json(body)
    return b'{"crc32c":"%08x","body":%s}\n' % (crc32c(payload), payload)


def unseal(store: Store, key: str, data: bytes) -> dict[str, Any]:
    """The body of what `seal` wrote. Raises Corrupt."""
    try:
        head, tail = data[:28], data[28:-2]
        if not head.startswith(b'{"crc32c":"') or not data.endswith(b"}\n"):
            raise ValueError("not a sealed object")
        if int(head[11:19], 16) != crc32c(tail):
            raise ValueError("checksum differs")
        body = json.loads(tail)
    except ValueError as error:
        raise Corrupt(f"{store.url}: {key} is damaged ({error}); run `eyas verify`") from error
    if not isinstance(body, dict):
        raise Corrupt(f"{store.url}: {key} is damaged (not an object); run `eyas verify`")
    return body


def _encode(store: Store, m: Manifest) -> tuple[dict[str, Any], Sequence[ObjectRef]]:
    head = {
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
