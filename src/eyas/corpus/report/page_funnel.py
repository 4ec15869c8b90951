"""The parts of the report that count pages: the funnel, and what it took of every language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eyas.recipe import format_bytes

from .markup import Markup, el
from .page_words import percent, plain, ranked

__all__ = ["funnel_part", "languages_part"]

_Facts = Mapping[str, Any]
_LANGUAGES = 60
_KNOWN_FROM = "language"


def funnel_part(facts: _Facts) -> Markup:
    """What is left after every stage, what it dropped and why."""
    most = facts["funnel"][0]["in"] or 1
    shown = [r for r in facts["funnel"] if r["stage"] != "removed" or r["reasons"]]
    rows = [_funnel_row(row, most) for row in shown]
    legend = [
        el("span", el("i", class_="keep"), "left after the stage"),
        el("span", el("i", class_="drop"), "dropped by it"),
    ]
    lead = "In the order in which a page meets the stages; a page is counted where it first fails."
    return Markup(
        el("p", lead, class_="lead")
        + el("p", legend, class_="legend")
        + el("ol", rows, class_="funnel")
    )


def _funnel_row(row: _Facts, most: int) -> Markup:
    gone = row["in"] - row["out"]
    bar = [
        el("i", class_="keep", style=f"width:{100 * row['out'] / most:.3f}%"),
        el("i", class_="drop", style=f"width:{100 * gone / most:.3f}%"),
    ]
    lost = f"−{gone:,} ({percent(gone, row['in'])})" if gone else "–"
    return el(
        "li",
        el("b", plain(row["stage"])),
        el("div", bar, class_="bar"),
        el("span", f"{row['out']:,}", class_="n"),
        el("span", lost, class_="n gone" if gone else "n soft"),
        _reasons(row["reasons"]) if gone else None,
    )


def _reasons(reasons: Mapping[str, int]) -> Markup:
    said: list[object] = []
    for reason, n in ranked(reasons):
        said += (
            [" · ", el("span", f"{plain(reason)} {n:,}")]
            if said
            else [el("span", f"{plain(reason)} {n:,}")]
        )
    return el("p", said, class_="why")


def languages_part(facts: _Facts) -> Markup:
    """A row a language: what each stage took of what reached it."""
    stages = [row["stage"] for row in facts["funnel"]]
    stages = [s for s in stages[stages.index(_KNOWN_FROM) :] if _dropped_by(facts, s)]
    packs = {code: name for name, pack in facts["packs"].items() for code in pack["languages"]}
    rows = [
        (code, packs.get(code, ""), *_language_counts(facts, code, stages))
        for code in {*facts["languages"], *facts["rejects_by_language"]} - {""}
    ]
    rows.sort(key=lambda r: (-r[2], r[0]))
    shown = [_language_row(facts, stages, *row) for row in rows[:_LANGUAGES]]
    if rest := rows[_LANGUAGES:]:
        lost = [sum(r[4][i] for r in rest) for i in range(len(stages))]
        counts = (sum(r[2] for r in rest), sum(r[3] for r in rest), lost)
        shown.append(_language_row(facts, stages, f"{len(rest)} more", "", *counts))
    heads = [
        el("th", "labelled"), el("th", "pack", class_="pack"), el("th", "pages", class_="n"),
        [el("th", plain(s), class_="n") for s in stages],
        el("th", "kept", class_="n"), el("th", "", class_="n"), el("th", "text", class_="n"),
        el("th", "mostly dropped for"),
    ]  # fmt: skip
    lead = (
        "Pages as they were labelled, and the share that each stage dropped of those that "
        "reached it. The darker a cell, the more it took; it is empty where the language's pack "
        "leaves the step out, or nothing reached it."
    )
    table = el("table", el("tr", heads), shown, class_="heat")
    return Markup(el("p", lead, class_="lead") + el("div", table, class_="scroll", tabindex="0"))


def _language_counts(facts: _Facts, code: str, stages: Sequence[str]) -> tuple[int, int, list[int]]:
    """Pages labelled so, documents kept, and dropped by stage."""
    dropped = facts["rejects_by_language"].get(code, {})
    lost = [sum(dropped.get(s, {}).values()) for s in stages]
    kept = facts["languages"].get(code, {"documents": 0})["documents"]
    return kept + sum(lost), kept, lost


def _language_row(
    facts: _Facts,
    stages: Sequence[str],
    code: str,
    pack: str,
    pages: int,
    kept: int,
    lost: Sequence[int],
) -> Markup:
    cells, left = [], pages
    runs = facts["packs"].get(pack, {}).get("steps", stages)
    runs = {*runs, "language", "duplicates", "removed"}
    for stage, gone in zip(stages, lost, strict=True):
        if stage not in runs or not left:
            cells.append(el("td", "", class_="n"))
            continue
        share = f"--share:{100 * gone / left:.1f}%" if gone else None
        cells.append(el("td", percent(gone, left), class_="heat", style=share))
        left -= gone
    size = facts["languages"].get(code, {"bytes": 0})["bytes"]
    reasons: Counter[str] = Counter()
    for stage in stages:
        for reason, n in facts["rejects_by_language"].get(code, {}).get(stage, {}).items():
            reasons[
                f"{stage}: {plain(reason)}" if plain(reason) != "duplicate" else "duplicate"
            ] += n
    mostly = ", ".join(f"{reason} {n:,}" for reason, n in ranked(reasons)[:1])
    return el(
        "tr",
        el("td", el("bdi", code)),
        el("td", pack, class_="soft pack"),
        el("td", f"{pages:,}", class_="n"),
        cells,
        el("td", f"{kept:,}", class_="n"),
        el("td", percent(kept, pages), class_="n"),
        el("td", format_bytes(size) if size else "–", class_="n"),
        el("td", mostly, class_="soft line"),
    )


def _dropped_by(facts: _Facts, stage: str) -> bool:
    return any(r["stage"] == stage and r["reasons"] for r in facts["funnel"])
