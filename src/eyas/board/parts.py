"""What several sections are built from: a section, tables, bars, numbers as people write them."""

from __future__ import annotations

from collections.abc import Sequence

from eyas.corpus import Markup, el, join

__all__ = ["bar", "missing", "name", "number", "percent", "section", "table"]

Cell = object


def section(title: str, lead: object, *body: object) -> Markup:
    """A heading and its one-sentence finding at the left, the matter at the right."""
    return el(
        "section",
        el("h2", title),
        el("p", lead, class_="lead") if lead else None,
        el("div", *body, class_="body"),
    )


def missing(sentence: str) -> Markup:
    """A part that the store does not have, said so."""
    return el("p", sentence, class_="missing")


def name(value: object) -> Markup:
    """A word from outside, isolated so that its direction does not turn its neighbours."""
    return el("bdi", value)


def number(value: object, digits: int = 0) -> str:
    """1,234 or, with digits, 1,234.50; an em dash for what is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return "—"
    return f"{value:,.{digits}f}"


def percent(part: float, whole: float) -> str:
    """`4.2 %`; `<0.1 %` for a little."""
    if not whole:
        return "—"
    share = 100 * part / whole
    return "<0.1 %" if 0 < share < 0.1 else f"{share:.1f} %" if share < 99.95 else "100 %"


def bar(*shares: tuple[float, str]) -> Markup:
    """A bar of parts: (share of the full width between 0 and 1, class)."""
    parts = [
        el("i", class_=style or None, style=f"width:{min(1.0, max(0.0, share)):.2%}")
        for share, style in shares
        if share > 0
    ]
    return el("div", *parts, class_="bar")


def table(
    heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[Cell]], total: bool = False
) -> Markup:
    """Heads are (text, class): class n is a number, w is wide and goes away on a telephone. The
    last row is a sum if `total`."""
    line = [el("th", title, class_=style or None, scope="col") for title, style in heads]
    body = []
    for index, row in enumerate(rows):
        cells = [
            el("td", cell, class_=style or None)
            for cell, (_, style) in zip(row, heads, strict=True)
        ]
        last = total and index == len(rows) - 1
        body.append(el("tr", join(cells), class_="sum" if last else None))
    return el(
        "div",
        el("table", el("thead", el("tr", join(line))), el("tbody", join(body))),
        class_="scroll",
    )
