"""`eyas curate RECIPE`: package sources to WARC, crawl to documents."""

from __future__ import annotations

import argparse

from .arguments import add_json, add_recipe, load_recipe, print_json, recipe_store

EXAMPLE = "eyas curate recipes/demo.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.corpus import curate, fetch_sources

    from .stages import corpus_figure

    recipe = load_recipe(args)
    store = recipe_store(recipe)
    fetch_sources(recipe, store)
    manifest = curate(recipe, store, workers=recipe.cluster.workers)
    if args.json:
        print_json({"counters": dict(manifest.counters), "facts": dict(manifest.facts)})
    else:
        print(corpus_figure(manifest))
    return 0
