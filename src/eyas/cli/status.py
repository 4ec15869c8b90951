"""`eyas status STORE`: what is done, running, missing."""

from __future__ import annotations

import argparse
import dataclasses

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas status s3://bucket/run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError
    from eyas.store import open_store, status

    store = open_store(args.store)
    if next(store.list(), None) is None:
        raise EyasError(f"{args.store} holds nothing yet, or is not there")
    rows = status(store)
    if args.json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        for row in rows:
            print(f"{row.room:<12} {row.state:<9} {row.created:<21} {row.detail}")
    return 1 if any(row.state == "damaged" for row in rows) else 0
