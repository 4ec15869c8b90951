"""`eyas run RECIPE`: the whole flight on this machine.

A line a stage goes to stderr as it ends; the summary, which fits a screen, to stdout at the end,
with the path of the board as its last line.
"""

from __future__ import annotations

import argparse
import resource
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import add_json, add_recipe, load_recipe, print_json, recipe_store

if TYPE_CHECKING:
    from .stages import Flight

EXAMPLE = "eyas run recipes/demo.toml --serve"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument("--only", metavar="STAGE", help="this stage alone")
    parser.add_argument("--force", metavar="STAGE", help="run this stage though it is finished")
    parser.add_argument(
        "--serve", action="store_true", help="stay up and serve the model at the end"
    )
    parser.add_argument(
        "--out", default=None, help="folder for export and board (default out/NAME)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.plan import choose_layout
    from eyas.recipe import EyasError, UsageError
    from eyas.tokens import tokenizer_size

    from .stages import STAGES, Flight, forget, keep_summary

    for name in (args.only, args.force):
        _check_stage(name, STAGES)
    if args.only and args.force and args.only != args.force:
        raise UsageError(f"--force {args.force} would not run it again beside --only {args.only}")
    recipe = load_recipe(args)
    choose_layout(recipe, tokenizer_size(recipe))  # illegal: said now, not after an hour
    flight = Flight(recipe, recipe_store(recipe), Path(args.out or f"out/{recipe.name}"))
    try:
        flight.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EyasError(f"cannot make the folder {flight.out}: {error.strerror}") from error
    if args.force:
        forget(flight.store, args.force)
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    for name in [args.only] if args.only else STAGES:
        start = time.monotonic()
        line = STAGES[name](flight)
        rows.append({"stage": name, "seconds": time.monotonic() - start, "line": line})
        print(_row(rows[-1]), file=sys.stderr, flush=True)
        if name != "board":
            keep_summary(flight, rows)
    total = time.monotonic() - started
    if args.json:
        print_json({"stages": rows, "notes": flight.notes, "seconds": total, "memory": _peak()})
    else:
        print(_summary(recipe.name, rows, flight.notes, total), flush=True)
    if args.serve:
        _serve(flight)
    return 0


def _check_stage(name: str | None, stages: Sequence[str] | dict[str, Any]) -> None:
    from eyas.recipe import UsageError

    if name is not None and name not in stages:
        raise UsageError(f'no stage "{name}"; the stages are {", ".join(stages)}')


def _row(row: dict[str, Any]) -> str:
    return f"{row['stage']:<10} {row['seconds']:>6.1f} s  {row['line']}"


def _summary(name: str, rows: list[dict[str, Any]], notes: list[str], total: float) -> str:
    from eyas.recipe import format_bytes, format_seconds

    head = f"\n{name}: {format_seconds(total)}, largest process {format_bytes(_peak())}\n"
    body = [_row(row) for row in rows if row["stage"] != "board"]
    shown = [_note(note) for note in notes]
    last = [row["line"] for row in rows if row["stage"] == "board"]
    return "\n".join([head, *body, "", *shown, *last])


def _note(text: str) -> str:
    """Wrapped between words: a URL that is cut can be neither read nor copied."""
    return textwrap.fill(
        text, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _peak() -> int:
    """Bytes of the largest process so far, this one or a child."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, children) * (1 if sys.platform == "darwin" else 1024)


def _serve(flight: Flight) -> None:
    from eyas.serve import serve

    from .serve import key_from

    keys = flight.recipe.serve
    serve(
        {flight.recipe.name: flight.loaded()},
        host=keys.host,
        port=keys.port,
        api_key=key_from(keys.api_key_env),
        max_tokens=keys.max_tokens,
    )
