"""`eyas train RECIPE`: the loop of one rank.

Under torchrun every rank runs this same command; alone it is a run of one process. `eyas run`
starts it through the supervisor, which restarts ranks.
"""

from __future__ import annotations

import argparse

from .arguments import add_recipe, load_recipe

EXAMPLE = "torchrun --standalone --nproc-per-node 2 -m eyas train recipes/demo.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.store import open_store
    from eyas.train import run_rank

    recipe = load_recipe(args)
    return run_rank(recipe, open_store(recipe.store))
