"""`eyas tokenizer STORE inspect`: what was learned."""

from __future__ import annotations

import argparse

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas tokenizer ./runs/demo inspect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("verb", choices=("inspect", "compare"))
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError
    from eyas.store import open_store, read_manifest

    if args.verb == "compare":
        raise EyasError("`compare` comes with the finished tokenizer room; `inspect` works")
    manifest = read_manifest(open_store(args.store), "tokenizer")
    if manifest is None:
        raise EyasError(f"{args.store} holds no tokenizer; make one with `eyas tokenize RECIPE`")
    facts = dict(manifest.facts)
    if args.json:
        print_json(facts)
        return 0
    for name, value in facts.items():
        if isinstance(value, dict):
            print(name)
            for key, inner in value.items():
                print(f"  {key:<10} {inner}")
        else:
            print(f"{name:<24} {value}")
    return 0
