"""How well and how fast main text is extracted: F1 against people, pages per CPU-second.

    .venv/bin/python -m bench.extraction [PAGES] [--rounds 3]

PAGES is a folder of `<name>.html.gz` and `gold.json`, the text that a person marked in each
(default: ../shared/data/pages). Precision, recall and F1 are over words with their number of
occurrences, averaged over pages. Rates are of the whole way from bytes to clean text (character
set, bounds, extractor, cleaning), CPU time of this process, the best of the rounds; the table below
them says where the time goes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eyas.corpus.reading.decode import decode_text
from eyas.corpus.reading.read import Page
from eyas.corpus.steps.bounds import check_bounds
from eyas.corpus.steps.extract import EXTRACTORS, clean_text, extract_page
from eyas.corpus.steps.language import detect_language

NODES = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shared = Path(__file__).resolve().parents[2] / "shared" / "data" / "pages"
    parser.add_argument("pages", nargs="?", type=Path, default=shared)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    gold = json.loads((arguments.pages / "gold.json").read_text())
    names = sorted(arguments.pages.glob("*.html.gz"))
    pages = [Page(p.name, 0, "", "", body=gzip.decompress(p.read_bytes())) for p in names]
    size = sum(len(page.body) for page in pages) / 1e6
    print(f"{len(pages)} pages, {size:.1f} MB")
    print("| extractor | precision | recall | F1 | empty | pages/CPU-s | MB/CPU-s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in EXTRACTORS:
        texts, seconds = timed(lambda p, n=name: extract_page(p, n, NODES).text, pages, arguments)
        wanted = [gold[page.source.split(".")[0]]["text"] for page in pages]
        precision, recall, f1 = agreement(texts, wanted)
        print(
            f"| {name} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {texts.count('')} | "
            f"{len(pages) / seconds:.0f} | {size / seconds:.1f} |"
        )
    shares(pages, arguments)


def shares(pages: list[Page], arguments: argparse.Namespace) -> None:
    """Milliseconds a page of every part."""
    print("\n| part | ms a page |\n| --- | --- |")
    decoded, seconds = timed(lambda p: decode_text(p.body)[0], pages, arguments)
    rows = {"character set": seconds}
    rows["bounds"] = timed(lambda p: check_bounds(p.body, NODES), pages, arguments)[1]
    for name, run in EXTRACTORS.items():
        texts, rows[name] = timed(run, decoded, arguments)
        rows[f"cleaning ({name})"] = timed(clean_text, texts, arguments)[1]
    rows["language"] = timed(detect_language, texts, arguments)[1]
    for name, seconds in rows.items():
        print(f"| {name} | {seconds / len(pages) * 1000:.2f} |")


def timed(
    run: Callable[..., Any], inputs: list[Any], arguments: argparse.Namespace
) -> tuple[list[Any], float]:
    """Results, and the CPU-seconds of the best round."""
    best = float("inf")
    for _ in range(arguments.rounds):
        start = time.process_time()
        results = [run(value) for value in inputs]
        best = min(best, time.process_time() - start)
    return results, best


def agreement(texts: list[str], wanted: list[str]) -> tuple[float, float, float]:
    """Means of precision, recall and F1 over the pages."""
    rows = []
    for text, gold in zip(texts, wanted, strict=True):
        got, right = Counter(text.split()), Counter(gold.split())
        common = (got & right).total()
        precision = common / max(1, got.total())
        recall = common / max(1, right.total())
        rows.append((precision, recall, 2 * common / max(1, got.total() + right.total())))
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return means[0], means[1], means[2]


if __name__ == "__main__":
    main()
