"""`eyas import DIR STORE`: a Hugging Face folder as a committed checkpoint."""

from __future__ import annotations

import argparse

from .arguments import add_json, print_json

EXAMPLE = """eyas import ./falcon-7b s3://bucket/falcon-7b
  eyas import ./llama ./runs/llama --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", help="a Hugging Face folder (Falcon, Llama or GPT-2; safetensors)"
    )
    parser.add_argument("store", metavar="STORE", help="s3://bucket/prefix or a folder")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import import_hf
    from eyas.shape import ModelShape, parameters
    from eyas.store import open_store

    commit = import_hf(args.folder, open_store(args.store))
    facts, count = commit.facts, parameters(ModelShape.from_dict(commit.facts["shape"]))
    reference = f"{args.store}@{commit.attempt}-{commit.step}"
    kept = ("family", "shape", "dtypes", "tokenizer", "tokenizer_not_taken", "special_ids")
    if args.json:
        report = {"reference": reference, "parameters": count} | {n: facts[n] for n in kept}
        print_json(report | {"licences": list(facts["licences"])})
        return 0
    print(f"committed {reference}")
    print(f"{facts['family']}, {count:,} parameters, files in {facts['dtypes']['default']}")
    if facts["tokenizer_not_taken"]:
        print(f"the tokenizer was NOT taken: {facts['tokenizer_not_taken']}")
        print("weights are all there; ask the model in token ids")
    elif facts["tokenizer"] is None:
        print("without a tokenizer: the folder has none")
    names = ", ".join(facts["licences"])
    print(f"licence files kept: {names}" if names else "no licence file in the folder")
    return 0
