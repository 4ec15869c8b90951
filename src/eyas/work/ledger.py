"""The ledger: what is done, one sealed JSON object a finished shard.

`work/<stage>/<shard key>.json` is written with If-None-Match after the shard's data objects exist:
written last means committed. A shard counts as done only if its record is whole (its checksum
holds) and every object it names is there with the right size; anything else is done again, with a
word in the log. Two machines that ran the same shard agree on the first record.

The ledger is listed once, in pages, and the records of the asked shards are read by a few threads:
a resume over hundreds of thousands of shards makes no request for what was never done.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from eyas.store import Corrupt, NotFound, Store, now, seal, unseal

from .contract import Shard, ShardResult, Stage, decode_result, encode_result

__all__ = ["finished", "record"]

_READERS = 16
_WINDOW = 2000
_log = logging.getLogger("eyas.work")


def record(
    store: Store,
    stage: Stage,
    shard: Shard,
    key: str,
    result: ShardResult,
    about: Mapping[str, Any],
) -> ShardResult:
    """Commit the shard; returns the result that stands in the ledger, which is another machine's
    if that one was first. `about` (code version, seconds, host) is recorded, never hashed."""
    body = {
        "stage": stage.name,
        "version": stage.version,
        "shard": shard.name,
        "inputs": list(shard.inputs),
        "params": dict(shard.params),
        "created": now(),
        **about,
        **encode_result(result),
    }
    name = _name(stage.name, key)
    data = seal(body)
    if not store.put_if_absent(name, data):
        standing = _read(store, name)
        if standing is not None and not _missing(store, {key: standing}):
            return standing
        store.put(name, data)
    return decode_result(unseal(store, name, data))


def finished(store: Store, stage: Stage, keys: Iterable[str]) -> dict[str, ShardResult]:
    """Shard key to result, of those `keys` that are done."""
    wanted = {_name(stage.name, key): key for key in keys}
    listed = [o.key for o in store.list(f"work/{stage.name}/") if o.key in wanted]
    done: dict[str, ShardResult] = {}
    with ThreadPoolExecutor(_READERS) as readers:
        for start in range(0, len(listed), _WINDOW):
            names = listed[start : start + _WINDOW]
            for name, result in zip(names, readers.map(partial(_read, store), names), strict=True):
                if result is not None:
                    done[wanted[name]] = result
    for key, lost in _missing(store, done).items():
        _log.warning("%s is missing or has another size: shard %s is done again", lost, key[:12])
        del done[key]
    return done


def _name(stage_name: str, key: str) -> str:
    return f"work/{stage_name}/{key}.json"


def _read(store: Store, name: str) -> ShardResult | None:
    try:
        return decode_result(unseal(store, name, store.get(name)))
    except NotFound:
        return None
    except (Corrupt, KeyError, TypeError) as error:
        _log.warning("ledger record %s is damaged, its shard is done again (%s)", name, error)
        return None


def _missing(store: Store, done: Mapping[str, ShardResult]) -> dict[str, str]:
    """Shard key to the first of its objects that is not there as recorded. Lists each folder that
    holds such objects once."""
    folders: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for key, result in done.items():
        for ref in result.objects:
            folder, slash, _ = ref.key.rpartition("/")
            folders[folder + slash][ref.key] = (key, ref.size)
    missing: dict[str, str] = {}
    for folder, expected in folders.items():
        for info in store.list(folder):
            if info.key in expected and expected[info.key][1] == info.size:
                del expected[info.key]
        for name, (key, _) in expected.items():
            missing.setdefault(key, name)
    return missing
