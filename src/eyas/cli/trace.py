"""`eyas trace RECIPE --step S`: the documents (URLs) behind a training step."""

from __future__ import annotations

import argparse
import dataclasses

from .arguments import add_json, add_recipe, load_recipe, print_json

EXAMPLE = "eyas trace recipes/demo.toml --step 12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument("--step", type=int, required=True, help="the training step, from 0")
    parser.add_argument("--rank", type=int, default=None, help="one data-parallel rank's part")
    parser.add_argument("--world", type=int, default=1, help="data-parallel ranks (with --rank)")
    parser.add_argument("--text", action="store_true", help="the text of each piece too")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.store import open_store
    from eyas.tokens import open_tokens

    recipe = load_recipe(args)
    tokens = open_tokens(open_store(recipe.store), ragged=recipe.data.ragged)
    rows = tokens.trace(args.step, rank=args.rank, world=args.world, text=args.text)
    if args.json:
        print_json([dataclasses.asdict(row) for row in rows])
        return 0
    for row in rows:
        print(
            f"{row.sample:>8}  {row.start:>6}-{row.end:<6}  {row.source}  {row.document}  {row.url}"
        )
        if args.text:
            print(f"          {row.text!r}")
    return 0
