"""`eyas tokens STORE stats|verify|skip`: token shards and their data plan."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arguments import add_json, add_store, print_json

if TYPE_CHECKING:
    from eyas.store import Manifest, Store
    from eyas.tokens import DataPlan

EXAMPLE = "eyas tokens ./runs/demo stats"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "verb",
        choices=("stats", "verify", "skip"),
        help="stats: tokens by source, split and language, epochs under the plan; verify: read and "
        "compare all of it; skip: a new version of the plan without a block or some samples",
    )
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
    """Counts of the manifest, and how often the plan reads each source; `--json` has all facts."""
    from eyas.recipe import EyasError
    from eyas.store import read_manifest
    from eyas.tokens import read_data_plan

    manifest = read_manifest(store, "tokens")
    planned = next(iter(store.list("data/plan-")), None) is not None
    if manifest is None and not planned:
        raise EyasError(f"{args.store} holds no tokens; make them with `eyas tokenize RECIPE`")
    plan = read_data_plan(store) if planned else None
    if not args.json:
        print(_stats_text(manifest, plan))
        return 0
    figures: dict[str, Any] = dict(manifest.counters) | dict(manifest.facts) if manifest else {}
    if plan is not None:
        figures["data_plan"] = {
            "version": plan.version,
            "steps": plan.steps,
            "tokens": plan.tokens,
            "epochs": plan.epochs(),
            "notes": plan.notes(),
        }
    print_json(figures)
    return 0


def _stats_text(manifest: Manifest | None, plan: DataPlan | None) -> str:
    lines = [*_source_table(manifest, plan), ""]
    if manifest is not None:
        facts = manifest.facts
        lines += [*_language_table(facts["languages"]), ""]
        left, broken = (int(manifest.counters.get(name, 0)) for name in ("left_out", "broken"))
        lines += [
            f"left out    {left:,} documents of the corpus that no source takes",
            f"broken      {broken:,} records of foreign files that could not be read",
            f"tokens      version {manifest.version}, {facts['dtype']}, blocks of "
            f"{facts['block_bytes']:,} bytes",
            f"tokenizer   {facts['tokenizer'][:12]}, {facts['vocab_size']:,} items; the highest id "
            f"is {facts['highest_id']:,}",
        ]
    if plan is None:
        return "\n".join([*lines, "data plan   none yet"])
    skipped = f", {len(plan.skips)} skipped by operators" if plan.skips else ""
    lines.append(
        f"data plan   version {plan.version}: {plan.steps:,} steps, {plan.tokens:,} tokens, "
        f"{len(plan.segments)} segments{skipped}"
    )
    return "\n".join([*lines, *(f"note        {note}" for note in plan.notes())])


def _source_table(manifest: Manifest | None, plan: DataPlan | None) -> list[str]:
    """A row a source and split; sources of other stores have what the plan knows of them."""
    read = plan.epochs() if plan else {}
    facts = manifest.facts["sources"] if manifest else {}
    made = {name: facts[name] for name in sorted(facts, key=[*read, *sorted(facts)].index)}
    others = [s for s in plan.segments[-1].sources if s.store] if plan else []
    rows = [("source", "split", "documents", "tokens", "bytes", "epochs", "")]
    for name, splits in made.items():
        for split, row in splits.items():
            counts = (f"{row[kind]:,}" for kind in ("documents", "tokens", "bytes"))
            epochs = f"{read[name]:.2f}" if split == "train" and name in read else "–"
            rows.append((name, split, *counts, epochs, ""))
    for s in others:
        where = f"of {s.store}"
        rows.append(
            (s.name, "train", "–", f"{s.epoch_tokens:,}", "–", f"{read[s.name]:.2f}", where)
        )
    if len(made) > 1:
        for split in next(iter(made.values())):
            sums = (
                f"{sum(splits[split][kind] for splits in made.values()):,}"
                for kind in ("documents", "tokens", "bytes")
            )
            rows.append(("all here", split, *sums, "–", ""))
    return _columns(rows)


def _language_table(languages: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Tokens by language and split, the largest language first."""
    names = {name for counts in languages.values() for name in counts}
    order = sorted(names, key=lambda n: (-sum(c.get(n, 0) for c in languages.values()), n))
    rows = [("language", *(f"{split} tokens" for split in languages))]
    rows += [(n, *(f"{counts.get(n, 0):,}" for counts in languages.values())) for n in order]
    return _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Figures to the right; what begins with a letter in the head's row below to the left."""
    left = [any(row[i][:1].isalpha() for row in rows[1:]) for i in range(len(rows[0]))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at_left else cell.rjust(width)
            for cell, width, at_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in rows
    ]


def _verify(store: Store, args: argparse.Namespace) -> int:
    """Every object against the manifest, every block against its record."""
    from eyas.tokens import verify_tokens

    report = verify_tokens(store)
    if args.json:
        print_json({"objects": report.objects, "problems": list(report.problems)})
    else:
        print("\n".join(report.problems) or _whole(store, report.objects))
    return 1 if report.problems else 0


def _whole(store: Store, objects: int) -> str:
    """What was read, and the stores in which the plan reads more."""
    from eyas.tokens import read_data_plan

    planned = next(iter(store.list("data/plan-")), None) is not None
    sources = read_data_plan(store).segments[-1].sources if planned else ()
    others = list(dict.fromkeys(s.store for s in sources if s.store))
    elsewhere = f"; verify those of {', '.join(others)} there" if others else ""
    return f"{objects} objects whole{elsewhere}"


def _skip(store: Store, args: argparse.Namespace) -> int:
    """A new version of the plan without those samples."""
    from eyas.checkpoint import list_commits
    from eyas.recipe import UsageError
    from eyas.tokens import read_data_plan, skip_block, skip_samples

    steps = [commit.step for commit in list_commits(store)]
    done = steps[-1] if steps else 0
    step = done if args.from_step is None else args.from_step
    if args.from_step is None and done and done >= read_data_plan(store).steps:
        raise UsageError(
            f"the run in {args.store} has done all {done} steps of its plan, so nothing is to "
            "come; go back with --from-step"
        )
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
        there = any(0 < found <= step for found in steps)
        print(
            f"the run is at step {done} and "
            + (f"goes back to a checkpoint of step {step} or before" if there else "begins anew")
        )
    return 0
