"""`eyas board STORE…`: one static page to see it all."""

from __future__ import annotations

import argparse

EXAMPLE = "eyas board ./runs/demo --out board.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stores", metavar="STORE", nargs="+")
    parser.add_argument("--out", default="board.html", help="the page to write")


def run(args: argparse.Namespace) -> int:
    from eyas.board import write_board
    from eyas.store import open_store

    print(write_board([open_store(url) for url in args.stores], args.out))
    return 0
