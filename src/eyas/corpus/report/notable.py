"""What a reader of the report should look at first, as plain sentences.

In: the report's facts; out: at most a dozen notices, the gravest first. They are rules of thumb on
counts, each of them for a fault that was seen in a real corpus: English rules that eat another
language, a filter that matches nothing at all, a crawl that arrived damaged, one page on a thousand
sites. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Notice", "notices"]

_MOST = 12
_ENOUGH = 50  # documents, before a share says anything
_NEARLY_ALL = 0.8  # of all pages, or of a language's documents, to one step
_LARGE = 0.25  # to one rule
_TIMES = 3.0  # as often as in the other languages
_DAMAGED = 0.01  # of the records
_CLUSTER = 0.02  # of the documents in one cluster
_NEVER = 1000  # documents seen by a step that dropped none
_DAMAGE = ("broken", "truncated")
_KILLED = ("ran_away", "killed_worker")
_BEFORE_FILTERS = frozenset({"read", "url", "extract", "language"})
_AFTER_FILTERS = frozenset({"duplicates", "removed"})
_Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Notice:
    """A sentence, and the share of all that it is about, by which notices are ordered."""

    weight: float
    sentence: str


def notices(facts: _Facts) -> list[Notice]:
    """The gravest first. `facts` are `report_facts`."""
    if not facts["funnel"] or not facts["funnel"][0]["in"]:
        return [Notice(1.0, "No page came in.")]
    found = [*_failing(facts), *_damage(facts), *_eaten(facts), *_idle(facts), *_huge(facts)]
    return sorted(found, key=lambda n: (-n.weight, n.sentence))[:_MOST]


def _failing(facts: _Facts) -> Iterator[Notice]:
    """A stage before the filters that leaves almost nothing."""
    for row in facts["funnel"]:
        lost = (row["in"] - row["out"]) / (row["in"] or 1)
        if row["stage"] in ("read", "url", "extract") and lost >= _NEARLY_ALL:
            reason = max(row["reasons"], key=lambda r: row["reasons"][r]).replace("_", " ")
            yield Notice(
                lost, f"{row['stage']} drops {lost:.0%} of what reaches it, most for {reason}."
            )


def _damage(facts: _Facts) -> Iterator[Notice]:
    pages = facts["funnel"][0]["in"]
    reasons: dict[str, int] = {}
    for row in facts["funnel"]:
        if row["stage"] in ("read", "extract"):
            reasons |= row["reasons"]
    damaged = sum(reasons.get(r, 0) for r in _DAMAGE)
    if damaged >= _DAMAGED * pages:
        share = damaged / pages
        yield Notice(
            share, f"{share:.1%} of the records are broken or truncated: fetch those files again."
        )
    killed = sum(reasons.get(r, 0) for r in _KILLED)
    if killed:
        yield Notice(
            killed / pages,
            f"{killed:,} pages made extraction run away or killed its worker; they are dropped.",
        )


def _eaten(facts: _Facts) -> Iterator[Notice]:
    """Languages of which a step leaves little, or one rule takes much more than of the others."""
    stages = [row["stage"] for row in facts["funnel"]]
    steps = [s for s in stages if s not in _BEFORE_FILTERS | _AFTER_FILTERS]
    for step in steps:
        reached = _reached(facts, stages[stages.index(step) :])
        for name, documents in reached.items():
            if documents < _ENOUGH:
                continue
            reasons = facts["rejects_by_language"].get(name, {}).get(step, {})
            lost = sum(reasons.values()) / documents
            found = [_much_more(facts, reached, name, (step, r), n) for r, n in reasons.items()]
            if any(found):
                yield from filter(None, found)
            elif lost >= _NEARLY_ALL:
                yield Notice(
                    lost * documents / sum(reached.values()),
                    f"{name}: {step} drops {lost:.0%} of the {documents:,} documents that "
                    "reach it.",
                )


def _reached(facts: _Facts, stages: Iterable[str]) -> dict[str, int]:
    """By language, the documents that came to the first of these stages."""
    kept, rejects = facts["languages"], facts["rejects_by_language"]
    return {
        name: kept.get(name, {"documents": 0})["documents"]
        + sum(sum(rejects.get(name, {}).get(stage, {}).values()) for stage in stages)
        for name in sorted({*kept, *rejects} - {""})
    }


def _much_more(
    facts: _Facts, reached: Mapping[str, int], name: str, where: tuple[str, str], n: int
) -> Notice | None:
    """If this rule takes a large part of a language, and a much smaller one of the others."""
    step, reason = where
    runs = {c for p in facts["packs"].values() if step in p["steps"] for c in p["languages"]}
    others = [c for c in reached if c != name and c in runs]
    documents, elsewhere = reached[name], sum(reached[c] for c in others)
    if elsewhere < _ENOUGH:
        return None
    rejects = facts["rejects_by_language"]
    theirs = sum(rejects.get(c, {}).get(step, {}).get(reason, 0) for c in others) / elsewhere
    share = n / documents
    if share < max(_LARGE, _TIMES * theirs):
        return None
    return Notice(
        share * documents / (documents + elsewhere),
        f"{name}: {share:.0%} of the {documents:,} documents that reach {step} are dropped for "
        f"{reason.replace('_', ' ')} ({theirs:.1%} of the other languages'). Read some of them.",
    )


def _idle(facts: _Facts) -> Iterator[Notice]:
    for row in facts["funnel"]:
        ours = row["stage"] not in {"read", "extract", *_AFTER_FILTERS}
        if ours and row["in"] >= _NEVER and row["in"] == row["out"]:
            yield Notice(
                0.0, f"{row['stage']} saw {row['in']:,} documents and dropped none: is it set up?"
            )


def _huge(facts: _Facts) -> Iterator[Notice]:
    """One cluster that holds a good part of the corpus."""
    documents = next((r["in"] for r in facts["funnel"] if r["stage"] == "duplicates"), 0)
    for row in facts["clusters"]["largest"][:1]:
        if documents >= _NEVER and row["documents"] >= _CLUSTER * documents:
            share = row["documents"] / documents
            yield Notice(
                share,
                f"One cluster of duplicates holds {row['documents']:,} documents, {share:.1%} of "
                "those that passed the filters.",
            )
