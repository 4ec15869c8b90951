"""The part of the report that shows every measured value with the thresholds drawn in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .markup import Markup, el
from .page_figures import Limit, histogram, pack_rows, short
from .page_words import plain

__all__ = ["values_part"]

_Facts = Mapping[str, Any]


def values_part(facts: _Facts) -> Markup:
    """A figure a value, in the order of the rules."""
    rules: dict[str, list[_Facts]] = {}
    for rule in facts["rules"]:
        rules.setdefault(rule["value"], []).append(rule)
    first_lost = {
        (row["stage"], reason): n for row in facts["funnel"] for reason, n in row["reasons"].items()
    }
    steps: dict[str, list[Markup]] = {}
    known = [*(v for v in rules if v in facts["histograms"]), *facts["histograms"]]
    for value in dict.fromkeys(known):
        figure = _value(facts, value, rules.get(value, ()), first_lost)
        steps.setdefault(value.partition(".")[0], []).append(figure)
    lead = (
        "Of every document that reached the filters, also of those that an earlier rule dropped; "
        "the language's score, of every text. "
        "Heights are square roots of counts. A line is a threshold: whole for the packs of most "
        "documents, dashed for others; point at it for its value. Shares lie on a square-root axis."
    )
    legend = [
        el("span", el("i", class_="keep"), "within its pack's threshold"),
        el("span", el("i", class_="drop"), "beyond it"),
    ]
    groups = [
        el("h3", plain(step)) + el("div", figures, class_="steps")
        for step, figures in steps.items()
    ]
    nothing = el("p", "No filter measured anything.", class_="missing") if not steps else None
    return Markup(
        el("p", lead, class_="lead")
        + el("p", legend, class_="legend")
        + "".join(groups)
        + (nothing or "")
    )


def _value(
    facts: _Facts,
    value: str,
    rules: Iterable[_Facts],
    first_lost: Mapping[tuple[str, str], int],
) -> Markup:
    packs = facts["histograms"][value]
    limits, said = [], []
    for rule in rules:
        mine = [
            Limit(pack, float(p["limits"][rule["key"]]), rule["side"])
            for pack, p in facts["packs"].items()
            if p["limits"].get(rule["key"]) is not None
        ]
        limits += mine
        said.append(_rule(rule, mine, packs, first_lost.get((rule["step"], rule["reason"]), 0)))
    more = None
    if len(packs) > 1:
        more = el("details", el("summary", "by language pack"), pack_rows(value, packs, limits))
    title = el("figcaption", plain(value.partition(".")[2]))
    return el(
        "figure", title, histogram(value, packs, limits), el("ul", said, class_="rules"), more
    )


def _rule(
    rule: _Facts, limits: Sequence[Limit], packs: Mapping[str, Sequence[int]], lost: int
) -> Markup:
    """The threshold of most documents, the range of the others', and how many it dropped."""
    weights: Counter[float] = Counter()
    for x in limits:
        weights[x.value] += sum(packs.get(x.pack, ()))
    if not weights:
        return el("li", el("code", rule["key"]), " is not set")
    main, values = max(weights, key=lambda v: weights[v]), sorted(weights)
    side = "at least" if rule["side"] == "low" else "at most"
    others = f" ({short(values[0])} to {short(values[-1])} by pack)" if len(values) > 1 else ""
    return el(
        "li", el("code", rule["key"]), f": {side} ", el("b", short(main)),
        f"{others}; dropped first here: ", el("b", f"{lost:,}"),
    )  # fmt: skip
