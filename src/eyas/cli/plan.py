"""`eyas plan RECIPE`: what the run will take, before it starts."""

from __future__ import annotations

import argparse

from .arguments import add_json, add_recipe, load_recipe, print_json

EXAMPLE = "eyas plan recipes/demo.toml --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.plan import make_plan
    from eyas.tokens import tokenizer_size

    recipe = load_recipe(args)
    plan = make_plan(recipe, vocab_size=tokenizer_size(recipe))
    if args.json:
        print_json(plan.to_dict())
    else:
        print(plan.render())
    return 0
