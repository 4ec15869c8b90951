"""Listing in byte order of the key, whatever the server's order is.

Amazon's buckets list in byte order and are streamed page by page. Other servers may sort by path
part, where `a/1` comes before `a-b` although `-` sorts before `/` (SeaweedFS; directory buckets
have no order at all). There a listing of up to `WINDOW` keys is taken whole and sorted. A larger
one is taken folder by folder (the server's delimiter), each again whole if it is small enough:
memory holds one window and the entries of one folder a level, and the pages asked for in vain are
few.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .base import ObjectInfo

__all__ = ["ordered", "streamed"]

WINDOW = 50_000

Pages = Callable[[str, str], Iterator[dict[str, Any]]]  # (prefix, delimiter) to answers


def streamed(pages: Pages, prefix: str) -> Iterator[ObjectInfo]:
    """As the server lists; keys are full keys."""
    for page in pages(prefix, ""):
        yield from _objects(page)


def ordered(pages: Pages, prefix: str, window: int = WINDOW) -> Iterator[ObjectInfo]:
    """In byte order; keys are full keys."""
    found = list(itertools.islice(streamed(pages, prefix), window + 1))
    if len(found) <= window:
        yield from sorted(found, key=_order)
        return
    del found
    entries: list[ObjectInfo] = []
    for page in pages(prefix, "/"):
        entries += _objects(page)
        entries += [_folder(p["Prefix"]) for p in page.get("CommonPrefixes", ())]
    for entry in sorted(entries, key=_order):
        if entry.key.endswith("/"):
            yield from ordered(pages, entry.key, window)
        else:
            yield entry


def _order(info: ObjectInfo) -> bytes:
    return info.key.encode()


def _objects(page: dict[str, Any]) -> Iterator[ObjectInfo]:
    for found in page.get("Contents", ()):
        if not found["Key"].endswith("/"):  # the mark of an empty folder, made by other tools
            etag = found.get("ETag", "").strip('"')
            modified = found["LastModified"].timestamp()
            yield ObjectInfo(found["Key"], found["Size"], etag, modified)


def _folder(prefix: str) -> ObjectInfo:
    return ObjectInfo(prefix, 0, "", 0.0)
