"""What happened to the pages, in numbers that add up over shards: the funnel, histograms, samples.

A `Tally` is filled by one shard and merged with others in any order with the same result: counts
add, and the samples kept are those with the lowest ids, which is a random choice that everyone
makes alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BINS", "STAGES", "Tally", "bin_of", "bin_range", "funnel"]

STAGES = ("read", "extract", "language", "repetition", "quality", "duplicates")
BINS = 40
_SAMPLES = 4
_EXCERPT = 300
_RANGES = {"words": (1.0, 5.5), "word_length": (0.0, 20.0), "stop_words": (0.0, 20.0)}
_SHARES = {"letter_words": (0.0, 1.0), "bullet_lines": (0.0, 1.0), "ellipsis_lines": (0.0, 1.0)}


@dataclass
class Tally:
    """Counts of one or many shards. `rejects` counts (stage, reason, language); `kept` and
    `kept_bytes` count by language; `samples` holds rows by "stage/reason" or "kept"."""

    pages: int = 0
    rejects: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    kept_bytes: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, list[int]] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def reject(self, stage: str, reason: str, language: str = "") -> None:
        self.rejects[stage, reason, language] += 1

    def keep(self, language: str, size: int) -> None:
        self.kept[language] += 1
        self.kept_bytes[language] += size

    def measured(self, values: Mapping[str, float]) -> None:
        """Values of one document into the histograms."""
        for name, value in values.items():
            bins = self.histograms.get(name)
            if bins is None:
                bins = self.histograms[name] = [0] * BINS
            bins[bin_of(name, value)] += 1

    def sample(self, group: str, row: dict[str, Any]) -> None:
        """Offer a document (`id`, `url`, `text`, …) as a sample of its group."""
        held = self.samples.setdefault(group, [])
        if len(held) == _SAMPLES and row["id"] >= held[-1]["id"]:
            return
        held.append(row | {"text": str(row.get("text", ""))[:_EXCERPT]})
        held.sort(key=lambda r: str(r["id"]))
        del held[_SAMPLES:]

    def facts(self) -> dict[str, Any]:
        """JSON-able; the inverse is `merged`."""
        return {
            "pages": self.pages,
            "rejects": [[*key, n] for key, n in sorted(self.rejects.items())],
            "kept": dict(sorted(self.kept.items())),
            "kept_bytes": dict(sorted(self.kept_bytes.items())),
            "histograms": dict(sorted(self.histograms.items())),
            "samples": dict(sorted(self.samples.items())),
        }

    @classmethod
    def merged(cls, many: Iterable[Mapping[str, Any]]) -> Tally:
        """From the facts of many shards."""
        total = cls()
        for facts in many:
            total.pages += facts["pages"]
            total.rejects.update({(s, r, lang): n for s, r, lang, n in facts["rejects"]})
            total.kept.update(facts["kept"])
            total.kept_bytes.update(facts["kept_bytes"])
            for name, bins in facts["histograms"].items():
                held = total.histograms.setdefault(name, [0] * BINS)
                total.histograms[name] = [a + b for a, b in zip(held, bins, strict=True)]
            for group, rows in facts["samples"].items():
                for row in rows:
                    total.sample(group, row)
        return total


def funnel(
    pages: int, rejects: Mapping[tuple[str, str, str], int], kept: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Per stage: pages in and out, rejects by reason, and what leaves it by language (known from
    the language stage on)."""
    rows: list[dict[str, Any]] = []
    for stage in STAGES:
        reasons: Counter[str] = Counter()
        for (where, reason, _), n in rejects.items():
            if where == stage:
                reasons[reason] += n
        into = rows[-1]["out"] if rows else pages
        rows.append(
            {
                "stage": stage,
                "in": into,
                "out": into - reasons.total(),
                "reasons": dict(sorted(reasons.items())),
                "languages": _leaving(stage, rejects, kept),
            }
        )
    return rows


def _leaving(
    stage: str, rejects: Mapping[tuple[str, str, str], int], kept: Mapping[str, int]
) -> dict[str, int]:
    """Kept at the end plus what later stages reject, by language."""
    if stage not in STAGES[2:]:
        return {}
    later = STAGES[STAGES.index(stage) + 1 :]
    count = Counter(kept)
    for (where, _, language), n in rejects.items():
        if where in later:
            count[language] += n
    return {language: n for language, n in sorted(count.items()) if n}


def bin_range(measure: str) -> tuple[float, float]:
    """The values that a histogram spans; those of `words` are powers of ten."""
    return _RANGES.get(measure) or _SHARES.get(measure) or (0.0, 0.5)


def bin_of(measure: str, value: float) -> int:
    """The bin of a value; what lies outside goes to the first or last."""
    low, high = bin_range(measure)
    if measure == "words":
        value = math.log10(max(value, 1))
    return min(BINS - 1, max(0, int((value - low) / (high - low) * BINS)))
