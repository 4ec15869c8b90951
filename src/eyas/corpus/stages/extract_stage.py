"""Stage `corpus.extract`: an input shard to candidates, rejects and band hashes; shares nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eyas.corpus.documents import CANDIDATES, REJECTS, TableWriter, document_id
from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.reading.read import Page, Refused, read_pages
from eyas.corpus.report.funnel import Tally
from eyas.corpus.steps.judge import Keys, Verdict, judge
from eyas.corpus.steps.packs import pack_for
from eyas.store import ObjectRef, Store
from eyas.work import Shard, ShardResult, Stage, shard_key

from .exchange import BAND, Rows, concatenate, put_bands, split_id
from .minhash import band_hashes, matching_words

__all__ = ["run_shard"]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Read, extract, filter and hash every page of the shard's files (`params["files"]`).

    Objects: candidates, rejects and bands, as far as there are any; facts: the shard's tally.
    """
    name = shard_key(stage, shard)[:16]
    with TableWriter(CANDIDATES) as candidates, TableWriter(REJECTS) as rejects:
        made = _Made(stage.settings, candidates, rejects)
        for raw in shard.params["files"]:
            for item in read_pages(store, InputFile(**raw), stage.settings["max_page_bytes"]):
                made.take(item)
        objects = [
            *candidates.finish(store, f"corpus/candidates/{name}-00000.parquet"),
            *rejects.finish(store, f"corpus/rejects/{name}-00000.parquet"),
            *_put_bands(store, f"corpus/bands/{name}.bin", made.bands),
        ]
    return ShardResult(tuple(objects), {"pages": made.tally.pages}, made.tally.facts())


class _Made:
    """What a shard has made so far."""

    def __init__(
        self, settings: Mapping[str, Any], candidates: TableWriter, rejects: TableWriter
    ) -> None:
        self.tally = Tally()
        self.bands: list[Rows] = []
        self._candidates = candidates
        self._rejects = rejects
        self._settings = settings
        self._keys = Keys(
            settings["extractor"], tuple(settings["languages"]), settings["language_threshold"]
        )

    def take(self, item: Page | Refused) -> None:
        """Judge one page, or note one that could not be read."""
        self.tally.pages += 1
        name = document_id(item.source, item.offset)
        if isinstance(item, Refused):
            verdict = Verdict("read", item.reason, item.value, item.detail)
        else:
            verdict = judge(item, self._keys)
        self.tally.measured(verdict.values)
        if verdict.reason:
            self._reject(name, item, verdict)
        else:
            assert isinstance(item, Page)
            self._keep(name, item, verdict)

    def _reject(self, name: str, item: Page | Refused, v: Verdict) -> None:
        self.tally.reject(v.stage, v.reason, v.language)
        self.tally.sample(
            f"{v.stage}/{v.reason}",
            {"id": name, "url": item.url, "language": v.language, "value": v.value, "text": v.text},
        )
        self._rejects.append(
            name,
            item.url,
            v.language,
            v.stage,
            v.reason,
            v.value,
            item.source,
            item.offset,
            v.detail,
        )

    def _keep(self, name: str, page: Page, v: Verdict) -> None:
        size = len(v.text.encode())
        words = int(v.values["words"])
        self._candidates.append(
            *(name, page.url, v.text, v.language, v.score),
            *(page.source, page.offset, page.date, words, size),
        )
        self.bands.append(self._band_rows(name, v))

    def _band_rows(self, name: str, v: Verdict) -> Rows:
        s = self._settings
        shingle = s["dedup_shingle"] * pack_for(v.language).tokens_per_word
        hashes = band_hashes(matching_words(v.tokens), s["dedup_bands"], s["dedup_rows"], shingle)
        rows = np.zeros(len(hashes), dtype=BAND)
        rows["hash"] = hashes
        rows["high"], rows["low"] = split_id(name)
        return rows


def _put_bands(store: Store, key: str, bands: list[Rows]) -> tuple[ObjectRef, ...]:
    return (put_bands(store, key, concatenate(bands, BAND)),) if bands else ()
