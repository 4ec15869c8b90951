"""A small corpus as it stands in a store, without a run: documents, rejects, values, report.

Every page has values drawn by its number and is decided by the rules themselves, so what the tables
say is consistent; kept pages whose number is a multiple of ten are duplicates of the one before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from eyas.corpus.documents import (
    DOCUMENTS,
    REJECTS,
    TableWriter,
    document_id,
    values_schema,
)
from eyas.corpus.report.cost import cost_facts
from eyas.corpus.report.funnel import Tally
from eyas.corpus.report.report import put_report, report_facts
from eyas.corpus.steps.packs import Ruleset, resolve
from eyas.corpus.steps.rules import RULES, verdict
from eyas.recipe import Recipe
from eyas.store import Manifest, ObjectRef, Store, commit_manifest

__all__ = ["NO_CLUSTERS", "commit", "values_of"]

NO_CLUSTERS: dict[str, Any] = {"clusters": 0, "sizes": [], "largest": []}
_CODES = ("en", "ar", "de", "zh", "sw")


def values_of(number: int, ruleset: Ruleset, language: str) -> dict[str, float]:
    """Values around each limit; every value that the language's rules read."""
    draw = random.Random(number)
    rules = ruleset.for_language(language)
    values = {}
    for step in rules.steps:
        for rule in RULES.get(step, ()):
            limit = float(rules.limits[step][rule.key]) or 0.2
            near = draw.choice((0.4, 0.9, 1.0, 1.0, 1.6) if draw.random() < 0.2 else (1.0,))
            far = near if rule.side == "low" else 2 - near
            values.setdefault(f"{step}.{rule.measure}", limit * max(far, 0.0))
    return values


def commit(store: Store, recipe: Recipe, shards: Sequence[range]) -> Manifest:
    """Pages of these numbers, a shard each, as the manifest of room `corpus`."""
    ruleset = resolve(recipe.corpus)
    tally = Tally()
    objects: list[ObjectRef] = []
    for shard, numbers in enumerate(shards):
        objects += _shard(store, recipe, ruleset, tally, shard, numbers)
    facts = report_facts(recipe, ruleset, tally, NO_CLUSTERS)
    objects += put_report(store, "5" * 16, recipe.name, facts, cost_facts([], tally.pages, 0.0))
    counters = {"documents": tally.kept.total(), "pages_in": tally.pages}
    kept = ("funnel", "languages", "rejects_by_language")
    return commit_manifest(
        store,
        Manifest("corpus", "5" * 64, objects=tuple(objects), counters=counters,
                 facts={k: facts[k] for k in kept}),
    )  # fmt: skip


def _shard(
    store: Store, recipe: Recipe, ruleset: Ruleset, tally: Tally, shard: int, numbers: range
) -> list[ObjectRef]:
    names = [f"{s}.{r.measure}" for s in ruleset.steps for r in RULES.get(s, ())]
    columns = list(dict.fromkeys(["language.score", *names]))
    with (
        TableWriter(DOCUMENTS) as documents,
        TableWriter(REJECTS) as rejects,
        TableWriter(values_schema(columns)) as values,
    ):
        for number in numbers:
            code, source = _CODES[number % 5], f"crawl/part-{shard}.warc.gz"
            score = (0.5, 0.7, 0.8, 0.9, 0.95)[number // 5 % 5]
            measured = {"language.score": score}
            name = document_id(source, number)
            where, date = (source, number), "2026-03-01T00:00:00Z"
            url, text = f"https://{code}.test/{number}", f"page {number}\x1b[31m in {code}"
            tally.pages += 1
            failed: tuple[str, str, float | None, str] | None = None
            if recipe.corpus.languages and code not in recipe.corpus.languages:
                failed = ("language", "other_language", score, "")
            elif score < recipe.corpus.language_threshold:
                failed = ("language", "uncertain_language", score, "")
            else:
                rules = ruleset.for_language(code)
                measured |= values_of(number, ruleset, code)
                if found := verdict(measured, rules):
                    failed = (found.rule.step, found.rule.reason, found.value, rules.pack)
                elif number % 10 == 0:
                    failed = ("duplicates", "duplicate", None, "f" * 32)
            values.append(name, code, *map(measured.get, columns))
            if failed:
                stage, reason, value, detail = failed
                tally.reject(stage, reason, code)
                rejects.append(name, url, code, stage, reason, value, *where, date, detail, text)
            else:
                tally.keep(code, len(text))
                documents.append(
                    *(name, url, text, code, score, *where, date),
                    *(3, len(text), name, "train"),
                )
        return [
            *documents.finish(store, f"corpus/documents/{shard:016x}-00000.parquet"),
            *rejects.finish(store, f"corpus/rejects/{shard:016x}-00000.parquet"),
            *values.finish(store, f"corpus/values/{shard:016x}-00000.parquet"),
        ]
