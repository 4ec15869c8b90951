"""What a store is: keys to bytes, on `s3://` or a folder, behind one small interface.

No rename, no lock, no append, no file system is assumed: objects are written whole, a conditional
put ("only if absent") decides every race, and listing is in byte order of the key. Everything else
(manifests, commits, streams) is built on these calls. The rules that both kinds share (which keys
are legal, which ranges, no use after fork) are here too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from eyas.recipe import EyasError

if TYPE_CHECKING:
    import numpy.typing as npt
    import typing_extensions

    Buffer: TypeAlias = typing_extensions.Buffer | npt.NDArray[Any]

__all__ = [
    "Corrupt",
    "NotFound",
    "ObjectInfo",
    "Store",
    "StoreError",
    "bytes_of",
    "check_key",
    "check_prefix",
    "check_process",
    "check_range",
    "ends_before",
]

KEY_BYTES = 900  # S3 allows 1,024 with the store's prefix
PART_BYTES = 250  # a file name has 255
_TEXT = re.compile("[^\x00-\x1f\x7f\\\\\ud800-\udfff\ufffe\uffff]*")


class StoreError(EyasError):
    """The store could not do what was asked."""


class NotFound(StoreError):
    """No such object."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(f"{url}: no object {key}")
        self.key = key


class Corrupt(StoreError):
    """What was read is not what was written: the message names the object and both checksums."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object as listed. `modified` is seconds since 1970 by the store's clock."""

    key: str
    size: int
    etag: str
    modified: float


class Store(Protocol):
    """Keys to bytes. Every implementation is safe to use from several threads, and raises
    StoreError when used in a process forked after it was opened."""

    @property
    def url(self) -> str:
        """What `open_store` was given, normalised."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object. Raises NotFound."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`. Raises NotFound, or StoreError past the end."""
        ...

    def read_into(self, key: str, start: int, buffer: Buffer, fresh: bool = False) -> None:
        """Fill the writable, contiguous `buffer` with as many bytes from `start` as it has.
        `fresh`: on a connection of its own, for what arrived damaged on another. Raises NotFound,
        or StoreError past the end; what the buffer then holds is undefined."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write the whole object, replacing what was there. Durable when it returns."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write only if there is no such object. True if `data` is what now stands there: an
        ambiguous answer is resolved by reading back, so racers must write distinct bytes."""
        ...

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        """Write an object of any size from pieces, in multipart where the store has it; returns
        its size. An exception from `chunks` leaves nothing visible."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, in byte order of the key, paged."""
        ...

    def stat(self, key: str) -> ObjectInfo | None:
        """One object's size and etag, or None."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; what is not there is no error."""
        ...


def check_key(key: str) -> str:
    """`key` itself if it is legal: relative parts joined by `/`, at most 900 bytes of UTF-8 (250 a
    part), none empty, `.`, `..` or starting with `.tmp-`, no control character, no backslash (some
    servers take it for `/`). No key may be another's folder (`a` beside `a/b`), since a folder
    cannot hold both."""
    parts = key.split("/")
    if not key or any(p in ("", ".", "..") for p in parts):
        raise StoreError(f"illegal key {key!r}: use relative parts joined by /, without .. ")
    if any(p.startswith(".tmp-") for p in parts):
        raise StoreError(f"illegal key {key!r}: parts may not start with .tmp-")
    if not _TEXT.fullmatch(key):
        raise StoreError(f"illegal key {key!r}: no backslash, control or half character")
    if len(key.encode()) > KEY_BYTES or any(len(p.encode()) > PART_BYTES for p in parts):
        raise StoreError(
            f"illegal key {key[:60]!r}…: at most {KEY_BYTES} bytes, {PART_BYTES} a part"
        )
    return key


def check_prefix(prefix: str) -> str:
    """`prefix` itself if some legal key can start with it; the empty one is legal."""
    parts = prefix.split("/")
    if any(p in ("", ".", "..") for p in parts[:-1]) or not _TEXT.fullmatch(prefix):
        raise StoreError(f"illegal prefix {prefix!r}: use the beginning of a key")
    return prefix


def check_range(key: str, start: int, length: int) -> None:
    """Raises StoreError if no object has such a range."""
    if start < 0 or length < 0:
        raise StoreError(f"{key}: no range of {length} bytes from {start}: neither may be negative")


def ends_before(url: str, key: str, start: int, length: int) -> StoreError:
    """The error of a range that goes past the end."""
    return StoreError(
        f"{url}: {key} ends before byte {start + length}: {length} bytes from {start} were "
        "asked for"
    )


def bytes_of(buffer: Buffer) -> memoryview:
    """The writable bytes of a buffer of any shape and type. Raises TypeError if it is read-only or
    not contiguous."""
    plain: Any = buffer  # Python 3.11 has no type for what arrays can do
    view = memoryview(plain)
    if view.readonly:
        raise TypeError("a read needs a writable buffer")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def check_process(opened_in: int) -> None:
    """Raises StoreError in another process than the one that opened the store."""
    if os.getpid() != opened_in:
        raise StoreError("a store opened before fork was used after it: open it in the child")
