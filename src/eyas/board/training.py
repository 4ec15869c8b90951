"""The sections of a training run: loss, speed, judgement, checkpoints, time."""

from __future__ import annotations

import datetime
import itertools
import statistics
from collections.abc import Mapping
from typing import Any

from eyas.corpus import Markup, el, join
from eyas.recipe import format_count, format_seconds

from .chart import COLOURS, Line, line_chart
from .collect import Evaluation, Run
from .parts import bar, missing, name, number, percent, section, table
from .series import Point, downsample, resolve, smooth

__all__ = ["checkpoints", "judged", "loss", "speed", "stages"]

_MANY = 100  # points from which a smoothed line goes over the raw one
_SHOWN = 12


def loss(run: Run) -> Markup:
    """The loss curve: attempts coloured, replayed steps pale."""
    history, replayed = resolve(run.loss)
    if not history:
        return section("Loss", None, missing("No training metrics in this store yet."))
    attempts = sorted({p.attempt for p in history})
    chart = line_chart(
        _lines(history, replayed),
        title=f"Training loss from {history[0].value:.3f} to {history[-1].value:.3f}",
        x_label="step",
        y_label="loss, nats a token",
    )
    facts = [
        f"From {history[0].value:.3f} to {history[-1].value:.3f} over {len(history):,} steps"
        f" in {_count(len(attempts), 'attempt')}."
    ]
    if replayed:
        facts.append(f"{_count(len(replayed), 'step')} were lost and done again.")
    if run.not_finite:
        facts.append(f"{_count(run.not_finite, 'step')} had no finite loss.")
    return section("Loss", " ".join(facts), chart, _legend(attempts, bool(replayed)))


def speed(run: Run) -> Markup:
    """Tokens a second."""
    history, _ = resolve(run.speed)
    if not history:
        return section("Speed", None, missing("No throughput in the metrics."))
    middle = statistics.median(p.value for p in history)
    chart = line_chart(
        _lines(history, []),
        title=f"Tokens a second, median {middle:,.0f}",
        x_label="step",
        y_label="tokens a second",
        height=230,
        from_zero=True,
        number=format_count,
    )
    return section(
        "Speed", f"Half of all steps ran at {middle:,.0f} tokens a second or more.", chart
    )


def judged(run: Run) -> Markup:
    """Bits per byte by language beside xz, from the last report."""
    title = "Judgement"
    if not run.evaluations:
        return section(title, None, missing("No evaluation in this store yet."))
    last = run.evaluations[-1]
    ours, theirs = float(last.total["bits_per_byte"]), float(last.total["xz_bits_per_byte"])
    widest = max(max(_bits(line)) for line in (*last.languages, last.total))
    rows = [_judged_row(line, widest) for line in (*last.languages, last.total)]
    heads = [("language", ""), ("bytes", "n"), ("model", "n"), ("xz", "n"), ("against xz", "n")]
    side = "below" if ours < theirs else "above"
    lead = (
        f"{ours:.3f} bits a byte of held-out text at step {last.step:,}, "
        f"{percent(abs(ours - theirs), theirs)} {side} xz. Lower is better."
    )
    body: list[object] = [table([*heads, ("model over xz", "w")], rows, total=True)]
    if len(run.evaluations) > 1:
        body += [el("h3", "Over the run"), _judged_chart(run.evaluations)]
    return section(title, lead, *body)


def checkpoints(run: Run) -> Markup:
    """What is committed."""
    if not run.checkpoints:
        return section("Checkpoints", None, missing("No checkpoint is committed in this store."))
    last = run.checkpoints[-1]
    newest_first = run.checkpoints[::-1][:_SHOWN]
    rows = [
        (_clock(c.modified), number(c.step), number(c.attempt), _age(c.modified, before))
        for c, before in itertools.zip_longest(
            newest_first, (c.modified for c in run.checkpoints[::-1][1 : _SHOWN + 1])
        )
    ]
    heads = [("committed (UTC)", ""), ("step", "n"), ("attempt", "n")]
    heads.append(("after the one before", "n"))
    lead = f"{_count(len(run.checkpoints), 'commit')}, the last at step {last.step:,}."
    if len(run.checkpoints) > _SHOWN:
        lead += f" The last {_SHOWN} are shown."
    return section("Checkpoints", lead, table(heads, rows))


def stages(run: Run) -> Markup:
    """Where the time went, and the plan against what happened."""
    if not run.stages and not run.plan:
        return section("Plan and time", None, missing("No summary of a run in this store."))
    body: list[object] = []
    total = sum(_seconds(row) for row in run.stages)
    if run.plan:
        heads = [("what", ""), ("planned", "n"), ("actual", "n"), ("actual over planned", "n")]
        rows = [_planned(row) for row in run.plan]
        body += [el("h3", "Plan against actual"), table(heads, rows)]
    if run.stages:
        longest = max(_seconds(row) for row in run.stages) or 1.0
        lines = [
            (
                name(row.get("stage", "")),
                format_seconds(_seconds(row)),
                join([name(row.get("line", "")), bar((_seconds(row) / longest, ""))]),
            )
            for row in run.stages
        ]
        heads = [("stage", ""), ("time", "n"), ("what came of it", "")]
        body += [el("h3", "Stages"), table(heads, lines)]
    lead = f"{format_seconds(total)} in {_count(len(run.stages), 'stage')}." if total else None
    return section("Plan and time", lead, *body)


def _lines(history: list[Point], replayed: list[Point]) -> list[Line]:
    shown = downsample(history)
    pale = [Line("replayed", downsample(replayed), "pale")] if replayed else []
    if len(history) < _MANY:
        return [*pale, Line("loss", shown, "strong", hover=True)]
    even = downsample(smooth(history, max(4, len(history) // 80)))
    return [*pale, Line("loss", shown, "raw"), Line("smoothed", even, "strong", hover=True)]


def _legend(attempts: list[int], replayed: bool) -> Markup | None:
    if len(attempts) < 2 and not replayed:
        return None
    items = [(f"attempt {a}", f"strong c{(a - 1) % COLOURS}") for a in attempts[-8:]]
    if replayed:
        items.append(("lost and done again", f"pale c{(attempts[0] - 1) % COLOURS}"))
    return el("ul", [el("li", _stroke(style), label) for label, style in items], class_="legend")


def _stroke(style: str) -> Markup:
    line = el("path", d="M1 4H21", class_=style)
    return el("svg", line, viewBox="0 0 22 8", aria_hidden="true")


def _judged_row(line: Mapping[str, Any], widest: float) -> list[object]:
    ours, theirs = _bits(line)
    change = (ours - theirs) / theirs if theirs else 0.0
    verdict = el("span", f"{change:+.0%}".replace("-", "−"), class_="good" if change < 0 else "bad")
    error = line.get("standard_error") or 0
    figure = join([f"{ours:.3f}", el("span", f" ±{error:.3f}", class_="pm") if error else None])
    pair = join([bar((ours / widest, "model")), bar((theirs / widest, "lost"))])
    return [
        name(line.get("language", "")),
        number(line.get("bytes")),
        figure,
        f"{theirs:.3f}",
        verdict,
        el("div", pair, class_="pair"),
    ]


def _judged_chart(found: list[Evaluation]) -> Markup:
    ours = [Point(e.attempt, e.step, _bits(e.total)[0]) for e in found]
    theirs = [Point(e.attempt, e.step, _bits(e.total)[1]) for e in found]
    history, _ = resolve(ours)
    return line_chart(
        [Line("model", history, "strong", hover=True), Line("xz", resolve(theirs)[0], "bar")],
        title=f"Bits per byte from {history[0].value:.3f} to {history[-1].value:.3f}",
        x_label="step (dashed: xz)",
        y_label="bits a byte",
        height=230,
    )


def _bits(line: Mapping[str, Any]) -> tuple[float, float]:
    return float(line["bits_per_byte"]), float(line["xz_bits_per_byte"])


def _seconds(row: Mapping[str, Any]) -> float:
    value = row.get("seconds")
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _planned(row: Mapping[str, Any]) -> list[object]:
    """A row of `eyas.plan`'s comparison; numbers where it has no words for them."""
    shown: list[object] = [name(row.get("name", ""))]
    for key in ("planned", "actual"):
        said = row.get(f"{key}_text")
        shown.append(number(row.get(key), 3) if said is None else name(said))
    return [*shown, number(row.get("ratio"), 2)]


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _age(after: float, before: float | None) -> str:
    return "—" if before is None else format_seconds(max(0.0, after - before))


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"
