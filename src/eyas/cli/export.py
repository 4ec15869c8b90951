"""`eyas export CHECKPOINT DIR`: a Hugging Face folder, checked against transformers."""

from __future__ import annotations

import argparse

from .arguments import add_json, print_json

EXAMPLE = """eyas export ./runs/demo@latest ./demo-hf
  eyas export s3://bucket/run@2000 ./release --dtype bfloat16 --licence Apache-2.0
  eyas export ./imported ./again --licence ./LICENSE.txt --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="STORE[@latest|@STEP|@ATTEMPT-STEP]"
    )
    parser.add_argument("folder", metavar="DIR", help="a folder that is not there yet")
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="of the weights; auto: what an import had, else float32; a narrower one is rounded to "
        "and the report says by how much that moves logits",
    )
    parser.add_argument(
        "--licence",
        metavar="FILE|SPDX",
        help="a text, or an id such as Apache-2.0; left out: model.licence of the recipe, or what "
        "came with an import",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import dataclasses

    from eyas.checkpoint import export_hf

    from .stages import export_figure

    report = export_hf(args.checkpoint, args.folder, args.dtype, args.licence)
    if args.json:
        print_json(dataclasses.asdict(report) | {"folder": str(report.folder)})
        return 0
    print(export_figure(report))
    print(f"compared on {report.compared_on}")
    size = f"{len(report.files)} files, {report.bytes:,} bytes, weights {report.dtype}"
    if report.rounded:
        moved = f"which moved logits by at most {report.logits_moved:.3g}"
        size += f" ({report.rounded:,} rounded, {moved})"
    print(size)
    print(f"licence: {report.licence or 'none stated, so none is granted; see --licence'}")
    if not report.tokenizer:
        print("without a tokenizer: the checkpoint has none")
    return 0
