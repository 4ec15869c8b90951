"""Common Crawl by name: which files `cc:CC-MAIN-2026-10` stands for.

In: a source of the recipe and a mirror. Out: paths as Common Crawl's own index writes them
(`crawl-data/CC-MAIN-…/….warc.gz`), which are also the names of the files in every document. A
crawl's list is published once and its files never change, so none of the 90,000 is asked for its
size before it is read. A sample is taken by the hash of seed and path: the same everywhere, and a
smaller one is part of a larger one.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Sequence
from typing import IO

import xxhash

from eyas.corpus.reading.buckets import at_bucket
from eyas.corpus.reading.inflate import Inflated
from eyas.corpus.reading.remote import Missing, is_remote, spool
from eyas.recipe import UsageError
from eyas.store import NotFound, ObjectReader, StoreError

__all__ = ["crawl_files", "is_crawl", "open_crawl_file"]

_SOURCE = re.compile(r"cc:(CC-MAIN-\d{4}-\d{2,4}|CC-NEWS/\d{4}/\d{2})(?:/(warc|wet))?")
_PATH = re.compile(r"crawl-data/(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_.-]+\.gz")
_BUFFER = 1 << 20


def is_crawl(source: str) -> bool:
    """True for a `cc:` source."""
    return source.startswith("cc:")


def crawl_files(source: str, mirror: str, count: int, seed: int) -> list[str]:
    """Paths of the crawl's files in order, `count` of them by `seed` if that is not 0.

    Raises UsageError for a source or mirror that is none, and for a crawl that is not there;
    StoreError for a list that cannot be read whole.
    """
    named = _SOURCE.fullmatch(source)
    if named is None:
        raise UsageError(
            f'corpus.sources: "{source}" names no crawl; write cc:CC-MAIN-2026-10, or with /wet '
            "behind it for the extracted text, or cc:CC-NEWS/2026/03"
        )
    key = f"crawl-data/{named[1]}/{named[2] or 'warc'}.paths.gz"
    try:
        paths = _paths(key, mirror)
    except (Missing, NotFound) as error:
        raise UsageError(f"corpus.sources: {mirror} has no {source} ({key})") from error
    return sorted(_sample(paths, count, seed) if count else paths)


def open_crawl_file(path: str, mirror: str) -> IO[bytes]:
    """A seekable stream of one file of a crawl. Raises Missing or NotFound if the mirror does not
    have it, StoreError if it cannot be read, UsageError for a mirror that is none."""
    url = f"{mirror.rstrip('/')}/{path}"
    if is_remote(url):
        return spool(url)
    if url.startswith("s3://"):
        return io.BufferedReader(ObjectReader(*at_bucket(url)), _BUFFER)
    raise UsageError(f'corpus.crawl_mirror: "{mirror}" is none; write an https:// or s3:// URL')


def _paths(key: str, mirror: str) -> list[str]:
    try:
        with open_crawl_file(key, mirror) as stream:
            content = Inflated(stream)
            lines = b"".join(iter(lambda: content.read(_BUFFER), b"")).decode("ascii").splitlines()
    except (EOFError, ValueError, zlib.error) as error:
        raise StoreError(f"{mirror}: {key} is damaged: {error}") from error
    for number, line in enumerate(lines, 1):
        if not _PATH.fullmatch(line):
            raise StoreError(f"{mirror}: {key} is damaged: line {number} is {line[:80]!r}")
    return list(dict.fromkeys(lines))


def _sample(paths: Sequence[str], count: int, seed: int) -> list[str]:
    def rank(path: str) -> tuple[int, str]:
        return xxhash.xxh3_64_intdigest(f"{seed}/{path}".encode()), path

    return sorted(paths, key=rank)[:count]
