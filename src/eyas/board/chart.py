"""A line chart as inline SVG: no script, no font of its own, colours from the page's variables.

Points carry their attempt; an attempt has its colour. The drawing is 960 wide and scales down to
640, below which it scrolls, so that its labels stay legible on a telephone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eyas.corpus import Markup, el, join

from .series import Point, ticks

__all__ = ["COLOURS", "Line", "line_chart"]

COLOURS = 6
_WIDTH = 960.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 20.0, 14.0, 46.0
_HOVERS = 48


@dataclass(frozen=True)
class Line:
    """Points by step. `style` is a class of the style sheet: raw, pale, strong or bar (dashed)."""

    name: str
    points: Sequence[Point]
    style: str = "strong"
    hover: bool = False


@dataclass(frozen=True)
class _Scale:
    """From data to drawing."""

    x: Callable[[float], float]
    y: Callable[[float], float]
    bottom: float


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    height: int = 340,
    from_zero: bool = False,
    number: Callable[[float], str] = "{:g}".format,
) -> Markup:
    """The chart. `title` is its text for those who do not see it; at least one line has a point."""
    values = [p.value for line in lines for p in line.points]
    steps = [p.step for line in lines for p in line.points]
    y_ticks = _round_range(0.0 if from_zero else min(values), max(values), 5)
    x_low, x_high = min(steps), max(max(steps), min(steps) + 1)
    bottom = height - _BOTTOM
    scale = _Scale(
        lambda step: _LEFT + (step - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT),
        lambda v: bottom - (v - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (bottom - _TOP),
        bottom,
    )
    svg = el(
        "svg",
        el("title", title),
        _axes(scale, [t for t in ticks(x_low, x_high, 8) if t == int(t)], y_ticks, number),
        _labels(scale, x_label, y_label),
        [_draw(line, scale) for line in lines],
        [_hovers(line, scale, number) for line in lines if line.hover],
        viewBox=f"0 0 {_WIDTH:.0f} {height}",
        role="img",
        class_="chart",
    )
    return el("div", svg, class_="scroll", tabindex="0")


def _round_range(low: float, high: float, most: int) -> list[float]:
    """Ticks whose first and last lie outside the values."""
    if high <= low:
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    inner = ticks(low, high, most)
    step = inner[1] - inner[0] if len(inner) > 1 else high - low
    first = inner[0] if inner[0] <= low + 1e-9 * step else inner[0] - step
    last = inner[-1] if inner[-1] >= high - 1e-9 * step else inner[-1] + step
    return [round(first + n * step, 12) for n in range(round((last - first) / step) + 1)]


def _axes(
    scale: _Scale, x_ticks: list[float], y_ticks: list[float], number: Callable[[float], str]
) -> Markup:
    parts: list[Markup] = []
    for value in y_ticks:
        y = f"{scale.y(value):.1f}"
        parts.append(el("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(el("text", number(value), x=_LEFT - 10, y=y, dy="0.32em", class_="tick end"))
    for value in x_ticks:
        x, foot = f"{scale.x(value):.1f}", scale.bottom
        parts.append(el("line", x1=x, x2=x, y1=foot, y2=foot + 5, class_="grid"))
        parts.append(el("text", f"{int(value):,}", x=x, y=foot + 20, class_="tick middle"))
    return join(parts)


def _labels(scale: _Scale, x_label: str, y_label: str) -> Markup:
    middle = (_TOP + scale.bottom) / 2
    return join(
        [
            el("text", x_label, x=(_LEFT + _WIDTH) / 2, y=scale.bottom + 40, class_="axis middle"),
            el(
                "text",
                y_label,
                x=14,
                y=middle,
                transform=f"rotate(-90 14 {middle:.1f})",
                class_="axis middle",
            ),
        ]
    )


def _draw(line: Line, scale: _Scale) -> Markup:
    """One path an attempt; each begins where the one before it ended."""
    paths: list[Markup] = []
    start = 0
    points = line.points
    for end in range(1, len(points) + 1):
        if end < len(points) and points[end].attempt == points[start].attempt:
            continue
        joined = points[max(0, start - 1) if line.style != "pale" else start : end]
        places = [f"{scale.x(p.step):.1f} {scale.y(p.value):.1f}" for p in joined]
        path = "M" + "L".join(places) if len(places) > 1 else f"M{places[0]}h1.5"
        colour = (points[start].attempt - 1) % COLOURS
        paths.append(el("path", d=path, class_=f"{line.style} c{colour}"))
        start = end
    return el("g", paths)


def _hovers(line: Line, scale: _Scale, number: Callable[[float], str]) -> Markup:
    every = max(1, len(line.points) // _HOVERS)
    return el(
        "g",
        [
            el(
                "circle",
                el("title", f"step {p.step:,}: {number(p.value)} (attempt {p.attempt})"),
                cx=f"{scale.x(p.step):.1f}",
                cy=f"{scale.y(p.value):.1f}",
                r=9,
                class_=f"hover c{(p.attempt - 1) % COLOURS}",
            )
            for p in line.points[::every]
        ],
    )
