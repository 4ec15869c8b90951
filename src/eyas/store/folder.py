"""A folder as a store.

A put is temporary file, fsync, rename, fsync of the folders that changed; a conditional put is a
hard link, which fails if the name is taken. What a crash leaves is a `.tmp-` file that no reader
sees. Folders are made with the first put below them and removed with the last delete, so that a
folder answers as a bucket does, where only objects exist.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .base import (
    NotFound,
    ObjectInfo,
    StoreError,
    bytes_of,
    check_key,
    check_prefix,
    check_process,
    check_range,
    ends_before,
)

if TYPE_CHECKING:
    from .base import Buffer

__all__ = ["FolderStore"]

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_TRIES = 100


class FolderStore:
    """Keys are paths below `root`, which is made with the first put. Needs hard links."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).expanduser().absolute()
        self._pid = os.getpid()

    @property
    def url(self) -> str:
        return str(self._root)

    def get(self, key: str) -> bytes:
        with self._errors("get", key):
            return self._path(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        with self._errors("get", key), self._path(key).open("rb") as file:
            file.seek(start)
            data = file.read(length)
        if len(data) != length:
            raise ends_before(self.url, key, start, length)
        return data

    def read_into(self, key: str, start: int, buffer: Buffer, fresh: bool = False) -> None:
        view = bytes_of(buffer)
        check_range(key, start, len(view))
        done = 0
        with self._errors("get", key), self._path(key).open("rb", buffering=0) as file:
            while done < len(view):
                got = os.preadv(file.fileno(), [view[done:]], start + done)
                if not got:
                    raise ends_before(self.url, key, start, len(view))
                done += got

    def put(self, key: str, data: bytes) -> None:
        self.put_chunks(key, [data])

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._temporary(key, path, [data]) as (temporary, _):
            while True:
                with self._errors("put", key), contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
                    _sync_folder(path.parent)
                    return True
                if path.is_dir():
                    raise StoreError(_both(self.url, key))
                with contextlib.suppress(NotFound):  # deleted since: once more
                    return self.get(key) == data

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        path = self._path(key)
        with self._temporary(key, path, chunks) as (temporary, size), self._errors("put", key):
            temporary.replace(path)
            _sync_folder(path.parent)
        return size

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_process(self._pid)
        base = check_prefix(prefix).rpartition("/")[0]
        yield from self._walk(f"{base}/" if base else "", prefix)

    def stat(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        try:
            with self._errors("stat", key):
                return None if path.is_dir() else _info(key, path.stat())
        except NotFound:
            return None

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with contextlib.suppress(NotFound), self._errors("delete", key):
                path.unlink()
                self._prune(path.parent)

    def _path(self, key: str) -> Path:
        check_process(self._pid)
        return self._root / check_key(key)

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        """The system's errors as sentences."""
        try:
            yield
        except _ABSENT as error:
            if verb == "put":
                raise StoreError(_both(self.url, key)) from error
            raise NotFound(self.url, key) from error
        except OSError as error:
            raise StoreError(f"{self.url}: cannot {verb} {key}: {error.strerror}") from error

    @contextlib.contextmanager
    def _temporary(
        self, key: str, path: Path, chunks: Iterable[bytes]
    ) -> Iterator[tuple[Path, int]]:
        """A whole, durable file beside `path`, removed at the end unless it was renamed. What
        `chunks` raises passes through unchanged."""
        temporary = path.parent / f".tmp-{uuid.uuid4().hex}"
        try:
            with self._errors("put", key):
                file = self._create(temporary)
            size = 0
            try:
                for chunk in chunks:
                    with self._errors("put", key):
                        size += file.write(chunk)
                with self._errors("put", key):
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                with contextlib.suppress(OSError):  # what matters was flushed
                    file.close()
            yield temporary, size
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _create(self, temporary: Path) -> BinaryIO:
        """Make the folder and the file; again if a delete has pruned the folder in between."""
        for attempt in range(_TRIES):
            try:
                _make_folder(temporary.parent)
                return temporary.open("xb")
            except FileNotFoundError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _prune(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # not empty, or gone
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        """Depth first, in the order that the full keys have: a folder sorts as `name/`."""
        try:
            with os.scandir(self._root / folder) as found:
                entries = [(e.name + "/" if e.is_dir() else e.name, e) for e in found]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreError(f"{self.url}: cannot list {folder}: {error.strerror}") from error
        for name, entry in sorted(entries, key=lambda pair: os.fsencode(pair[0])):
            key = folder + name
            if name.startswith(".tmp-"):
                continue
            if name.endswith("/"):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(key, prefix)
            elif key.startswith(prefix):
                with contextlib.suppress(FileNotFoundError):
                    yield _info(key, entry.stat())


def _both(url: str, key: str) -> str:
    return f"{url}: cannot put {key}: one name would be both an object and a folder"


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, status.st_mtime)


def _make_folder(folder: Path) -> None:
    """`mkdir -p`, durable: the parent of each folder made is synced."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        if folder.exists():
            raise NotADirectoryError(0, "not a folder", str(folder))
        raise FileNotFoundError(0, "pruned", str(folder))
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # pruned since, with all that was in it
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
