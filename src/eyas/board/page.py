"""The page: one file that stands alone, for a browser without network and without scripts.

`write_board` reads every store and writes the page whole or not at all. A section that cannot be
made from what lies in the store says so in its place; the others are unharmed.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from eyas.corpus import Markup, el, join
from eyas.recipe import EyasError, format_count
from eyas.store import Store, now

from .collect import Run, collect
from .data import funnel, languages, tokenizer
from .parts import missing, name, number, section, table
from .series import resolve
from .style import CSS
from .training import checkpoints, judged, loss, speed, stages

__all__ = ["render_board", "write_board"]

_log = logging.getLogger("eyas.board")
_SECTIONS: tuple[Callable[[Run], Markup | None], ...] = (
    loss,
    speed,
    judged,
    funnel,
    languages,
    tokenizer,
    checkpoints,
    stages,
)


def write_board(stores: Sequence[Store], path: str | Path) -> Path:
    """Write the page about these stores to `path` and return it.

    Raises EyasError if a store cannot be listed or the page cannot be written.
    """
    path = Path(path)
    page = render_board([collect(store) for store in stores], now())
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            temporary = Path(file.name)
            file.write(page.encode())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise EyasError(f"cannot write the page {path}: {error.strerror}") from error
    return path


def render_board(runs: Sequence[Run], when: str) -> str:
    """The whole page as text; `when` is shown as the time it was made."""
    title = ", ".join(run.name or run.url for run in runs) or "no runs"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        ),
        el("link", rel="icon", href="data:,"),
        el("title", f"{title} — Eyas"),
        el("style", Markup(CSS)),
    )
    top = el(
        "header",
        el("span", "Eyas", class_="mark"),
        el("span", when.replace("T", " ").replace("Z", " UTC"), class_="when"),
        class_="top",
    )
    body = [_overview(runs) if len(runs) > 1 else None, *(_run(run) for run in runs)]
    foot = el("footer", "Made by eyas board from what lies in the store.")
    page = el("html", head, el("body", top, el("main", *body), foot), lang="en")
    return f"<!doctype html>\n{page}\n"


def _run(run: Run) -> Markup:
    facts = [
        el("code", run.url),
        join(["recipe ", el("code", run.recipe_hash[:12])]) if run.recipe_hash else None,
        join(["code ", el("code", run.code)]) if run.code else None,
    ]
    return el(
        "article",
        el("h1", name(run.name or run.url.rstrip("/").rpartition("/")[2])),
        el("p", *(el("span", f) for f in facts if f), class_="facts"),
        _key_figures(run),
        *(el("p", name(problem), class_="problem") for problem in run.problems),
        *(_safely(make, run) for make in _SECTIONS),
        class_="run",
    )


def _safely(make: Callable[[Run], Markup | None], run: Run) -> Markup | None:
    """A section, or the statement that its data are not what they should be."""
    try:
        return make(run)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        _log.warning("the section %s of %s cannot be drawn", make.__name__, run.url, exc_info=True)
        sentence = "What lies in the store for this part is not in a form that this version knows."
        return section(make.__name__.capitalize(), None, missing(sentence))


def _key_figures(run: Run) -> Markup | None:
    """The five numbers that one looks at first; those that are not there are left out."""
    shown: list[tuple[str, object]] = []
    history, _ = resolve(run.loss)
    if history:
        shown.append(("Loss", _from_to(f"{history[0].value:.2f}", f"{history[-1].value:.2f}")))
    if run.tokens_seen:
        shown.append(("Tokens seen", format_count(run.tokens_seen)))
    if run.speed:
        middle = statistics.median(p.value for p in resolve(run.speed)[0])
        shown.append(("Tokens a second", format_count(round(middle))))
    if run.evaluations:
        total = run.evaluations[-1].total
        ours, theirs = total.get("bits_per_byte"), total.get("xz_bits_per_byte")
        small = el("i", f" xz {number(theirs, 2)}")
        shown.append(("Bits a byte", join([number(ours, 2), small])))
    if run.corpus is not None:
        pages = run.corpus.counters.get("pages_in")
        documents = run.corpus.counters.get("documents")
        shown.append(("Pages to documents", _from_to(number(pages), number(documents))))
    if not shown:
        return None
    tiles = [
        el("div", el("span", label), el("b", value), class_="figure") for label, value in shown
    ]
    return el("div", tiles, class_="figures")


def _from_to(first: str, last: str) -> Markup:
    return join([first, el("i", " → "), last])


def _overview(runs: Sequence[Run]) -> Markup:
    """Runs side by side."""
    rows = []
    for run in runs:
        history, _ = resolve(run.loss)
        bits = run.evaluations[-1].total.get("bits_per_byte") if run.evaluations else None
        rows.append(
            [
                name(run.name or run.url),
                number(history[-1].step) if history else "—",
                number(run.tokens_seen or None),
                number(history[-1].value, 3) if history else "—",
                number(bits, 3),
                number(len(run.checkpoints)),
            ]
        )
    heads = [("run", ""), ("step", "n"), ("tokens", "n"), ("loss", "n"), ("bits a byte", "n")]
    return section("Runs", None, table([*heads, ("checkpoints", "n")], rows))
