"""The report as one HTML page that loads nothing: its own styles, drawings in SVG, no script.

Everything that comes from pages (URLs, texts, labels) is hostile: it is escaped, shown as text and
never as a link, and the page forbids itself every resource.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .funnel import BINS

__all__ = ["report_page"]

_WIDTH, _HEIGHT = 260, 90
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#68758a;--line:#d9dee7;--paper:#fff;
--bar:#3f74c4;--drop:#c4573f}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a3b5;--line:#343c4a;
--paper:#161a21;--bar:#6f9fe6;--drop:#e0795f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}h3{font-size:1rem;margin:.2rem 0}
table{border-collapse:collapse;width:100%}td,th{text-align:start;padding:.25rem .6rem;
border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:end;
font-variant-numeric:tabular-nums}.soft{color:var(--soft);font-size:.85rem}
.bar{height:.7rem;background:var(--bar);border-radius:2px;min-width:1px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:1rem}
figure{margin:0}svg{width:100%;height:auto}.sample{border-inline-start:3px solid var(--line);
padding:.1rem .8rem;margin:.6rem 0;overflow-wrap:anywhere}
.sample p{margin:.1rem 0;white-space:pre-wrap}
.scroll{overflow-x:auto}
"""


def report_page(name: str, facts: Mapping[str, Any]) -> str:
    """The whole page. `facts` are `report_facts`."""
    body = (
        _summary(name, facts),
        _funnel(facts["funnel"]),
        _languages(facts["languages"], facts["rejects_by_language"]),
        _histograms(facts["histograms"]),
        _clusters(facts["clusters"], facts["match_probability"]),
        _samples(facts["samples"]),
    )
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>Corpus of {_text(name)}</title><style>{_STYLE}</style></head><body>"
    )
    return head + "".join(body) + "</body></html>\n"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or value == int(value) else f"{value:.3g}"


def _summary(name: str, facts: Mapping[str, Any]) -> str:
    first, last = facts["funnel"][0], facts["funnel"][-1]
    share = last["out"] / first["in"] if first["in"] else 0
    size = sum(row["bytes"] for row in facts["languages"].values())
    return (
        f"<h1>Corpus of {_text(name)}</h1><p>{_number(first['in'])} pages in, "
        f"<b>{_number(last['out'])} documents</b> out ({share:.1%}), {size / 1e6:,.1f} MB of text "
        f"in {len(facts['languages'])} languages.</p>"
    )


def _funnel(stages: Sequence[Mapping[str, Any]]) -> str:
    most = stages[0]["in"] or 1
    rows = "".join(_funnel_row(stage, most) for stage in stages)
    return (
        "<h2>Funnel</h2><div class=scroll><table><tr><th>stage<th class=n>in<th class=n>out"
        f"<th style='width:30%'>left of all pages<th>dropped, by reason</tr>{rows}</table></div>"
    )


def _funnel_row(stage: Mapping[str, Any], most: int) -> str:
    reasons = sorted(stage["reasons"].items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{_text(_plain(reason))} {_number(n)}" for reason, n in reasons)
    width = 100 * stage["out"] / most
    return (
        f"<tr><td>{_text(stage['stage'])}<td class=n>{_number(stage['in'])}"
        f"<td class=n>{_number(stage['out'])}<td><div class=bar style='width:{width:.2f}%'></div>"
        f"<td class=soft>{listed}</tr>"
    )


def _languages(
    languages: Mapping[str, Mapping[str, int]], rejects: Mapping[str, Mapping[str, int]]
) -> str:
    names = [*languages, *(name for name in rejects if name and name not in languages)]
    rows = []
    for name in names:
        kept = languages.get(name, {"documents": 0, "bytes": 0})
        reasons = sorted(rejects.get(name, {}).items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{_text(_plain(reason))} {_number(n)}" for reason, n in reasons)
        rows.append(
            f"<tr><td>{_text(name)}<td class=n>{_number(kept['documents'])}"
            f"<td class=n>{kept['bytes'] / 1e6:,.2f}"
            f"<td class=n>{_number(sum(n for _, n in reasons))}"
            f"<td class=soft>{listed}</tr>"
        )
    return (
        "<h2>Languages</h2><div class=scroll><table><tr><th>language<th class=n>documents"
        "<th class=n>MB<th class=n>dropped<th>dropped, by reason</tr>"
        f"{''.join(rows)}</table></div>"
    )


def _histograms(histograms: Sequence[Mapping[str, Any]]) -> str:
    figures = "".join(_histogram(h) for h in histograms if any(h["bins"]))
    return (
        "<h2>Measured values</h2><p class=soft>Every document that reached the rules; the height "
        "is the square root of the count. Red lines are thresholds of the language packs that were "
        f"used.</p><div class=grid>{figures}</div>"
    )


def _histogram(h: Mapping[str, Any]) -> str:
    most = math.sqrt(max(h["bins"]))
    step = _WIDTH / BINS
    bars = "".join(
        f"<rect x='{i * step:.1f}' y='{_HEIGHT - _HEIGHT * math.sqrt(n) / most:.1f}' "
        f"width='{step - 0.6:.1f}' height='{_HEIGHT * math.sqrt(n) / most:.1f}' fill='var(--bar)'/>"
        for i, n in enumerate(h["bins"])
        if n
    )
    marks = "".join(_threshold(h, pack, b) for pack, bs in h["thresholds"].items() for b in bs)
    low, high = h["range"]
    ends = (f"{10**low:,.0f}", f"{10**high:,.0f}") if h["measure"] == "words" else (low, high)
    return (
        f"<figure><h3>{_text(_plain(h['measure']))}</h3><svg viewBox='0 0 {_WIDTH} {_HEIGHT + 14}' "
        f"role=img>{bars}{marks}<text x=0 y={_HEIGHT + 12} font-size=9 fill='var(--soft)'>{ends[0]}"
        f"</text><text x={_WIDTH} y={_HEIGHT + 12} font-size=9 text-anchor=end fill='var(--soft)'>"
        f"{ends[1]}</text></svg></figure>"
    )


def _threshold(h: Mapping[str, Any], pack: str, bound: float) -> str:
    low, high = h["range"]
    value = math.log10(max(bound, 1)) if h["measure"] == "words" else bound
    x = _WIDTH * min(1.0, max(0.0, (value - low) / (high - low)))
    return (
        f"<line x1='{x:.1f}' x2='{x:.1f}' y1='0' y2='{_HEIGHT}' stroke='var(--drop)'>"
        f"<title>{_text(pack)}: {_text(bound)}</title></line>"
    )


def _clusters(clusters: Mapping[str, Any], curve: Sequence[Sequence[float]]) -> str:
    sizes = ", ".join(f"{_number(n)} of {size}" for size, n in clusters["sizes"])
    largest = "".join(
        f"<tr><td>{_text(row['cluster'])}<td class=n>{_number(row['documents'])}</tr>"
        for row in clusters["largest"]
    )
    chances = ", ".join(f"{j:.2f}: {p:.1%}" for j, p in curve if 0.5 <= j < 1)
    return (
        f"<h2>Duplicates</h2><p>{_number(clusters['clusters'])} clusters of near-duplicates"
        f"{', by size: ' + sizes if sizes else ''}. One document of each stays.</p>"
        f"<p class=soft>Chance that a pair is found, by similarity: {chances}.</p>"
        f"<table><tr><th>largest clusters (id of the document that stays)<th class=n>documents</tr>"
        f"{largest}</table>"
    )


def _samples(samples: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    order = sorted(samples, key=lambda group: (group != "kept", group))
    parts = []
    for group in order:
        title = "Kept" if group == "kept" else "Dropped: " + _plain(group.replace("/", ", "))
        parts.append(f"<h3>{_text(title)}</h3>{''.join(_sample(row) for row in samples[group])}")
    return f"<h2>Samples</h2>{''.join(parts)}"


def _sample(row: Mapping[str, Any]) -> str:
    value = row.get("value")
    notes = [row["url"], row.get("language"), None if value is None else f"value {value:.4g}"]
    if row.get("detail"):
        notes.append(f"duplicate of {row['detail']}")
    line = " · ".join(_text(n) for n in notes if n)
    text = f"<p dir=auto>{_text(row['text'])}</p>" if row.get("text") else ""
    return f"<div class=sample><div class=soft dir=auto>{line}</div>{text}</div>"


def _plain(name: str) -> str:
    return name.replace("_", " ")
