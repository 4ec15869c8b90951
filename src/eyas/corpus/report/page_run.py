"""The parts of the report that tell of the run: its cost, its limits, its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eyas.recipe import format_bytes, format_seconds

from .markup import Markup, el
from .page_figures import short
from .page_words import dollars, rate

__all__ = ["cost_part", "settings_part"]

_Facts = Mapping[str, Any]


def cost_part(cost: _Facts) -> Markup:
    """Processor time, throughput and money by stage."""
    price, total = cost["cpu_hour_price"], cost["total"]
    lead = ["Processor time of the workers, as the ledger recorded it when each shard was done. "]
    if total["rows_per_cpu_second"]:
        lead.append(
            f"{total['rows_per_cpu_second']:,.0f} pages a CPU-second over all stages; a billion "
            f"pages like these take {total['cpu_hours_per_billion_pages']:,.0f} CPU-hours"
        )
        money = total["dollars_per_billion_pages"]
        lead.append(f", ${money:,.0f} at ${price:g} an hour." if money is not None else ".")
    names = ["stage", "shards", "CPU time", "read", "rows", "rows a CPU-s", "MB a CPU-s",
             "CPU-h a billion pages", *(["dollars"] if price else [])]  # fmt: skip
    heads = [el("th", n, class_=None if n == "stage" else "n") for n in names]
    rows = [
        _cost_row(row, bool(price)) for row in (*(s for s in cost["stages"] if s["shards"]), total)
    ]
    table = el("table", el("tr", heads), rows)
    return Markup(el("p", lead, class_="lead") + el("div", table, class_="scroll", tabindex="0"))


def _cost_row(row: _Facts, money: bool) -> Markup:
    cells = [
        f"{row['shards']:,}",
        format_seconds(row["cpu_seconds"]),
        format_bytes(int(row["megabytes"] * 1e6)),
        f"{row['rows']:,}",
        rate(row["rows_per_cpu_second"]),
        rate(row["megabytes_per_cpu_second"]),
        rate(row["cpu_hours_per_billion_pages"]),
        *([dollars(row["dollars"])] if money else []),
    ]
    style = "sum" if row["stage"] == "total" else None
    return el("tr", el("td", row["stage"]), [el("td", c, class_="n") for c in cells], class_=style)


def settings_part(facts: _Facts) -> Markup:
    """The limits by pack, the recipe's section, the libraries, each folded away."""
    keys: dict[str, dict[str, list[str]]] = {}
    for pack, p in facts["packs"].items():
        for key, value in p["limits"].items():
            keys.setdefault(key, {}).setdefault(_setting(value), []).append(pack)
    rows = [
        el("tr", el("td", el("code", key)), _by_pack(by_value)) for key, by_value in keys.items()
    ]
    heads = el("tr", el("th", "key"), el("th", "most packs"), el("th", "others"))
    limits = el("details", el("summary", f"{len(keys)} limits of the filters"),
                el("div", el("table", heads, rows), class_="scroll", tabindex="0"))  # fmt: skip
    plain = {k: v for k, v in facts["settings"].items() if not isinstance(v, Mapping)}
    said = [el("tr", el("td", el("code", k)), el("td", _setting(v), class_="url"))
            for k, v in plain.items()]  # fmt: skip
    section = el("details", el("summary", "The recipe's [corpus]"), el("table", said))
    libraries = ", ".join(f"{name} {number}" for name, number in facts["libraries"].items())
    return Markup(limits + section + el("p", f"Libraries: {libraries}.", class_="soft"))


def _by_pack(by_value: Mapping[str, Sequence[str]]) -> list[Markup]:
    """The value of the pack for all other languages, or of most packs; those that differ."""
    base = max(by_value, key=lambda v: ("general" in by_value[v], len(by_value[v]), v))
    said: list[object] = []
    for value, packs in sorted(by_value.items()):
        if value != base:
            said += [" · " if said else "", el("b", value), f" {', '.join(packs)}"]
    return [el("td", base), el("td", said, class_="soft")]


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return short(value)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return str(value) if value not in ("", None) else "none"
