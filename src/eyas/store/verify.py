"""Walk everything that a store vouches for, and read it all.

Every manifest of every room, data plan, ledger record, removal, report, attempt and checkpoint
commit is unsealed; every object that they name is read in blocks and its size and CRC32C are
compared. What a current manifest or a commit names must be there; what only an older manifest or
the ledger names may be gone (a later version superseded it, the shard is run again) and is noted. A
damaged byte is a problem, whoever names it, unless its object was superseded.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TypeVar

from .base import NotFound, Store, StoreError
from .manifest import ObjectRef, read_manifest, read_object
from .sealed import crc32c, unseal

__all__ = ["VerifyReport", "verify"]

BLOCK = 8 << 20
READERS = 8
WINDOW = 1000

_MANIFEST = re.compile(r"([^/]+)/manifest-(\d{6,})\.json")
_LEDGER = re.compile(r"work/.+\.json")
_COMMIT = re.compile(r"checkpoints/commits/.+\.json")
_SEALED = re.compile(
    r"data/plan-\d+\.json|eval/[^/]+\.json|checkpoints/attempts/\d+|corpus/removals/\d+\.json"
)

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True)
class VerifyReport:
    """`objects` and `bytes` were read and compared. Each problem names an object that is missing,
    damaged or truncated and who vouches for it; each note something that is not whole and need not
    be."""

    objects: int
    bytes: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


class _Weight(IntEnum):
    """Who vouches: an older manifest, the ledger of work, a current manifest or commit."""

    OLD = 0
    LEDGER = 1
    CURRENT = 2


@dataclass(frozen=True)
class _Claim:
    ref: ObjectRef
    owner: str
    weight: _Weight


@dataclass(frozen=True)
class _Result:
    """Of one object read. `objects` counts it and what was verified on the way."""

    bytes: int = 0
    objects: int = 0
    claims: tuple[_Claim, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def verify(store: Store, advance: Callable[[int], object] = lambda _: None) -> VerifyReport:
    """Read everything; `advance` is called with the bytes of each object as it is done. Raises
    StoreError only if the store itself cannot be listed."""
    strongest: dict[str, _Claim] = {}
    objects = size = 0
    problems: list[str] = []
    notes: list[str] = []
    with ThreadPoolExecutor(READERS, thread_name_prefix="eyas-verify") as pool:
        for result in _results(store, pool, strongest):
            advance(result.bytes)
            objects += result.objects
            size += result.bytes
            problems += result.problems
            notes += result.notes
    return VerifyReport(objects, size, problems, notes)


def _results(
    store: Store, pool: ThreadPoolExecutor, strongest: dict[str, _Claim]
) -> Iterator[_Result]:
    """First whatever names objects, then, in order of their keys, the objects."""
    keys = [info.key for info in store.list() if _is_control(info.key)]
    current = _current_manifests(keys)
    for result in _each(pool, lambda key: _control(store, key, current), keys):
        superseded = [note for claim in result.claims for note in _prefer(strongest, claim)]
        yield replace(result, claims=(), notes=(*result.notes, *superseded))
    claims = sorted(strongest.values(), key=lambda claim: claim.ref.key)
    yield from _each(pool, lambda claim: _object(store, claim), claims)


def _each(
    pool: ThreadPoolExecutor, function: Callable[[_In], _Out], items: Iterable[_In]
) -> Iterator[_Out]:
    """In order, a window at a time, so that 10^6 objects are not 10^6 futures."""
    rest = iter(items)
    while window := list(itertools.islice(rest, WINDOW)):
        yield from pool.map(function, window)


def _is_control(key: str) -> bool:
    return any(p.fullmatch(key) for p in (_MANIFEST, _LEDGER, _COMMIT, _SEALED))


def _current_manifests(keys: Iterable[str]) -> dict[str, int]:
    """Room to its highest version."""
    current: dict[str, int] = {}
    for match in filter(None, map(_MANIFEST.fullmatch, keys)):
        current[match[1]] = max(int(match[2]), current.get(match[1], 0))
    return current


def _control(store: Store, key: str, current: dict[str, int]) -> _Result:
    """Unseal one control object; what it names are its claims."""
    try:
        if match := _MANIFEST.fullmatch(key):
            return _manifest(store, key, match[1], int(match[2]), current)
        data = store.get(key)
        body = unseal(store, key, data)
        if _COMMIT.fullmatch(key):
            return _commit(store, key, len(data), body)
        claims: Iterable[_Claim] = ()
        if _LEDGER.fullmatch(key):
            claims = _claims(body.get("objects", ()), key, _Weight.LEDGER)
        return _Result(len(data), 1, tuple(claims))
    except NotFound as error:
        if error.key == key:  # deleted since it was listed
            return _Result()
        return _Result(problems=(f"{error.key} is missing, named by {key}",))
    except StoreError as error:
        return _Result(problems=(_bare(store, error),))
    except (KeyError, TypeError, ValueError) as error:
        return _Result(problems=(f"{key} is not what its name says ({error!r})",))


def _manifest(store: Store, key: str, room: str, version: int, current: dict[str, int]) -> _Result:
    manifest = read_manifest(store, room, version)
    if manifest is None:
        return _Result()
    weight = _Weight.CURRENT if version == current[room] else _Weight.OLD
    claims = tuple(_Claim(ref, key, weight) for ref in manifest.objects)
    return _Result(0, 1, claims)


def _commit(store: Store, key: str, size: int, body: dict[str, Any]) -> _Result:
    """Its indexes are read here and name the objects; one bad index does not hide the others."""
    claims: list[_Claim] = []
    problems: list[str] = []
    done = 1
    for index in (ObjectRef(**raw) for raw in body["indexes"]):
        try:
            named = json.loads(read_object(store, index))["objects"]
        except NotFound:
            problems.append(f"{index.key} is missing, named by {key}")
            continue
        except StoreError as error:
            problems.append(f"{_bare(store, error)}, named by {key}")
            continue
        claims += _claims(named, index.key, _Weight.CURRENT)
        size += index.size
        done += 1
    return _Result(size, done, tuple(claims), tuple(problems))


def _claims(raw: Iterable[dict[str, Any]], owner: str, weight: _Weight) -> Iterator[_Claim]:
    for r in raw:
        yield _Claim(ObjectRef(r["key"], r["size"], r["crc32c"]), owner, weight)


def _prefer(strongest: dict[str, _Claim], claim: _Claim) -> Iterator[str]:
    """Keep the claim that binds; note one that says otherwise and has been superseded."""
    standing = strongest.get(claim.ref.key)
    if standing is None:
        strongest[claim.ref.key] = claim
        return
    weaker, stronger = sorted((standing, claim), key=lambda c: c.weight)
    strongest[claim.ref.key] = stronger
    if _vouched(weaker.ref) != _vouched(stronger.ref):
        yield f"{claim.ref.key} as {weaker.owner} names it is superseded by {stronger.owner}"


def _vouched(ref: ObjectRef) -> tuple[int, str]:
    return ref.size, ref.crc32c


def _object(store: Store, claim: _Claim) -> _Result:
    """Read one object and compare it with its claim."""
    ref = claim.ref
    try:
        found = store.stat(ref.key)
        if found is None:
            raise NotFound(store.url, ref.key)
        if found.size != ref.size:
            what = "truncated" if found.size < ref.size else "too long"
            trouble = f"{ref.key} is {what}: {found.size} bytes, {ref.size} were written"
        else:
            value = _checksum(store, ref)
            if value == ref.crc32c:
                return _Result(ref.size, 1)
            trouble = f"{ref.key} is damaged: CRC32C {value}, {ref.crc32c} was written"
        binding = claim.weight > _Weight.OLD
    except NotFound:
        trouble = f"{ref.key} is missing"
        binding = claim.weight is _Weight.CURRENT
    except StoreError as error:
        trouble, binding = _bare(store, error), True
    line = f"{trouble}, named by {claim.owner}"
    return _Result(problems=(line,)) if binding else _Result(notes=(line,))


def _checksum(store: Store, ref: ObjectRef) -> str:
    value = 0
    memory = memoryview(bytearray(min(BLOCK, ref.size)))
    for start in range(0, ref.size, BLOCK):
        block = memory[: min(BLOCK, ref.size - start)]
        store.read_into(ref.key, start, block)
        value = crc32c(block, value)
    return f"{value:08x}"


def _bare(store: Store, error: StoreError) -> str:
    """The sentence without the store's name and the advice to run this very command."""
    return str(error).removeprefix(f"{store.url}: ").removesuffix("; run `eyas verify`")
