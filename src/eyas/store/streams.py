"""Streams: series of immutable numbered objects (metrics, logs, journals), since nothing appends.

A writer puts pieces `<prefix>/<number:012d>.jsonl`; a reader takes them in order. The number is the
writer's to choose (the first step of the piece, or a count) and must grow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .base import Store
from .manifest import dump_json

__all__ = ["put_piece", "read_pieces"]


def put_piece(store: Store, prefix: str, number: int, records: Iterable[Mapping[str, Any]]) -> str:
    """Write one immutable piece; returns its key."""
    key = f"{prefix}/{number:012d}.jsonl"
    store.put(key, b"".join(dump_json(r) + b"\n" for r in records))
    return key


def read_pieces(store: Store, prefix: str) -> Iterator[dict[str, Any]]:
    """All records below `prefix` in key order; a broken line comes as `{"broken": key:line}`."""
    for info in store.list(prefix.rstrip("/") + "/"):
        if not info.key.endswith(".jsonl"):
            continue
        for number, line in enumerate(store.get(info.key).splitlines(), 1):
            try:
                yield json.loads(line)
            except ValueError:
                yield {"broken": f"{info.key}:{number}"}
