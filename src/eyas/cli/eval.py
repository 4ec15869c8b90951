"""`eyas eval RECIPE|CHECKPOINT`: bits per byte by language, beside a compressor's.

The report is kept in the store, where the board shows it, unless --max-bytes asks for another
amount of text than the recipe: then it is only printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_json, add_set, overrides, print_json

if TYPE_CHECKING:
    from eyas.recipe import Recipe
    from eyas.store import Store

EXAMPLE = "eyas eval ./runs/demo@latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RECIPE|CHECKPOINT", help="a recipe, or STORE[@STEP]")
    parser.add_argument("--max-bytes", default=None, help="held-out text a language")
    add_set(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import load, read_commit, resolve
    from eyas.judge import evaluate, write_report
    from eyas.recipe import Recipe, UsageError, parse_count

    reference, recipe = args.target, None
    if args.target.endswith(".toml") and not Path(args.target).is_dir():
        recipe = Recipe.load(args.target, overrides(args))
        reference = recipe.store
    store, selector = resolve(reference)
    commit = read_commit(store, selector)
    limit = usual = (recipe or _recipe_of(store)).judge.max_bytes
    if args.max_bytes is not None:
        try:
            limit = parse_count(args.max_bytes)
        except ValueError as error:
            raise UsageError(f'--max-bytes "{args.max_bytes}": {error}') from error
    report = evaluate(load(f"{store.url}@{commit.attempt}-{commit.step}"), store, limit)
    if limit == usual:
        write_report(store, report, commit.step, commit.attempt)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report.render())
    return 0


def _recipe_of(store: Store) -> Recipe:
    """The recipe that lies in a store; the defaults where there is none (an imported model)."""
    from eyas.recipe import Recipe
    from eyas.store import NotFound

    try:
        return Recipe.parse(store.get("recipe.toml").decode(), f"{store.url}/recipe.toml")
    except NotFound:
        return Recipe("imported", store.url)
