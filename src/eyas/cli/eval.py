"""`eyas eval RECIPE|CHECKPOINT`: bits per byte by language, beside a compressor's."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_json, print_json

EXAMPLE = "eyas eval ./runs/demo@latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RECIPE|CHECKPOINT", help="a recipe, or STORE[@STEP]")
    parser.add_argument("--max-bytes", default=None, help="held-out text a language")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import load, read_commit, resolve
    from eyas.judge import evaluate, write_report
    from eyas.recipe import Judge, Recipe, UsageError, parse_count

    reference, limit = args.target, Judge().max_bytes
    if args.target.endswith(".toml") and Path(args.target).is_file():
        recipe = Recipe.load(args.target)
        reference, limit = recipe.store, recipe.judge.max_bytes
    if args.max_bytes is not None:
        try:
            limit = parse_count(args.max_bytes)
        except ValueError as error:
            raise UsageError(f'--max-bytes "{args.max_bytes}": {error}') from error
    store, selector = resolve(reference)
    commit = read_commit(store, selector)
    report = evaluate(load(f"{store.url}@{commit.attempt}-{commit.step}"), store, limit)
    write_report(store, report, commit.step, commit.attempt)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report.render())
    return 0
