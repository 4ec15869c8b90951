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

    plan = make_plan(load_recipe(args))
    if args.json:
        print_json(plan.to_dict())
    else:
        print(plan.render())
    return 0
