"""Lists that a recipe names: one entry a line, here or on `s3://`, plain or gzip.

Empty lines and what follows a # are no entries. Entries are given in the order of the file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from eyas.recipe import UsageError
from eyas.store import NotFound, open_store

__all__ = ["entries", "read_list", "read_words"]


def read_words(source: str) -> list[str]:
    """The words of a list, sorted, each once, lower case; none for the empty source."""
    return sorted({word.lower() for word in entries(read_list(source))}) if source else []


def read_list(source: str) -> bytes:
    """The content of a list, decompressed. Raises UsageError that names it."""
    try:
        if source.startswith("s3://"):
            place, _, name = source.rpartition("/")
            data = open_store(place).get(name)
        else:
            data = Path(source).expanduser().read_bytes()
        return gzip.decompress(data) if source.endswith(".gz") else data
    except NotFound as error:
        raise UsageError(f"there is no list {source}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read the list {source}: {error}") from error


def entries(data: bytes) -> Iterator[str]:
    """Line by line, so that millions of entries are never objects at once."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end].partition(b"#")[0].decode("utf-8", "replace").strip()
        start = end + 1
        if line:
            yield line
