"""The report as one HTML page that loads nothing: its own styles, drawings in SVG, no script.

In: the report's facts and the cost; out: the page. Everything that comes from pages (URLs, texts,
labels) is hostile: it is escaped, shown as text and never as a link, and the page forbids itself
every resource. Text takes its own direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eyas.recipe import format_bytes, format_seconds

from .markup import Markup, el
from .notable import notices
from .page_documents import duplicates_part, samples_part
from .page_funnel import funnel_part, languages_part
from .page_run import cost_part, settings_part
from .page_style import CSS
from .page_values import values_part
from .page_words import dollars, percent

__all__ = ["report_page"]

_Facts = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_page(name: str, facts: _Facts, cost: _Facts) -> str:
    """The whole page. `facts` are `report_facts`, `cost` is `cost_facts`."""
    sections = (
        ("funnel", "Funnel", funnel_part(facts)),
        ("languages", "Languages", languages_part(facts)),
        ("values", "Measured values", values_part(facts)),
        ("duplicates", "Duplicates", duplicates_part(facts)),
        ("samples", "Samples", samples_part(facts)),
        ("cost", "Cost and throughput", cost_part(cost)),
        ("settings", "Settings", settings_part(facts)),
    )
    links = [el("a", title, href=f"#{anchor}") for anchor, title, _ in sections]
    body = [el("section", el("h2", title), part, id=anchor) for anchor, title, part in sections]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"Corpus of {name}"),
        el("style", Markup(CSS)),
    )
    main = el("main", _head(name, facts, cost), el("nav", links, aria_label="Sections"), body)
    return f"<!doctype html>\n{el('html', head, el('body', main), lang='en')}\n"


def _head(name: str, facts: _Facts, cost: _Facts) -> Markup:
    first, last = facts["funnel"][0]["in"], facts["funnel"][-1]["out"]
    size = sum(row["bytes"] for row in facts["languages"].values())
    total = cost["total"]
    figures = [
        ("pages in", f"{first:,}"),
        ("documents out", f"{last:,}"),
        ("kept", percent(last, first)),
        ("text", format_bytes(size)),
        ("languages", f"{len(facts['languages']):,}"),
        ("processor time", format_seconds(total["cpu_seconds"])),
    ]
    if total["dollars"] is not None:
        figures.append(("cost", dollars(total["dollars"])))
    found = [el("li", n.sentence) for n in notices(facts)]
    return Markup(
        el("p", "Corpus", class_="kicker")
        + el("h1", el("bdi", name))
        + el("p", f"Preset {facts['preset']}. Every page that came in is counted below, once, "
             "where it stayed or where it went.", class_="lead")
        + el("div", [el("div", el("span", k), el("b", v), class_="figure") for k, v in figures],
             class_="figures")
        + (el("aside", el("b", "Worth a look"), el("ul", found)) if found else "")
    )  # fmt: skip
