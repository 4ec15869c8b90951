"""`eyas doctor STORE`: what this store can do, tried out."""

from __future__ import annotations

import argparse
import dataclasses

from .arguments import add_json, add_store, print_json

EXAMPLE = "eyas doctor s3://bucket/run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.store import doctor, open_store
    from eyas.work import progress

    with progress("doctor", 1) as advance:
        findings = doctor(open_store(args.store))
        advance(1)
    if args.json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{'good' if finding.ok else 'BAD ':<5} {finding.name:<22} {finding.detail}")
    return 0 if all(finding.ok for finding in findings) else 1
