"""`eyas verify STORE`: walk every manifest, commit and checksum."""

from __future__ import annotations

import argparse
import dataclasses

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas verify ./runs/demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError, format_bytes
    from eyas.store import open_store, verify
    from eyas.work import progress

    store = open_store(args.store)
    with progress("verify", sum(o.size for o in store.list())) as advance:
        report = verify(store, advance)
    if not report.objects and not report.problems:
        raise EyasError(f"{args.store} holds nothing that a manifest or commit vouches for")
    if args.json:
        print_json(dataclasses.asdict(report))
    else:
        for problem in report.problems:
            print(f"BAD   {problem}")
        print(
            f"{report.objects} objects, {format_bytes(report.bytes)} verified, "
            f"{len(report.problems)} problems"
        )
    return 1 if report.problems else 0
