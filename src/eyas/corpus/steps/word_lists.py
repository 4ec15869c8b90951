"""Lists that a recipe names: one entry a line, here or on `s3://`, plain or gzip.

Empty lines and what follows a # are no entries. Entries are given in the order of the file. A list
of millions is read in pieces, so that it is never in memory at once.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from eyas.recipe import UsageError
from eyas.store import NotFound, ObjectReader, open_store

__all__ = ["entries", "entry", "read_list", "read_words"]

_PIECE = 1 << 20


def read_words(source: str) -> list[str]:
    """The words of a list, sorted, each once, lower case; none for the empty source."""
    return sorted({word.lower() for word in entries(read_list(source))}) if source else []


def read_list(source: str) -> Iterator[bytes]:
    """The content of a list, decompressed, in pieces that end where a line does. Raises UsageError
    that names it."""
    try:
        with ExitStack() as stack:
            file: io.BufferedIOBase = stack.enter_context(_open(source))
            if source.endswith(".gz"):
                file = stack.enter_context(gzip.open(file))
            yield from _whole_lines(file)
    except NotFound as error:
        raise UsageError(f"there is no list {source}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read the list {source}: {error}") from error


def _open(source: str) -> io.BufferedReader:
    if not source.startswith("s3://"):
        return Path(source).expanduser().open("rb")
    place, _, name = source.rpartition("/")
    return io.BufferedReader(ObjectReader(open_store(place), name))


def _whole_lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    rest = b""
    while data := file.read(_PIECE):
        lines, end, begun = data.rpartition(b"\n")
        if end:
            yield rest + lines + end
            rest = begun
        else:
            rest += begun
    if rest:
        yield rest


def entries(pieces: Iterable[bytes]) -> Iterator[str]:
    """What a list's lines say."""
    return filter(None, (entry(line) for piece in pieces for line in piece.split(b"\n")))


def entry(line: bytes) -> str:
    """Empty for a line that says nothing."""
    return line.partition(b"#")[0].decode("utf-8", "replace").strip()
