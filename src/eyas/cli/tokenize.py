"""`eyas tokenize RECIPE`: the tokenizer, token shards and the data plan."""

from __future__ import annotations

import argparse

from .arguments import add_json, add_recipe, load_recipe, print_json, recipe_store

EXAMPLE = "eyas tokenize recipes/demo.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.tokens import check_sources, make_data_plan, train_tokenizer, write_tokens

    from .stages import tokenizer_figure, tokens_figure, tokens_notes

    recipe = load_recipe(args)
    check_sources(recipe)
    store = recipe_store(recipe)
    tokenizer = train_tokenizer(recipe, store)
    tokens = write_tokens(recipe, store, workers=recipe.cluster.workers)
    plan = make_data_plan(recipe, store)
    if args.json:
        print_json(
            {
                "tokenizer": dict(tokenizer.facts),
                "tokens": dict(tokens.facts) | dict(tokens.counters) if tokens else None,
                "data_plan": plan.version,
                "steps": plan.steps,
                "epochs": plan.epochs(),
                "notes": tokens_notes(tokens, plan) + plan.notes(),
            }
        )
    else:
        print(tokenizer_figure(tokenizer))
        print(tokens_figure(tokens, plan))
        for note in tokens_notes(tokens, plan):
            print(note)
    return 0
