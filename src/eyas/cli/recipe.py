"""`eyas recipe check|show|schema`."""

from __future__ import annotations

import argparse

from .arguments import add_set, load_recipe, print_json

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
    from eyas.plan import choose_layout
    from eyas.shape import model_shape, parameters

    shape = model_shape(recipe, recipe.tokenizer.vocab_size)
    choose_layout(recipe, recipe.tokenizer.vocab_size)
    if args.verb == "check":
        print(
            f"{args.recipe}: good; {parameters(shape):,} parameters, recipe hash {recipe.hash[:12]}"
        )
    elif args.json:
        print_json(recipe.to_dict())
    else:
        print(recipe.to_toml(), end="")
    return 0
