"""`eyas recipe check|show|schema`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .arguments import add_set, load_recipe, print_json

if TYPE_CHECKING:
    from eyas.recipe import Recipe

EXAMPLE = "eyas recipe check recipes/demo.toml --set train.lr=3e-4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("check", "show", "schema"))
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="the recipe, a TOML file")
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="show: as JSON instead of TOML")


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import Recipe, UsageError

    if args.verb == "schema":
        print_json(Recipe.schema())
        return 0
    if args.recipe is None:
        raise UsageError(f"write `eyas recipe {args.verb} RECIPE`")
    recipe = load_recipe(args)
    size = _size(recipe)
    if args.verb == "check":
        print(f"{args.recipe}: good; {size}, recipe hash {recipe.hash[:12]}")
    elif args.json:
        print_json(recipe.to_dict())
    else:
        print(recipe.to_toml(), end="")
    return 0


def _size(recipe: Recipe) -> str:
    """The model's parameters, once shape and layout are found to be possible. A store whose
    tokenizer is taken over need not be within reach."""
    from eyas.plan import choose_layout
    from eyas.shape import model_shape, parameters

    taken = recipe.tokenizer.from_ or recipe.data.from_
    vocabulary = None if taken else recipe.tokenizer.vocab_size
    choose_layout(recipe, vocabulary)
    shape = model_shape(recipe, vocabulary)
    if taken and recipe.model.vocab_size is None:
        return f"parameters by the tokenizer of {taken}"
    return f"{parameters(shape):,} parameters"
