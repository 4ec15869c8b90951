"""`eyas tokens STORE stats|verify|skip`: token shards and their data plan."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .arguments import add_json, add_store, print_json

if TYPE_CHECKING:
    from eyas.store import Store

EXAMPLE = "eyas tokens ./runs/demo stats"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("verb", choices=("stats", "verify", "skip"))
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--samples", metavar="A:B", help="skip: leave these samples out of the plan (B is not)"
    )
    what.add_argument(
        "--block", metavar="KEY:N", help="skip: leave block N of this .tok object out of the plan"
    )
    parser.add_argument(
        "--from-step",
        metavar="S",
        type=int,
        help="skip: change the plan from this step on; left out, from the newest checkpoint on; "
        "earlier, the run goes back to a checkpoint before it",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import UsageError
    from eyas.store import open_store

    asked = args.samples or args.block or args.from_step is not None
    if (args.verb == "skip") != bool(args.samples or args.block) or (asked and args.verb != "skip"):
        raise UsageError(
            "`skip` needs one of --samples A:B and --block KEY:N, and other verbs none; "
            "see `eyas tokens --help`"
        )
    store = open_store(args.store)
    return {"stats": _stats, "verify": _verify, "skip": _skip}[args.verb](store, args)


def _stats(store: Store, args: argparse.Namespace) -> int:
    """Counts of the manifest, and how often the plan reads each source."""
    from eyas.recipe import EyasError
    from eyas.store import read_manifest
    from eyas.tokens import read_data_plan

    manifest = read_manifest(store, "tokens")
    planned = next(iter(store.list("data/plan-")), None) is not None
    if manifest is None and not planned:
        raise EyasError(f"{args.store} holds no tokens; make them with `eyas tokenize RECIPE`")
    figures: dict[str, Any] = dict(manifest.counters) | dict(manifest.facts) if manifest else {}
    if planned:
        plan = read_data_plan(store)
        figures["data_plan"] = {
            "version": plan.version,
            "steps": plan.steps,
            "tokens": plan.tokens,
            "epochs": plan.epochs(),
            "notes": plan.notes(),
        }
    if args.json:
        print_json(figures)
        return 0
    for name, value in figures.items():
        print(f"{name:<24} {value}")
    return 0


def _verify(store: Store, args: argparse.Namespace) -> int:
    """Every object against the manifest, every block against its record."""
    from eyas.tokens import verify_tokens

    report = verify_tokens(store)
    if args.json:
        print_json({"objects": report.objects, "problems": list(report.problems)})
    else:
        print("\n".join(report.problems) or f"{report.objects} objects whole")
    return 1 if report.problems else 0


def _skip(store: Store, args: argparse.Namespace) -> int:
    """A new version of the plan without those samples."""
    from eyas.checkpoint import list_commits
    from eyas.recipe import UsageError
    from eyas.tokens import skip_block, skip_samples

    done = max((commit.step for commit in list_commits(store)[-1:]), default=0)
    step = done if args.from_step is None else args.from_step
    head, _, number = (args.samples or args.block).rpartition(":")
    try:
        first, last = int(head) if args.samples else 0, int(number)
    except ValueError:
        raise UsageError("write --samples FIRST:STOP, two numbers, or --block KEY:NUMBER") from None
    amended = (
        skip_samples(store, first, last, step)
        if args.samples
        else skip_block(store, head, last, step)
    )
    figures = {
        "data_plan": amended.plan.version,
        "skipped_samples": amended.skipped,
        "from_step": step,
    }
    if args.json:
        print_json(figures)
        return 0
    print(
        f"data plan {amended.plan.version} skips {amended.skipped} samples more from step {step} on"
    )
    if step < done:
        print(f"the run is at step {done} and goes back to a checkpoint of step {step} or before")
    return 0
