"""Pages per CPU-second of the corpus' per-page path, one process, and where the time goes.

    python bench/corpus_steps.py FILE.warc.gz… [--pages N]

The path is read, extract, language, words, rules, MinHash, as stage corpus.extract runs it, for
each extractor in turn. CPU time of this process, so that other load matters little; peak memory is
of both together.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.reading.read import Page, read_pages
from eyas.corpus.stages.minhash import band_hashes, matching_words
from eyas.corpus.steps import judge as steps
from eyas.corpus.steps.extract import EXTRACTORS
from eyas.corpus.steps.judge import Keys, judge
from eyas.store import open_store

LIMIT = 4 << 20
TIMED = ("decode_text", "extract_text", "detect_language", "split_words", "measure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pages", type=int, default=1000)
    arguments = parser.parse_args()
    spent: Counter[str] = Counter()
    for name in TIMED:
        setattr(steps, name, timed(getattr(steps, name), name, spent))
    start = time.process_time()
    found = itertools.chain.from_iterable(map(pages_of, arguments.files))
    pages = list(itertools.islice(found, arguments.pages))
    read = time.process_time() - start
    size = sum(len(p.body) + len(p.text) for p in pages)
    print(f"{len(pages)} pages, {size / 1e6:.1f} MB of HTML, read in {read:.2f} CPU-seconds")
    for extractor in EXTRACTORS:
        run(extractor, pages, size, read, spent)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def pages_of(path: Path) -> list[Page]:
    store = open_store(str(path.parent))
    file = InputFile(str(path), "warc", "path", path.stat().st_size)
    return [p for p in read_pages(store, file, LIMIT) if isinstance(p, Page)]


def run(extractor: str, pages: list[Page], size: int, read: float, spent: Counter[str]) -> None:
    keys = Keys(extractor, (), 0.65)
    for page in pages[:20]:
        judge(page, keys)
    spent.clear()
    kept = 0
    start = time.process_time()
    for page in pages:
        verdict = judge(page, keys)
        if not verdict.reason:
            kept += 1
            before = time.process_time()
            band_hashes(matching_words(verdict.tokens), 14, 8, 5)
            spent["minhash"] += time.process_time() - before
    total = time.process_time() - start + read
    spent["read"] = read
    shares = ", ".join(f"{name} {t / total:.0%}" for name, t in spent.most_common())
    print(
        f"{extractor}: {len(pages) / total:.0f} pages and {size / total / 1e6:.1f} MB per "
        f"CPU-second, {kept} kept; {shares}"
    )


def timed(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        before = time.process_time()
        try:
            return function(*args)
        finally:
            spent[name] += time.process_time() - before

    return wrapper


if __name__ == "__main__":
    main()
