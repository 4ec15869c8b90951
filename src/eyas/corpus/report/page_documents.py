"""The parts of the report that show documents: clusters of duplicates, samples kept and dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .markup import Markup, el
from .page_figures import curve, short
from .page_words import percent, plain, ranked

__all__ = ["duplicates_part", "samples_part"]

_Facts = Mapping[str, Any]
_OPEN_GROUPS = 3
_SIZES = (
    (1000, "1,000 or more"),
    (100, "100 to 999"),
    (10, "10 to 99"),
    (5, "5 to 9"),
    (4, "4"),
    (3, "3"),
    (2, "2"),
)


def duplicates_part(facts: _Facts) -> Markup:
    """Clusters by size, the chance to find a pair, the largest ones."""
    clusters, settings = facts["clusters"], facts["settings"]
    row = next(r for r in facts["funnel"] if r["stage"] == "duplicates")
    gone = row["reasons"].get("duplicate", 0)
    lead = (
        f"{clusters['clusters']:,} clusters of near-duplicates; of each, the document with the "
        f"lowest id stays and the others go: {gone:,} of {row['in']:,} documents "
        f"({percent(gone, row['in'])}). {settings['dedup_bands']} bands of "
        f"{settings['dedup_rows']} rows over shingles of {settings['dedup_shingle']} words."
    )
    sizes = el("div", el("h3", "Clusters by size"), _sizes(clusters["sizes"]))
    chance = el(
        "div", el("h3", "Chance that a pair is found, by its similarity"),
        curve(facts["match_probability"]),
    )  # fmt: skip
    return Markup(
        el("p", lead, class_="lead")
        + el("div", sizes, chance, class_="pair")
        + (_largest(clusters["largest"]) if clusters["largest"] else "")
    )


def _sizes(sizes: Iterable[Sequence[int]]) -> Markup:
    counts: dict[str, int] = {}
    for size, n in sizes:
        label = next(text for low, text in _SIZES if size >= low)
        counts[label] = counts.get(label, 0) + n
    if not counts:
        return el("p", "There are none.", class_="missing")
    most = max(counts.values())
    cells = [
        el("span", f"{label} documents")
        + el("div", el("i", class_="keep", style=f"width:{100 * n / most:.1f}%"), class_="bar")
        + el("span", f"{n:,}")
        for label, n in counts.items()
    ]
    return el("div", [Markup(cell) for cell in cells], class_="sizes")


def _largest(largest: Iterable[_Facts]) -> Markup:
    rows = [
        el(
            "tr",
            el("td", f"{row['documents']:,}", class_="n"),
            el(
                "td",
                el("bdi", row["url"]) if row.get("url") else el("code", row["cluster"]),
                el("div", row["text"], class_="soft", dir="auto") if row.get("text") else None,
                class_="url",
            ),
        )
        for row in largest
    ]
    heads = el("tr", el("th", "documents", class_="n"), el("th", "the one that stays"))
    return Markup(el("h3", "Largest clusters") + el("table", heads, rows, class_="narrow"))


def samples_part(facts: _Facts) -> Markup:
    """Kept documents by language, dropped ones by stage and reason."""
    samples = facts["samples"]
    kept = samples.get("kept", ())
    counts = {code: row["documents"] for code, row in facts["languages"].items()}
    order = sorted(kept, key=lambda r: (-counts.get(r["language"], 0), r["language"], r["id"]))
    lead = (
        "Drawn by hash of the document's id, so no one chose them. The whole of any document: "
        "eyas corpus STORE inspect."
    )
    parts = [el("p", lead, class_="lead"), el("h3", "Kept, by language")]
    parts.append(el("div", [_card(facts, "kept", row) for row in order], class_="cards"))
    for row in facts["funnel"]:
        groups = [(reason, n) for reason, n in ranked(row["reasons"])]
        if groups:
            parts.append(el("h3", f"Dropped: {plain(row['stage'])}"))
        for number, (reason, n) in enumerate(groups):
            parts.append(_group(facts, f"{row['stage']}/{reason}", reason, n, number))
    return Markup("".join(parts))


def _group(facts: _Facts, group: str, reason: str, count: int, number: int) -> Markup:
    cards = [_card(facts, group, row) for row in facts["samples"].get(group, ())]
    return el(
        "details",
        el("summary", plain(reason), " ", el("span", f"{count:,}", class_="soft")),
        el("div", cards, class_="cards"),
        class_="group",
        open="" if number < _OPEN_GROUPS and cards else None,
    )


def _card(facts: _Facts, group: str, row: _Facts) -> Markup:
    notes: list[object] = [el("b", el("bdi", row["language"]))] if row.get("language") else []
    notes += [" ", el("bdi", row["url"])]
    failed = _failed(facts, group, row)
    said = el("div", failed, class_="failed") if failed else None
    body = el("p", row["text"], dir="auto") if row.get("text") else None
    return el("article", el("header", notes, said), body)


def _failed(facts: _Facts, group: str, row: _Facts) -> str:
    """What failed and what would have passed."""
    stage, _, reason = group.partition("/")
    value, detail = row.get("value"), str(row.get("detail", ""))
    if stage == "duplicates":
        return f"duplicate of {detail}" if detail else ""
    rule = next((r for r in facts["rules"] if (r["step"], r["reason"]) == (stage, reason)), None)
    packs = facts["packs"]
    pack = next((p for p in packs.values() if row.get("language") in p["languages"]), None)
    said = "" if value is None else short(value)
    if rule and pack and said and pack["limits"].get(rule["key"]) is not None:
        limit = short(float(pack["limits"][rule["key"]]))
        return (
            f"{said}; kept from {limit} on"
            if rule["side"] == "low"
            else f"{said}; kept up to {limit}"
        )
    if rule or not detail:
        return said
    return detail if not said or said in detail else f"{said}, {detail}"
