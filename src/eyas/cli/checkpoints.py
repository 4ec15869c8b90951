"""`eyas checkpoints STORE list|verify`: what is committed, and whether it is whole."""

from __future__ import annotations

import argparse
import dataclasses

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas checkpoints ./runs/demo list"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("verb", choices=("list", "verify", "gc"))
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import list_commits, verify_commit
    from eyas.recipe import EyasError
    from eyas.store import open_store

    if args.verb == "gc":
        raise EyasError("`gc` comes with the finished checkpoint room; nothing is ever deleted now")
    store = open_store(args.store)
    rows, bad = [], 0
    for commit in list_commits(store):
        row = dataclasses.asdict(commit)
        if args.verb == "verify":
            row["problems"] = verify_commit(store, commit)
            bad += bool(row["problems"])
        rows.append(row)
    if args.json:
        print_json(rows)
        return 1 if bad else 0
    for row in rows:
        state = "; ".join(row.get("problems", [])) or ("whole" if args.verb == "verify" else "")
        print(f"{row['attempt']}-{row['step']:<12} {row['key']}  {state}")
    if not rows:
        print(f"{args.store} holds no checkpoint")
    return 1 if bad else 0
