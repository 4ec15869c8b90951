"""`eyas tokens STORE stats|verify`: token shards and their data plan."""

from __future__ import annotations

import argparse

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas tokens ./runs/demo stats"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("verb", choices=("stats", "verify"))
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError
    from eyas.store import open_store, read_manifest, read_object

    store = open_store(args.store)
    manifest = read_manifest(store, "tokens")
    if manifest is None:
        raise EyasError(f"{args.store} holds no tokens; make them with `eyas tokenize RECIPE`")
    if args.verb == "verify":
        for reference in manifest.objects:
            read_object(store, reference)
        if args.json:
            print_json({"objects": len(manifest.objects), "problems": []})
        else:
            print(f"{len(manifest.objects)} objects whole")
        return 0
    figures = dict(manifest.counters) | dict(manifest.facts)
    if args.json:
        print_json(figures)
        return 0
    for name, value in figures.items():
        print(f"{name:<24} {value}")
    return 0
