"""The URL filter: an address in, the reason not to read its page out, before any byte is decoded.

Rules in their order (RefinedWeb, arXiv 2306.01116, G.1): the host or a domain above it is on a
block-list; it is the site of a source that is added curated; a strict word stands anywhere in the
address, a hard word as a whole word, or too many different soft words. Words are looked for in the
address with its %-escapes undone, in lower case; strict words also across signs (`so-me.word`).

Block-lists have millions of domains and are the same for every worker, so they are hashed once:
`put_url_lists` writes one object, XXH3-64 of each domain, sorted, little endian, behind a header
with their checksum. A worker maps a checked copy of it read-only; the pages of memory are shared
by all workers of a machine. Any domain is found by mistake once in 4 x 10^12 for 4.5 million
entries. Hosts are compared as DNS does: lower case, IDNA, no port, no trailing dot.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import mmap
import os
import re
import struct
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import xxhash

from eyas.recipe import Recipe, UsageError
from eyas.store import Store, StoreError

from .word_lists import entries, entry, read_list

__all__ = ["UrlFilter", "load_url_filter", "normal_host", "put_url_lists"]

_log = logging.getLogger("eyas.corpus")
_VERSION = 1
_HEADER = struct.Struct("<8sIxxxxQ16s24x")  # magic, version, entries, XXH3-128 of them
_MAGIC = b"eyasurls"
_HOST = re.compile(r"[a-z][a-z0-9+.-]*:/+(?:[^/?#\\]*@)?(\[[^\]/?#]*\]|[^/?#:\\]*)", re.I)
_LONGEST = 1000  # no host is longer; of one that claims to be, its end counts
_WORDS = re.compile(r"[^\W_]+")

_PLAIN = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+")  # a line that is a host as it stands
_PIECE = 1 << 17  # hashes

Found = tuple[str, float | None, str]
_List = Callable[[], Iterable[bytes]]  # its content from the start, in pieces of whole lines


def put_url_lists(recipe: Recipe, store: Store) -> dict[str, Any]:
    """The resolved `[corpus.url]`: words, curated domains, and the key of the block-list's object,
    which is written where it is missing. Raises UsageError for a list that cannot be read."""
    keys = recipe.corpus.url
    lists: list[_List] = [lambda: [_shipped("domains")]] if keys.default_lists else []
    lists += [functools.partial(read_list, source) for source in keys.blocklist]
    curated = [*_entries("curated"), *keys.curated] if keys.exclude_curated else []
    return {
        "domains": _put_domains(store, lists) if lists else None,
        "curated": sorted({host for entry in curated if (host := _domain(entry))}),
        "strict": _words("strict", keys.strict_words),
        "hard": _words("hard", keys.hard_words),
        "soft": _words("soft", keys.soft_words),
        "max_soft_words": keys.max_soft_words,
    }


def load_url_filter(store: Store, settings: Mapping[str, Any]) -> UrlFilter:
    """The filter of `put_url_lists`' settings. Raises StoreError for a damaged list."""
    key = settings["domains"]
    return UrlFilter(
        _mapped(store, key) if key else (),
        frozenset(settings["curated"]),
        tuple(settings["strict"]),
        frozenset(settings["hard"]),
        frozenset(settings["soft"]),
        settings["max_soft_words"],
    )


@dataclass(frozen=True)
class UrlFilter:
    """`domains` are sorted hashes, all else are words and hosts as they are."""

    domains: Sequence[int]
    curated: frozenset[str]
    strict: tuple[str, ...]
    hard: frozenset[str]
    soft: frozenset[str]
    max_soft_words: int

    def verdict(self, url: str) -> Found | None:
        """None to read the page, or reason, value and what was found. An address without a host,
        such as a file's path, is always read."""
        host = normal_host(url)
        if not host:
            return None
        for domain in _upwards(host):
            if self._is_blocked(domain):
                return "blocked_domain", None, domain
            if domain in self.curated:
                return "curated_source", None, domain
        return self._by_words(url)

    def _is_blocked(self, domain: str) -> bool:
        value = _hash(domain)
        place = bisect_left(self.domains, value)
        return place < len(self.domains) and self.domains[place] == value

    def _by_words(self, url: str) -> Found | None:
        words = _words_of(url)
        joined = "".join(words)
        for word in self.strict:
            if word in joined:
                return "strict_word", None, word
        if not self.hard.isdisjoint(words):
            return "hard_word", None, min(self.hard.intersection(words))
        soft = self.soft.intersection(words)
        if len(soft) > self.max_soft_words:
            return "soft_words", float(len(soft)), " ".join(sorted(soft))
        return None


def normal_host(url: str) -> str:
    """The host of an address as DNS compares it; empty where there is none."""
    found = _HOST.match(url.lstrip())
    return _normal(found[1][-_LONGEST:]) if found else ""


def _normal(host: str) -> str:
    host = (unquote(host) if "%" in host else host).strip().rstrip(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii").rstrip(".").lower()
    except UnicodeError:  # no legal name; compared as it is written
        return host


def _hash(domain: str) -> int:
    return xxhash.xxh3_64_intdigest(domain.encode("utf-8", "replace"))


def _upwards(host: str) -> Iterator[str]:
    """The host and every domain above it."""
    yield host
    place = host.find(".")
    while place >= 0:
        yield host[place + 1 :]
        place = host.find(".", place + 1)


def _words_of(text: str) -> list[str]:
    return _WORDS.findall((unquote(text) if "%" in text else text).lower())


def _domain(entry: str) -> str:
    """A line of a list as a host: `x.org`, `*.x.org`, `0.0.0.0 x.org`, `.xxx` for a whole top-level
    domain. Empty for what is no domain, such as `localhost` or a path."""
    name = entry.split()[-1]
    host = _normal(name.removeprefix("*").removeprefix("."))
    whole = "." in host or name.startswith((".", "*."))
    return host if whole and "/" not in host else ""


def _words(kind: str, source: str) -> list[str]:
    """Words of the user's list, or of ours, as they stand in an address."""
    found = entries(read_list(source)) if source else _entries(kind)
    return sorted({word for line in found if (word := "".join(_words_of(line)))})


def _entries(kind: str) -> list[str]:
    return list(entries([_shipped(kind)]))


@functools.cache
def _shipped(kind: str) -> bytes:
    return (resources.files("eyas") / "presets" / "urls" / f"{kind}.txt").read_bytes()


def _put_domains(store: Store, lists: Sequence[_List]) -> str:
    """The key of the hashed lists; named by their content, so that it is hashed once."""
    key = _list_key(lists)
    if store.stat(key) is None:
        values = _hashes(piece for pieces in lists for piece in pieces())
        if _list_key(lists) != key:
            raise UsageError(
                "a block-list of [corpus.url] was changed while it was read; run again"
            )
        store.put_chunks(key, _packed(values))
    return key


def _list_key(lists: Iterable[_List]) -> str:
    content = hashlib.sha256(struct.pack("<I", _VERSION))
    for pieces in lists:
        digest = hashlib.sha256()
        for piece in pieces():
            digest.update(piece)
        content.update(digest.digest())
    return f"corpus/lists/{content.hexdigest()[:32]}.bin"


def _packed(values: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    """The object, in pieces: millions of hashes are held once."""
    check, size = xxhash.xxh3_128(), 0
    for piece in _distinct(values):
        check.update(piece)
        size += len(piece)
    yield _HEADER.pack(_MAGIC, _VERSION, size // 8, check.digest())
    yield from _distinct(values)


def _hashes(pieces: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """Of the domain of each line, sorted."""
    found, ignored = array("Q"), 0
    plain, digest, add = _PLAIN.fullmatch, xxhash.xxh3_64_intdigest, found.append
    for line in (line.strip() for piece in pieces for line in piece.split(b"\n")):
        if plain(line):
            add(digest(line))
        elif name := entry(line):
            if domain := _domain(name):
                add(_hash(domain))
            else:
                ignored += 1
    if ignored:
        _log.warning("%d lines of the block-lists are no domains and block nothing", ignored)
    values = np.frombuffer(found, np.uint64)
    values.sort()
    return values


def _distinct(values: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    """Sorted values, each once, little endian."""
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        new = np.ones(len(piece), bool)
        np.not_equal(piece[1:], piece[:-1], out=new[1:])
        new[0] = not start or piece[0] != values[start - 1]
        yield piece[new].astype("<u8").tobytes()


def _mapped(store: Store, key: str) -> Sequence[int]:
    """The hashes, mapped from this machine's copy of the object, which is made where it is not."""
    file = _cache_folder() / key.rpartition("/")[2]
    if (hashes := _open_copy(file)) is None:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".list-")
        with os.fdopen(handle, "wb") as copy:
            copy.write(store.get(key))
        Path(name).replace(file)
        hashes = _open_copy(file)
    if hashes is None:
        raise StoreError(
            f"{store.url}/{key} is damaged; delete it and run `eyas curate` again, which writes it"
        )
    return hashes


def _open_copy(file: Path) -> Sequence[int] | None:
    """Mapped and checked, or None."""
    try:
        with file.open("rb") as handle:
            if os.fstat(handle.fileno()).st_size < _HEADER.size:
                return None
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    magic, version, count, check = _HEADER.unpack_from(mapped)
    hashes = memoryview(mapped)[_HEADER.size :]
    sound = (magic, version, 8 * count) == (_MAGIC, _VERSION, len(hashes))
    if not sound or xxhash.xxh3_128_digest(hashes) != check:
        return None
    return hashes.cast("Q")


def _cache_folder() -> Path:
    """`$XDG_CACHE_HOME/eyas/lists`, or below ~/.cache; where neither can be written, a folder of
    this user's own among the temporary files."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "eyas" / "lists"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.gettempdir()) / f"eyas-{os.getuid()}" / "lists"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
