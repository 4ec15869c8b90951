"""datatrove's half of `bench/corpus.py`, in a process of its own: WARC files to Parquet.

    .bench-datatrove/bin/python bench/corpus_datatrove.py DIRECTIONS.json

Runs without Eyas, in an environment of its own (`bench/requirements.txt`). The pipeline is the
published one of FineWeb up to de-duplication, every step as shipped but for what it would download
(the model of the language filter and the list of public suffixes come from files) and, where the
directions say so, the extractor: resiliparse, wrapped as its own are, instead of trafilatura.
Directions: `task` ("curate"; "extract": its extractor alone; "filters": the word-level ones alone
on texts in memory), `inputs`, `out`, `extractor`, `languages`, `model` (of the language filter),
`url_lists`, `warm` (texts before the clock starts). Prints one JSON object: pages in and kept, and
what was measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.extractors.base import BaseExtractor
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
    URLFilter,
)
from datatrove.pipeline.readers import WarcReader
from datatrove.pipeline.writers.parquet import ParquetWriter
from datatrove.utils.lid import FT176LID
from datatrove.utils.logging import logger
from tldextract import TLDExtract

TIMEOUT_S = 60.0  # datatrove's own is 1 s of wall time: on a busy machine that drops sound pages


class Resiliparse(BaseExtractor):
    """The extractor that our quick choice uses, called as we call it."""

    name = "resiliparse"

    def __init__(self) -> None:
        super().__init__(TIMEOUT_S)

    def extract(self, text: str) -> str:
        from resiliparse.extract.html2text import extract_plain_text

        found: str = extract_plain_text(text, main_content=True, alt_texts=False, comments=False)
        return found


class PackagedModel(FT176LID):
    """fastText's lid.176 from a file; everything else as datatrove does it."""

    def __init__(self, languages: list[str] | None, path: str) -> None:
        super().__init__(languages)
        self._path = path

    @property
    def model(self) -> Any:
        if self._model is None:
            from fasttext.FastText import _FastText

            self._model = _FastText(self._path)
        return self._model


def curate(d: dict[str, Any]) -> dict[str, Any]:
    """WARC files through the whole pipeline."""
    out = Path(d["out"])

    def rejects(step: str) -> ParquetWriter:
        return ParquetWriter(str(out / "rejects" / step), compression="zstd")

    language = LanguageFilter(d["languages"] or None, exclusion_writer=rejects("language"))
    language.model = PackagedModel(d["languages"] or None, d["model"])
    url = URLFilter(use_integrated_lists=d["url_lists"], exclusion_writer=rejects("url"))
    url.tldextractor = TLDExtract(suffix_list_urls=())  # the list that it ships, no download
    extractor = Resiliparse() if d["extractor"] == "resiliparse" else Trafilatura(timeout=TIMEOUT_S)
    steps: list[Any] = [
        *map(reader, d["inputs"]),
        url,
        extractor,
        language,
        *word_filters(rejects),
        ParquetWriter(str(out / "documents"), compression="zstd"),
    ]
    data: Any = None
    for step in steps:
        data = step(data, 0, 1)
    kept = sum(1 for _ in data)
    read = sum(step.stats["documents"].total for step in steps[: len(d["inputs"])])
    status = Path("/proc/self/status").read_text()  # getrusage begins at the size of the parent
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    return {"pages": int(read), "kept": kept, "peak_mb": peak}


def extract(d: dict[str, Any]) -> dict[str, Any]:
    """Its extractor alone, CPU seconds, in this process."""
    extractor = Trafilatura()
    pages = [x.text for p in d["inputs"] for x in reader(p)()]
    extractor.extract(pages[0])
    start = time.process_time()
    for page in pages:
        extractor.extract(page)
    return {"pages": len(pages), "spent": {"trafilatura": time.process_time() - start}}


def reader(path: str) -> WarcReader:
    return WarcReader(str(Path(path).parent), glob_pattern=Path(path).name)


def word_filters(rejects: Any) -> list[Any]:
    """FineWeb's, in its order: https://github.com/huggingface/datatrove/blob/main/examples/fineweb.py"""
    return [
        GopherRepetitionFilter(exclusion_writer=rejects("repetition")),
        GopherQualityFilter(exclusion_writer=rejects("gopher")),
        C4QualityFilter(filter_no_terminal_punct=False, exclusion_writer=rejects("c4")),
        FineWebQualityFilter(exclusion_writer=rejects("fineweb")),
    ]


def filters(d: dict[str, Any]) -> dict[str, Any]:
    """The word-level filters alone, on texts in memory."""
    with Path(d["inputs"][0]).open() as stream:
        texts = [json.loads(line)["text"] for line in stream]
    steps = word_filters(lambda _: None)

    def decide(text: str) -> str:
        document = Document(text=text, id="")
        for step in steps:
            verdict = step.filter(document)
            kept, reason = verdict if isinstance(verdict, tuple) else (verdict, "")
            if not kept:
                return f"{step.name} {reason}"
        return "kept"

    for text in texts[: d["warm"]]:
        decide(text)
    texts = texts[d["warm"] :]
    start = time.process_time()
    found = Counter(map(decide, texts))
    return {
        "pages": len(texts),
        "kept": found["kept"],
        "cpu": time.process_time() - start,
        "reasons": dict(found.most_common()),
    }


def main() -> None:
    logger.remove()
    directions = json.loads(Path(sys.argv[1]).read_text())
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    task = {"curate": curate, "extract": extract, "filters": filters}[directions["task"]]
    print(json.dumps(task(directions)))


if __name__ == "__main__":
    main()
