"""Arguments that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eyas.recipe import Recipe
    from eyas.store import Store

__all__ = [
    "add_json",
    "add_recipe",
    "add_set",
    "add_store",
    "load_recipe",
    "overrides",
    "print_json",
    "recipe_store",
]


def add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="the recipe, a TOML file")
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a recipe key"
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="s3://bucket/prefix or a folder")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")


def load_recipe(args: argparse.Namespace) -> Recipe:
    """The recipe with its overrides."""
    from eyas.recipe import Recipe

    return Recipe.load(args.recipe, overrides(args))


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """What `--set` says, by key."""
    from eyas.recipe import parse_override

    return dict(parse_override(text) for text in args.set)


def recipe_store(recipe: Recipe) -> Store:
    """The recipe's store, with the recipe as resolved written into it."""
    from eyas.store import open_store

    store = open_store(recipe.store)
    store.put("recipe.toml", recipe.to_toml().encode())
    return store


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
