"""The drawings of the report as inline SVG: histograms with thresholds, one row a pack, the curve.

What a threshold lets pass is drawn in one colour and what it does not in the other, bin by bin, by
the threshold of the pack that judged the documents in it. Heights are square roots of counts, so
that a rule's few victims can be seen beside the many that it keeps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .funnel import BINS, axis_of, place
from .markup import Markup, el

__all__ = ["Limit", "curve", "histogram", "pack_rows", "short"]

_WIDTH, _HEIGHT = 300.0, 84.0
_LABEL, _ROW = 62.0, 15.0
_TICKS = {
    "share": (0, 0.05, 0.2, 0.5, 1),
    "count": (0, 10, 100, 1_000, 10_000, 100_000, 1_000_000),
    "length": (0, 5, 10, 15, 20),
}


@dataclass(frozen=True)
class Limit:
    """A pack's threshold: side "low" keeps values from it on, "high" up to it."""

    pack: str
    value: float
    side: str


def histogram(name: str, packs: Mapping[str, Sequence[int]], limits: Sequence[Limit]) -> Markup:
    """All packs' documents, with every distinct threshold; the one of most documents is whole."""
    kept, dropped = _split(name, packs, limits)
    total = [a + b for a, b in zip(kept, dropped, strict=True)]
    most = max(total)
    heights = [_HEIGHT * math.sqrt(n / most) for n in total]
    parts = [h * k / n if n else 0.0 for h, k, n in zip(heights, kept, total, strict=True)]
    lost = [h * d / n if n else 0.0 for h, d, n in zip(heights, dropped, total, strict=True)]
    return el(
        "svg",
        el("title", f"{name} of {sum(total):,} documents"),
        el("path", d=_steps(parts, 0, _HEIGHT, _WIDTH), class_="keep"),
        el("path", d=_steps(lost, 0, _HEIGHT, _WIDTH, parts), class_="drop"),
        el("line", x1=0, x2=_round(_WIDTH), y1=_round(_HEIGHT), y2=_round(_HEIGHT), class_="base"),
        _cuts(name, packs, limits),
        [_tick(name, value) for value in _TICKS[axis_of(name)]],
        viewBox=f"0 -4 {_WIDTH:.0f} {_HEIGHT + 20:.0f}",
        role="img",
    )


def pack_rows(name: str, packs: Mapping[str, Sequence[int]], limits: Sequence[Limit]) -> Markup:
    """One row a pack, most documents first, each with its own thresholds and its own height."""
    order = sorted(packs, key=lambda p: (-sum(packs[p]), p))
    rows = [
        _pack_row(name, pack, packs[pack], [x for x in limits if x.pack == pack], _ROW * (i + 1))
        for i, pack in enumerate(order)
    ]
    height = _ROW * len(order) + 4
    return el("svg", rows, viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}", role="img", class_="rows")


def curve(points: Sequence[Sequence[float]]) -> Markup:
    """Probability over similarity, both 0 to 1."""
    width, height, left = 360.0, 150.0, 34.0
    drawn = [(left + x * (width - left), height * (1 - y)) for x, y in points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
    grid = [
        [
            el("line", x1=left, x2=width, y1=height * (1 - y), y2=height * (1 - y), class_="base"),
            el("text", f"{y:.0%}", x=left - 5, y=height * (1 - y) + 4, class_="end"),
        ]
        for y in (0, 0.5, 1)
    ]
    names = [
        el("text", f"{x:g}", x=left + x * (width - left), y=height + 15, class_="middle")
        for x in (0.2, 0.4, 0.6, 0.8)
    ]
    title = el("title", "chance that a pair is found, by the share of shingles that it has alike")
    return el(
        "svg",
        title,
        grid,
        names,
        el("path", d=path, class_="curve"),
        viewBox=f"0 -8 {width:.0f} {height + 28:.0f}",
        role="img",
    )


def short(value: float) -> str:
    """A threshold or a value in few characters."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3g}"


def _split(
    name: str, packs: Mapping[str, Sequence[int]], limits: Iterable[Limit]
) -> tuple[list[int], list[int]]:
    """Counts by bin of what passes and what does not. A bin that a threshold divides passes."""
    kept, dropped = [0] * BINS, [0] * BINS
    by_pack: dict[str, list[Limit]] = {}
    for limit in limits:
        by_pack.setdefault(limit.pack, []).append(limit)
    for pack, bins in packs.items():
        failing = [_fails(name, b, by_pack.get(pack, ())) for b in range(BINS)]
        for b, n in enumerate(bins):
            (dropped if failing[b] else kept)[b] += n
    return kept, dropped


def _fails(name: str, number: int, limits: Iterable[Limit]) -> bool:
    axis = axis_of(name)
    low, high = number / BINS, (number + 1) / BINS
    return any(
        high <= place(axis, x.value)
        if x.side == "low"
        else low >= place(axis, x.value) > 0 or (x.value <= 0 and number > 0)
        for x in limits
    )


def _steps(
    heights: Sequence[float], left: float, base: float, width: float, on: Sequence[float] = ()
) -> str:
    """The outline of bars as one path, each on a bar of `on`."""
    step = width / BINS
    path = []
    for number, height in enumerate(heights):
        if height > 0:
            x, y = left + number * step, base - (on[number] if on else 0.0)
            path.append(f"M{x:.1f} {y:.1f}v{-height:.1f}h{step - 0.7:.1f}v{height:.1f}z")
    return "".join(path)


def _cuts(name: str, packs: Mapping[str, Sequence[int]], limits: Iterable[Limit]) -> list[Markup]:
    """A line a distinct threshold. The whole ones are those of the most documents."""
    weights: Counter[tuple[str, float]] = Counter()
    users: dict[tuple[str, float], list[str]] = {}
    for limit in limits:
        weights[limit.side, limit.value] += sum(packs.get(limit.pack, ()))
        users.setdefault((limit.side, limit.value), []).append(limit.pack)
    main = {
        side: max((k for k in weights if k[0] == side), key=lambda k: weights[k])
        for side in {side for side, _ in weights}
    }
    lines = []
    for (side, value), names in sorted(users.items()):
        x = _WIDTH * place(axis_of(name), value)
        said = f"{'at least' if side == 'low' else 'at most'} {short(value)}: {', '.join(names)}"
        style = "cut main" if main[side] == (side, value) else "cut"
        where = {"x1": _round(x), "x2": _round(x), "y1": -4, "y2": _round(_HEIGHT)}
        lines.append(el("line", el("title", said), **where, class_=style))
    return lines


def _pack_row(
    name: str, pack: str, bins: Sequence[int], limits: Sequence[Limit], base: float
) -> Markup:
    kept, dropped = _split(name, {pack: bins}, limits)
    most = max(bins) or 1
    width = _WIDTH - _LABEL
    drawn = [
        el(
            "path",
            d=_steps([(_ROW - 3) * math.sqrt(n / most) for n in part], _LABEL, base, width),
            class_=style,
        )
        for part, style in ((kept, "keep"), (dropped, "drop"))
    ]
    cuts = []
    for limit in limits:
        x = _round(_LABEL + width * place(axis_of(name), limit.value))
        cuts.append(
            el(
                "line",
                el("title", f"{pack}: {short(limit.value)}"),
                x1=x,
                x2=x,
                y1=_round(base - _ROW + 1),
                y2=_round(base),
                class_="cut main",
            )
        )
    line = el("line", x1=_LABEL, x2=_WIDTH, y1=_round(base), y2=_round(base), class_="base")
    label = el("text", pack, x=_LABEL - 6, y=_round(base - 2), class_="end")
    return Markup(label + drawn[0] + drawn[1] + line + "".join(cuts))


def _tick(name: str, value: float) -> Markup:
    at = place(axis_of(name), value)
    style = "end" if at >= 1 else None if at <= 0 else "middle"
    shown = (
        f"{value / 1000:,.0f}K" if 1000 <= value < 1e6 else "1M" if value >= 1e6 else f"{value:g}"
    )
    return el("text", shown, x=_round(_WIDTH * at), y=_round(_HEIGHT + 13), class_=style)


def _round(value: float) -> str:
    return f"{value:.1f}"
