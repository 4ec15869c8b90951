"""What happened to the pages, in numbers that add up over shards: the funnel, histograms, samples.

A `Tally` is filled by one shard and merged with others in any order with the same result: counts
add, and the samples kept are those with the lowest ids, which is a random choice that everyone
makes alike. Its size depends on how many reasons, packs and languages there are, never on how many
pages. Values are binned on an axis of their own kind: shares by their square root, so that a
threshold of .01 has bins on both sides; counts by their logarithm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BINS",
    "Tally",
    "axis_of",
    "bin_of",
    "funnel",
    "funnel_order",
    "place",
]

BINS = 40
_SAMPLES = 3  # of a reason
_KEPT_SAMPLES = 2  # of a language
_EXCERPT = 400
_BEFORE = ("read", "url", "extract", "language")
_AFTER = ("removed", "duplicates")
_COUNTS = frozenset({"words", "stop_words", "sentences", "lorem_ipsum", "curly_brackets"})
_COUNTS |= {"bad_words"}
_LENGTHS = frozenset({"word_length"})


@dataclass
class Tally:
    """Counts of one or many shards. `rejects` counts (stage, reason, language); `kept` and
    `kept_bytes` count by language; `histograms` hold bins by value name and language pack;
    `samples` rows by "stage/reason", or "kept"."""

    pages: int = 0
    rejects: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    kept_bytes: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def reject(self, stage: str, reason: str, language: str = "") -> None:
        self.rejects[stage, reason, language] += 1

    def keep(self, language: str, size: int) -> None:
        """A document of the corpus, with its text's size in bytes."""
        self.kept[language] += 1
        self.kept_bytes[language] += size

    def measured(self, values: Mapping[str, float], pack: str) -> None:
        """Values of one document into the histograms of its language pack; those that are not a
        number (nothing was measured) into none."""
        for name, value in values.items():
            if math.isnan(value):
                continue
            packs = self.histograms.setdefault(name, {})
            bins = packs.get(pack)
            if bins is None:
                bins = packs[pack] = [0] * BINS
            bins[bin_of(name, value)] += 1

    def sample(self, group: str, row: Mapping[str, Any]) -> None:
        """Offer a document as a sample of its group, "kept" or "stage/reason": `id`, `url`,
        `language`, `text` (an excerpt is taken), and where there are any `value` and `detail`.
        Kept documents are sampled by language."""
        held = self.samples.setdefault(group, [])
        peers = [r for r in held if r["language"] == row["language"]] if group == "kept" else held
        full = len(peers) == (_KEPT_SAMPLES if group == "kept" else _SAMPLES)
        if full and row["id"] >= peers[-1]["id"]:
            return
        if full:
            held.remove(peers[-1])
        held.append({**row, "text": str(row.get("text") or "")[:_EXCERPT]})
        held.sort(key=lambda r: str(r["id"]))

    def facts(self) -> dict[str, Any]:
        """JSON-able; the inverse is `merged`."""
        return {
            "pages": self.pages,
            "rejects": [[*key, n] for key, n in sorted(self.rejects.items())],
            "kept": dict(sorted(self.kept.items())),
            "kept_bytes": dict(sorted(self.kept_bytes.items())),
            "histograms": {
                name: dict(sorted(packs.items())) for name, packs in sorted(self.histograms.items())
            },
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
            for name, packs in facts["histograms"].items():
                total._add_bins(name, packs)
            for group, rows in facts["samples"].items():
                for row in rows:
                    total.sample(group, row)
        return total

    def _add_bins(self, name: str, packs: Mapping[str, Sequence[int]]) -> None:
        mine = self.histograms.setdefault(name, {})
        for pack, bins in packs.items():
            held = mine.get(pack)
            mine[pack] = [a + b for a, b in zip(held, bins, strict=True)] if held else list(bins)


def funnel_order(steps: Sequence[str]) -> tuple[str, ...]:
    """Every stage that can drop a page, in the order in which they see it. `steps` are the
    recipe's, of which `url` comes before extraction and `language` right after it."""
    before = (s for s in _BEFORE if s != "url" or s in steps)
    return (*before, *(s for s in steps if s not in _BEFORE), *_AFTER)


def funnel(
    order: Sequence[str],
    pages: int,
    rejects: Mapping[tuple[str, str, str], int],
    kept: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Per stage of `order`: pages in and out, rejects by reason, and what leaves it by language
    (known from the language stage on)."""
    rows: list[dict[str, Any]] = []
    known = order.index("language")
    for number, stage in enumerate(order):
        reasons: Counter[str] = Counter()
        for (where, reason, _), n in rejects.items():
            if where == stage:
                reasons[reason] += n
        into = rows[-1]["out"] if rows else pages
        later = order[number + 1 :]
        rows.append(
            {
                "stage": stage,
                "in": into,
                "out": into - reasons.total(),
                "reasons": dict(sorted(reasons.items())),
                "languages": _leaving(later, rejects, kept) if number >= known else {},
            }
        )
    return rows


def _leaving(
    later: Sequence[str], rejects: Mapping[tuple[str, str, str], int], kept: Mapping[str, int]
) -> dict[str, int]:
    """Kept at the end plus what later stages reject, by language."""
    count = Counter(kept)
    for (where, _, language), n in rejects.items():
        if where in later:
            count[language] += n
    return {language: n for language, n in sorted(count.items()) if n}


def axis_of(name: str) -> str:
    """The kind of axis that a value is drawn on: "share" (0 to 1), "count" or "length"."""
    measure = name.rpartition(".")[2]
    return "count" if measure in _COUNTS else "length" if measure in _LENGTHS else "share"


def place(axis: str, value: float) -> float:
    """Where a value lies on its axis, 0 to 1; what is outside lies at the ends. Shares by their
    square root, counts from 0 to 10^6 by log(1 + n), lengths from 0 to 20 as they are."""
    value = max(value, 0.0)
    if axis == "count":
        return min(1.0, math.log10(1 + value) / 6)
    return min(1.0, value / 20 if axis == "length" else math.sqrt(value))


def bin_of(name: str, value: float) -> int:
    """The bin of a value; what lies outside goes to the first or last."""
    return min(BINS - 1, int(place(axis_of(name), value) * BINS))
