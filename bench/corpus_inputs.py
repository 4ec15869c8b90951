"""What `bench/corpus.py` reads: WARC files as Common Crawl's are, and a list of domains.

`docs` are pages of the demo recipe's Debian packages in 16 languages (30 KB each), `news` the 40
pages of ../shared/data/pages, five times over under other URLs (180 KB each). The list is the one
that datatrove ships, from its environment.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
RIVAL = ROOT / ".bench-datatrove"
MOST = 4 << 20  # bytes of a page
SMALL = 20
_ASSETS = RIVAL / "lib/python3.11/site-packages/datatrove/assets"
_DOMAINS = "url_filterblacklistsv0_3_0.tar.gz"
_NEWS = ROOT.parent / "shared" / "data" / "pages"
_PARTS = 8

Raw = tuple[str, bytes]  # URL and HTML


@dataclass(frozen=True)
class Input:
    """A WARC file, its pages and the bytes of their HTML; beside it `small`, its first pages."""

    name: str
    path: Path
    pages: int
    size: int

    @property
    def small(self) -> Path:
        return self.path.with_name(f"{self.name}-small.warc.gz")


def pack_inputs(folder: Path, pages: int, only: str) -> tuple[list[Input], list[Path]]:
    """The files that `only` needs, and the parts of a larger one for `bench_workers`."""
    made: dict[str, list[Raw]] = {}
    parts: list[Path] = []
    if only != "news":
        docs = docs_pages(folder)
        made["docs"] = docs[:pages]
        if only in ("", "workers"):
            parts = [folder / f"docs-{part}.warc.gz" for part in range(_PARTS)]
            for number, part in enumerate(parts):
                pack(docs[: 4 * pages][number::_PARTS], part)
    if only in ("", "news", "filters") and _NEWS.exists():
        made["news"] = news_pages(5)
    found = []
    for name, raws in made.items():
        path = folder / f"{name}.warc.gz"
        found.append(Input(name, path, len(raws), pack(raws, path)))
        pack(raws[:SMALL], found[-1].small)
    return found, parts


def docs_pages(folder: Path) -> list[Raw]:
    """The demo recipe's packages, in the order of a hash."""
    from eyas.corpus import fetch_sources
    from eyas.corpus.reading.inputs import InputFile
    from eyas.corpus.reading.read import Page, read_pages
    from eyas.recipe import Recipe
    from eyas.store import open_store

    store = open_store(str(folder / "sources"))
    manifest = fetch_sources(Recipe.load(ROOT / "recipes" / "demo.toml"), store)
    found: list[Raw] = []
    for ref in manifest.objects:
        file = InputFile(ref.key, "warc", "store", ref.size, ref.crc32c, rows=ref.rows)
        for page in read_pages(store, file, MOST):
            if isinstance(page, Page):
                found.append((page.url, page.body))
    found.sort(key=lambda raw: hashlib.sha256(raw[0].encode()).digest())
    return found


def news_pages(copies: int) -> list[Raw]:
    gold = json.loads((_NEWS / "gold.json").read_text())
    bodies = {name: gzip.decompress((_NEWS / f"{name}.html.gz").read_bytes()) for name in gold}
    return [
        (gold[name]["url"] + (f"?copy={copy}" if copy else ""), body)
        for copy in range(copies)
        for name, body in bodies.items()
    ]


def pack(pages: Iterable[Raw], path: Path) -> int:
    """A WARC file as Common Crawl's are; bytes of HTML. warcio reads HTTP from http URLs only."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    size = 0
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True)
        for url, body in pages:
            scheme, _, rest = url.partition("://")
            if not scheme.startswith("http"):
                host, _, tail = rest.partition("/")
                url = f"https://{host}.example.org/{tail}"
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            record = writer.create_warc_record(
                url,
                "response",
                payload=io.BytesIO(body),
                http_headers=head,
                warc_headers_dict={"WARC-Identified-Payload-Type": "text/html"},
            )
            writer.write_record(record)
            size += len(body)
    return size


def domains(folder: Path) -> list[str]:
    """datatrove's list of domains as a file for ours, where its environment is there."""
    archive = _ASSETS / _DOMAINS
    if not archive.exists():
        return []
    target = folder / "domains"
    if not target.exists():
        with tarfile.open(archive) as tar:
            member = tar.extractfile("domains")
            assert member is not None
            target.write_bytes(member.read())
    return [str(target)]
