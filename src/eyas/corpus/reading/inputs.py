"""Which files a recipe's sources are, and how to read their bytes.

A source is a path, a folder, an `s3://` object or prefix, an `https://` file, a crawl of Common
Crawl by name, or packages already packed by `fetch_sources` into this store. Every file is listed
with its size and a checksum (an etag where the bytes are far away, nothing for the files of a
crawl, which never change), in byte order of its name, so that the list is the same everywhere. HTML
files come in groups, cut where the hash of a name says so: a new file changes one group only.
"""

from __future__ import annotations

import glob
import io
import os
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import xxhash

from eyas.corpus.fetch.common_crawl import crawl_files, is_crawl, open_crawl_file
from eyas.recipe import Recipe, UsageError
from eyas.store import (
    Corrupt,
    Manifest,
    NotFound,
    ObjectReader,
    ObjectRef,
    Store,
    StoreError,
    crc32c,
    identity,
    seal,
    unseal,
)
from eyas.work import progress

from .buckets import at_bucket, split_url
from .remote import FileChanged, Found, Missing, is_remote, look, spool

__all__ = [
    "InputChanged",
    "InputFile",
    "group_files",
    "input_files",
    "open_input",
    "package_sources",
]

_KINDS = {
    ".warc": "warc",
    ".wet": "warc",
    ".arc": "warc",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_COMPRESSED = (".gz", ".zst")
_LEGAL = ", ".join(_KINDS) + ", each also with .gz or .zst, and .parquet"
_PACKAGES = ("apt:", "pypi:")
_GROUP_FILES = 2048
_GROUP_CUT = 512
_CHUNK = 1 << 20


class InputChanged(StoreError):
    """An input file is not what it was when it was listed."""


@dataclass(frozen=True)
class InputFile:
    """One file to read. `key` is its name in every document: a path as the recipe writes it
    (`origin` "path"), a key of the store ("store"), an s3:// or https:// URL ("url"), or a path of
    Common Crawl (`origin` is then the mirror). `kind` is "warc", "html", "jsonl" or "parquet".
    `crc32c` is empty where only the etag is known; for a file of a crawl nothing is, and `size` is
    0."""

    key: str
    kind: str
    origin: str
    size: int
    crc32c: str = ""
    etag: str = ""
    rows: int = 0

    @property
    def ref(self) -> ObjectRef:
        """As a manifest names it."""
        return ObjectRef(self.key, self.size, self.crc32c, self.rows)


def package_sources(recipe: Recipe) -> list[str]:
    """The sources that `fetch_sources` packs into the store."""
    return [s for s in recipe.corpus.sources if s.startswith(_PACKAGES)]


def input_files(recipe: Recipe, store: Store, sources: Manifest | None) -> list[InputFile]:
    """Every input file of the recipe, in byte order of the key, each once.

    Local files are read once for their checksum, and again only if they changed. `sources` is the
    manifest of `fetch_sources`. Raises UsageError for a source that is missing, empty or of no
    known kind, or if the recipe names packages and `sources` is None.
    """
    found: dict[str, InputFile] = {}
    for source in recipe.corpus.sources:
        for file in _resolve(source, recipe, sources):
            found.setdefault(file.key, file)
    if not found:
        raise UsageError(
            "corpus.sources: no page source is named; write a file, a folder or apt:NAME"
        )
    return _with_checksums(store, sorted(found.values(), key=lambda f: f.key.encode()))


def open_input(store: Store, file: InputFile) -> IO[bytes]:
    """A seekable stream of the file's bytes as stored. Raises InputChanged for one far away that is
    not there any more or is another than was listed."""
    if file.origin == "path":
        return _open_local(file)
    try:
        if file.origin == "store":
            return io.BufferedReader(ObjectReader(store, file.key, file.size), _CHUNK)
        if file.origin != "url":
            return open_crawl_file(file.key, file.origin)
        if is_remote(file.key):
            return spool(file.key, Found(file.size, file.etag))
    except (FileChanged, Missing, NotFound) as error:
        raise InputChanged(str(error)) from error
    home, key = at_bucket(file.key)
    found = home.stat(key)
    if found is None or (found.size, found.etag) != (file.size, file.etag):
        raise InputChanged(f"{file.key} changed while it was used; start again")
    return io.BufferedReader(ObjectReader(home, key, file.size), _CHUNK)


def group_files(files: Sequence[InputFile]) -> Iterator[tuple[InputFile, ...]]:
    """The shards: one a file, HTML files in groups. Files keep their order."""
    group: list[InputFile] = []
    for file in files:
        if file.kind != "html":
            yield (file,)
            continue
        group.append(file)
        cut = xxhash.xxh3_64_intdigest(file.key.encode()) % _GROUP_CUT == 0
        if cut or len(group) == _GROUP_FILES:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)


def _resolve(source: str, recipe: Recipe, sources: Manifest | None) -> Iterable[InputFile]:
    if source.startswith(_PACKAGES):
        if sources is None:
            raise UsageError(
                f"corpus.sources: {source} has not been fetched; `eyas curate` does that first"
            )
        objects = (o for o in sources.objects if _kind(o.key) == "warc")
        return [InputFile(o.key, "warc", "store", o.size, o.crc32c, rows=o.rows) for o in objects]
    if is_crawl(source):
        return _crawl(source, recipe)
    if is_remote(source):
        return [_web_file(source)]
    if source.startswith("s3://"):
        return _bucket_files(source)
    return _local(source)


def _crawl(source: str, recipe: Recipe) -> list[InputFile]:
    keys, mirror = recipe.corpus, recipe.corpus.crawl_mirror
    paths = crawl_files(source, mirror, keys.max_crawl_files, keys.seed)
    return [InputFile(path, "warc", mirror, 0) for path in paths]


def _web_file(url: str) -> InputFile:
    kind = _kind(urllib.parse.urlsplit(url).path)
    if not kind:
        raise UsageError(f"corpus.sources: {url} is of no known kind; legal are {_LEGAL}")
    found = look(url)
    return InputFile(url, kind, "url", found.size, etag=found.etag)


def _local(source: str) -> list[InputFile]:
    """Of a file, a folder, or a pattern such as ./crawl/*.warc.gz where nothing has that name."""
    if not source:
        raise UsageError('corpus.sources: "" names nothing; write . for the current folder')
    if Path(source).exists():
        return _local_files(source)
    matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 it may be absolute
    if not matches:
        raise UsageError(f"corpus.sources: there is no file or folder {source}")
    return [file for match in matches for file in _local_files(match)]


def _local_files(source: str) -> list[InputFile]:
    path = Path(source)
    if path.is_dir():
        paths = [p for p in sorted(path.rglob("*")) if p.is_file() and _kind(p.name)]
        if not paths:
            raise UsageError(f"corpus.sources: no page file in {source}; legal are {_LEGAL}")
        return [_local_file(p) for p in paths]
    if not path.is_file() or not _kind(source):
        raise UsageError(f"corpus.sources: {source} is of no known kind; legal are {_LEGAL}")
    return [_local_file(path)]


def _local_file(path: Path) -> InputFile:
    try:
        path.as_posix().encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"corpus.sources: the name of {os.fsencode(path)!r} is not UTF-8; rename it"
        ) from error
    return InputFile(path.as_posix(), _kind(path.name), "path", path.stat().st_size)


def _bucket_files(source: str) -> list[InputFile]:
    url, _ = split_url(source)
    home, prefix = at_bucket(source)
    exact = home.stat(prefix) if prefix else None
    if exact is not None:
        infos = [exact]
    else:
        infos = list(home.list(prefix.rstrip("/") + "/" if prefix else ""))
    files = [
        InputFile(f"{url}/{i.key}", _kind(i.key), "url", i.size, etag=i.etag)
        for i in infos
        if _kind(i.key)
    ]
    if not files:
        raise UsageError(f"corpus.sources: no page file at {source}; legal are {_LEGAL}")
    return files


def _kind(name: str) -> str:
    stem = name.lower()
    if stem.endswith(".parquet"):
        return "parquet"
    for ending in _COMPRESSED:
        stem = stem.removesuffix(ending)
    return next((kind for ending, kind in _KINDS.items() if stem.endswith(ending)), "")


def _with_checksums(store: Store, files: Sequence[InputFile]) -> list[InputFile]:
    """Checksums of local files. They are kept in the store by name, size and time of change, so
    that the next run, or the next job of an array, does not read terabytes to begin; each file is
    read against its checksum again before it is used."""
    local = [f for f in files if f.origin == "path"]
    if not local:
        return list(files)
    stamps = [(f.key, *_stamp(f.key)) for f in local]
    name = f"work/inputs/{identity('inputs', stamps)}.json"
    sums = _known_checksums(store, name)
    if sums is None:
        with progress("check input files", total=sum(f.size for f in local)) as advance:
            sums = {f.key: _checksum(f.key, advance) for f in local}
        store.put(name, seal({"files": sums}))
    return [_checked(f, sums.get(f.key)) for f in files]


def _stamp(key: str) -> tuple[int, int]:
    try:
        found = Path(key).stat()
    except OSError as error:
        raise UsageError(f"corpus.sources: cannot read {key}: {error.strerror}") from error
    return found.st_size, found.st_mtime_ns


def _known_checksums(store: Store, name: str) -> dict[str, tuple[int, str]] | None:
    try:
        files = unseal(store, name, store.get(name))["files"]
    except (NotFound, Corrupt):
        return None
    return {key: (size, checksum) for key, (size, checksum) in files.items()}


def _checked(file: InputFile, found: tuple[int, str] | None) -> InputFile:
    if found is None:
        return file
    return InputFile(file.key, file.kind, file.origin, found[0], found[1])


def _open_local(file: InputFile) -> IO[bytes]:
    """Read once more before it is used: what is recorded as its work must be of these bytes."""
    try:
        found = _checksum(file.key, lambda _: None) if file.crc32c else None
        stream = Path(file.key).open("rb", _CHUNK)  # noqa: SIM115 whoever asked closes it
    except (OSError, UsageError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputChanged(f"cannot read {file.key}: {reason}") from error
    if found not in (None, (file.size, file.crc32c)):
        stream.close()
        raise InputChanged(f"{file.key} changed while it was used; start again")
    return stream


def _checksum(key: str, advance: Callable[[int], object]) -> tuple[int, str]:
    """Size and CRC32C of a local file, read in pieces."""
    value = size = 0
    try:
        with Path(key).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                value = crc32c(chunk, value)
                size += len(chunk)
                advance(len(chunk))
    except OSError as error:
        raise UsageError(f"corpus.sources: cannot read {key}: {error.strerror}") from error
    return size, f"{value:08x}"
