"""Stage `corpus.filter`: the texts of one input shard to candidates, values and rejects.

The language decides first, then the rules of its pack, as `filter_text` applies them. Every value
that a rule reads is measured and kept, also of documents that are dropped, so that `what-if` can
answer without a run; what the language dropped has its score only. Shares nothing and reads no
crawl: a changed threshold begins here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from eyas.corpus.documents import (
    CANDIDATES,
    REJECTS,
    TEXTS,
    TableWriter,
    read_tables,
    values_schema,
)
from eyas.corpus.report.funnel import Tally
from eyas.corpus.steps.filters import filter_text
from eyas.corpus.steps.packs import LanguageRules, Ruleset
from eyas.corpus.steps.rules import RULES
from eyas.store import Store
from eyas.work import Shard, ShardResult, Stage, shard_key

__all__ = ["SCORE", "run_shard", "value_names"]

SCORE = "language.score"


def value_names(steps: Iterable[str]) -> list[str]:
    """Columns of the values that a corpus with these steps measures."""
    rules = [rule for step in steps for rule in RULES.get(step, ())]
    return list(dict.fromkeys([SCORE, *(f"{rule.step}.{rule.measure}" for rule in rules)]))


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Input: a texts object. Settings: languages (empty: all) and ruleset.

    Objects: candidates, values and rejects, as far as there are any; facts: the shard's tally.
    """
    name = shard_key(stage, shard)[:16]
    ruleset = Ruleset.from_json(stage.settings["ruleset"])
    columns = value_names(ruleset.steps)
    with (
        TableWriter(CANDIDATES) as candidates,
        TableWriter(values_schema(columns)) as values,
        TableWriter(REJECTS) as rejects,
    ):
        made = _Made(stage.settings, ruleset, columns, candidates, values, rejects)
        for table in read_tables(store, shard.inputs[0], TEXTS.names):
            for row in table.to_pylist():
                made.take(row)
        objects = (
            *candidates.finish(store, "corpus/candidates/"),
            *values.finish(store, f"corpus/values/{name}-00000.parquet"),
            *rejects.finish(store, f"corpus/rejects/{name}-00000.parquet"),
        )
    counters = {"documents": made.documents, "bytes": made.bytes}
    return ShardResult(objects, counters, made.tally.facts())


class _Made:
    """What a shard has made so far."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        ruleset: Ruleset,
        columns: list[str],
        candidates: TableWriter,
        values: TableWriter,
        rejects: TableWriter,
    ) -> None:
        self.tally = Tally()
        self.documents = self.bytes = 0
        self._languages = frozenset(settings["languages"])
        self._rules = cache(ruleset.for_language)
        self._columns = columns
        self._candidates = candidates
        self._values = values
        self._rejects = rejects

    def take(self, row: Mapping[str, Any]) -> None:
        """One text to a candidate or a reject."""
        self.documents += 1
        self.bytes += len(row["text"].encode())
        language, score = row["language"], row["language_score"]
        rules = self._rules(language)
        reason = self._language_reason(language, score, rules)
        if reason:
            self._measured(row, {SCORE: score}, rules.pack)
            self._reject(row, "language", reason, score, "")
            return
        done = filter_text(row["text"], rules)
        self._measured(row, {SCORE: score} | done.values, rules.pack)
        if done.failure:
            rule = done.failure.rule
            self._reject(row, rule.step, rule.reason, done.failure.value, rules.pack)
        else:
            self._keep(row, done.text, done.words)

    def _language_reason(self, language: str, score: float, rules: LanguageRules) -> str:
        if self._languages and language not in self._languages:
            return "other_language"
        least = rules.limits["language"]["threshold"]
        return "uncertain_language" if score < least else ""

    def _measured(self, row: Mapping[str, Any], values: Mapping[str, float], pack: str) -> None:
        self.tally.measured(values, pack)
        self._values.append(row["id"], row["language"], *map(values.get, self._columns))

    def _reject(
        self, row: Mapping[str, Any], step: str, reason: str, value: float, pack: str
    ) -> None:
        self.tally.reject(step, reason, row["language"])
        sample = {k: row[k] for k in ("id", "url", "language", "text")} | {"value": value}
        self.tally.sample(f"{step}/{reason}", sample)
        self._rejects.append(
            *(row["id"], row["url"], row["language"], step, reason, value),
            *(row["source"], row["offset"], row["date"], pack, row["text"]),
        )

    def _keep(self, row: Mapping[str, Any], text: str, words: int) -> None:
        self._candidates.append(
            *(row["id"], row["url"], text, row["language"], row["language_score"]),
            *(row["source"], row["offset"], row["date"], words, len(text.encode())),
        )
