"""The flight recorder: which item of its shard a worker is at, to be read after its death.

A worker that is killed in the middle of C code can say nothing more. So it notes the item before it
begins, in a page of memory that it shares with its parent through a file without a name; the parent
reads the page when the worker is dead. A flag of one byte is set last and cleared first, so that no
torn note is believed. A note costs a few microseconds and no system call.

The limit in CPU seconds is the kernel's: `ITIMER_PROF` with SIGPROF's default action ends the
process wherever it is, also in a C function that never returns to Python. It is a backstop: limits
that decide an output are in bytes and nodes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["note_items_in", "read_note", "recorder", "watch_item"]

_SIZE = 4096
_HEAD = struct.Struct("<BHd")  # 1 within an item, bytes of its name, its CPU seconds
_memory: mmap.mmap | None = None  # a worker's page; elsewhere there is none


@contextlib.contextmanager
def watch_item(name: str, cpu_seconds: float) -> Iterator[None]:
    """`with watch_item(document, 60): extract(page)`: should this worker die within, the item is
    known; after `cpu_seconds` of CPU time (user and system, all threads of the process) it dies.

    Items do not nest. `name` has at most 4,000 bytes of UTF-8 (ValueError); it must be the same in
    every run of the shard. Does nothing in a process that is not a worker.
    """
    if _memory is None:
        yield
        return
    data = name.encode(errors="surrogatepass")
    if len(data) > 4000:
        raise ValueError(f"an item's name has at most 4,000 bytes, not {len(data)}")
    if _memory[0]:
        raise ValueError(f"item {name} begins within another item")
    _HEAD.pack_into(_memory, 0, 0, len(data), cpu_seconds)
    _memory[_HEAD.size : _HEAD.size + len(data)] = data
    _memory[0] = 1
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _memory[0] = 0


def recorder() -> BinaryIO:
    """A new page, whose descriptor is handed to a worker. On Linux it is on no disk: a note in a
    file's hole would kill the worker, by SIGBUS, when the disk is full."""
    file: BinaryIO
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("eyas-items"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 closed with its worker
    file.truncate(_SIZE)
    return file


def note_items_in(descriptor: int) -> None:
    """From now on this process is a worker with that page."""
    global _memory
    _memory = mmap.mmap(descriptor, _SIZE)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def read_note(page: BinaryIO) -> tuple[str, float] | None:
    """The item within which the worker died, with its limit in CPU seconds; None if it was in
    none."""
    data = os.pread(page.fileno(), _SIZE, 0)
    within, size, cpu_seconds = _HEAD.unpack_from(data)
    if not within:
        return None
    return data[_HEAD.size : _HEAD.size + size].decode(errors="surrogatepass"), cpu_seconds
