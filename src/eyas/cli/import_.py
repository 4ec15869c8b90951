"""`eyas import DIR STORE`: a Hugging Face folder as a committed checkpoint."""

from __future__ import annotations

import argparse

EXAMPLE = "eyas import ./demo-hf s3://bucket/imported"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a Hugging Face folder (safetensors)")
    parser.add_argument("store", metavar="STORE", help="s3://bucket/prefix or a folder")


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import import_hf
    from eyas.store import open_store
    from eyas.work import progress

    with progress("import", 1) as advance:
        commit = import_hf(args.folder, open_store(args.store))
        advance(1)
    print(f"committed {args.store}@{commit.attempt}-{commit.step}")
    return 0
