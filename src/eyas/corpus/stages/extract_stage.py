"""Stage `corpus.extract`: an input shard to texts with their language, and rejects; shares nothing.

Read, URL filter, extraction, language: what a page says, and in which language, but not yet
whether it stays. That is the filters' affair (`corpus.filter`), so a changed threshold never reads
the crawl again. The URL is looked at before anything of the page is decoded.

A page that runs away within the limits is killed by the watch on CPU seconds together with its
worker; the room `work` commits that verdict, and the shard's next run finds it in `refusals` and
writes it as a reject. So does every later run, whatever the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eyas.corpus.documents import REJECTS, TEXTS, TableWriter, document_id
from eyas.corpus.reading.inputs import InputFile
from eyas.corpus.reading.read import Page, Refused, read_pages
from eyas.corpus.report.funnel import Tally
from eyas.corpus.steps.extract import extract_page
from eyas.corpus.steps.language import detect_language
from eyas.corpus.steps.urls import load_url_filter
from eyas.store import Store
from eyas.work import Refusal, Shard, ShardResult, Stage, refusals, watch_item

__all__ = ["run_shard"]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Read and extract every page of the shard's files (`params["files"]`).

    Settings: extractor, max_page_bytes, max_page_nodes, page_seconds (of CPU), text_field and url
    (the resolved URL filter, null for none). Objects: texts and rejects, as far as there are any,
    named by their content: if a page runs away on one of two machines that read the same file, each
    record names what its own run made. Counter: pages; facts: the shard's tally. Raises
    InputChanged.
    """
    settings = stage.settings
    with TableWriter(TEXTS) as texts, TableWriter(REJECTS) as rejects:
        made = _Made(store, settings, refusals(store, stage), texts, rejects)
        for raw in shard.params["files"]:
            file = InputFile(**raw)
            for item in read_pages(store, file, settings["max_page_bytes"], settings["text_field"]):
                made.take(item)
        objects = (
            *texts.finish(store, "corpus/texts/"),
            *rejects.finish(store, "corpus/rejects/"),
        )
    return ShardResult(objects, {"pages": made.tally.pages}, made.tally.facts())


class _Made:
    """What a shard has made so far."""

    def __init__(
        self,
        store: Store,
        settings: Mapping[str, Any],
        refused: Mapping[str, Refusal],
        texts: TableWriter,
        rejects: TableWriter,
    ) -> None:
        self.tally = Tally()
        self._urls = load_url_filter(store, settings["url"]) if settings["url"] else None
        self._settings = settings
        self._refused = refused
        self._texts = texts
        self._rejects = rejects

    def take(self, item: Page | Refused) -> None:
        """One page to a text or a reject, or the reject of one that could not be read."""
        self.tally.pages += 1
        name = document_id(item.source, item.offset)
        if isinstance(item, Refused):
            self._reject(name, item, "read", item.reason, item.value, item.detail)
        elif self._urls and (found := self._urls.verdict(item.url)):
            self._reject(name, item, "url", *found)
        elif refusal := self._refused.get(name):
            self._reject(name, item, "extract", refusal.reason, refusal.value, refusal.detail)
        else:
            self._extract(name, item)

    def _extract(self, name: str, page: Page) -> None:
        s = self._settings
        with watch_item(name, s["page_seconds"]):
            found = extract_page(page, s["extractor"], s["max_page_nodes"])
        if found.reason:
            self._reject(name, page, "extract", found.reason, found.value, found.detail)
            return
        language, score = detect_language(found.text)
        self._texts.append(
            *(name, page.url, found.text, language, score),
            *(page.source, page.offset, page.date),
        )

    def _reject(
        self,
        name: str,
        item: Page | Refused,
        stage: str,
        reason: str,
        value: float | None,
        detail: str,
    ) -> None:
        self.tally.reject(stage, reason)
        self.tally.sample(
            f"{stage}/{reason}",
            {"id": name, "url": item.url or item.source, "language": "", "value": value, "text": ""}
            | {"detail": detail},
        )
        self._rejects.append(
            *(name, item.url, "", stage, reason, value),
            *(item.source, item.offset, item.date, detail, ""),
        )
