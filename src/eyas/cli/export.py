"""`eyas export CHECKPOINT DIR`: a Hugging Face folder, checked against transformers."""

from __future__ import annotations

import argparse

from .arguments import add_json, print_json

EXAMPLE = "eyas export ./runs/demo@latest ./demo-hf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="STORE[@latest|@STEP|@ATTEMPT-STEP]"
    )
    parser.add_argument("folder", metavar="DIR", help="a folder that is not there yet")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import dataclasses

    from eyas.checkpoint import export_hf
    from eyas.work import progress

    from .stages import export_figure

    with progress("export", 1) as advance:
        report = export_hf(args.checkpoint, args.folder)
        advance(1)
    if args.json:
        print_json(dataclasses.asdict(report) | {"folder": str(report.folder)})
    else:
        print(export_figure(report))
    return 0
