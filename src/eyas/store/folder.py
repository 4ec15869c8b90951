"""A folder as a store.

A put is temporary file, fsync, rename, fsync of the folder; a conditional put is a hard link, which
fails if the name is taken. What a crash leaves is a `.tmp-` file that no reader sees.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from .base import NotFound, ObjectInfo, StoreError, check_key

__all__ = ["FolderStore"]


class FolderStore:
    """Keys are paths below `root`, which is made with the first put."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).expanduser().absolute()
        self._pid = os.getpid()

    @property
    def url(self) -> str:
        return str(self._root)

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(self.url, key) from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                data = file.read(length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(self.url, key) from error
        if len(data) != length:
            raise StoreError(
                f"{self.url}: {key} ends at byte {start + len(data)}, {length} bytes from {start} "
                "were asked for"
            )
        return data

    def put(self, key: str, data: bytes) -> None:
        self.put_chunks(key, [data])

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._temporary(path, [data]) as (temporary, _):
            try:
                os.link(temporary, path)
            except FileExistsError:
                return self.get(key) == data
        _sync_folder(path.parent)
        return True

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        path = self._path(key)
        with self._temporary(path, chunks) as (temporary, size):
            try:
                temporary.replace(path)
            except OSError as error:
                raise StoreError(f"{self.url}: cannot put {key}: {error.strerror}") from error
        _sync_folder(path.parent)
        return size

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._check_process()
        base = prefix.rpartition("/")[0]
        yield from self._walk(f"{base}/" if base else "", prefix)

    def stat(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _info(key, status) if path.is_file() else None

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._path(key).unlink()

    def _path(self, key: str) -> Path:
        self._check_process()
        return self._root / check_key(key)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("a store opened before fork was used after it; open it in the child")

    @contextlib.contextmanager
    def _temporary(self, path: Path, chunks: Iterable[bytes]) -> Iterator[tuple[Path, int]]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreError(f"{self.url}: {path} lies below an object, not a folder") from error
        temporary = path.parent / f".tmp-{uuid.uuid4().hex}"
        try:
            size = 0
            with temporary.open("xb") as file:
                for chunk in chunks:
                    size += file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            yield temporary, size
        finally:
            temporary.unlink(missing_ok=True)

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        """Depth first, in the order that the full keys have: a folder sorts as `name/`."""
        try:
            entries = list(os.scandir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        named = [(e.name + "/" if e.is_dir() else e.name, e) for e in entries]
        for name, entry in sorted(named, key=lambda pair: pair[0].encode()):
            key = folder + name
            if entry.name.startswith(".tmp-"):
                continue
            if name.endswith("/"):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(key, prefix)
            elif key.startswith(prefix):
                with contextlib.suppress(FileNotFoundError):
                    yield _info(key, entry.stat())


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, status.st_mtime)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
