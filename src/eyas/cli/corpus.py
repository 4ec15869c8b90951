"""`eyas corpus STORE inspect`: the funnel, and documents or rejects to look at."""

from __future__ import annotations

import argparse
from typing import Any

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas corpus ./runs/demo inspect --language ar --limit 3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("verb", choices=("inspect", "what-if", "remove"))
    parser.add_argument("--language", default=None, help="documents of this language only")
    parser.add_argument("--limit", type=int, default=5, help="documents to show")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.corpus import read_documents
    from eyas.recipe import EyasError
    from eyas.store import open_store, read_manifest

    if args.verb != "inspect":
        raise EyasError(f"`{args.verb}` comes with the finished corpus room; `inspect` works")
    store = open_store(args.store)
    manifest = read_manifest(store, "corpus")
    if manifest is None:
        raise EyasError(f"{args.store} holds no corpus; make one with `eyas curate RECIPE`")
    shown: list[dict[str, Any]] = []
    for table in read_documents(store, manifest):
        for row in table.to_pylist():
            if args.language in (None, row["language"]) and len(shown) < args.limit:
                shown.append(row)
    if args.json:
        facts = {"counters": dict(manifest.counters), "facts": dict(manifest.facts)}
        print_json(facts | {"documents": shown})
        return 0
    for name, value in sorted(manifest.counters.items()):
        print(f"{name:<36} {value:>12,.0f}")
    for row in shown:
        print(f"\n{row['url']}  [{row['language']} {row['language_score']:.2f}, {row['split']}]")
        print("  " + row["text"][:400].replace("\n", "\n  "))
    return 0
