"""`eyas curate RECIPE`: package sources to WARC, crawl to documents; here, on Ray, or as one of N
array jobs that share nothing but the store."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from .arguments import add_json, add_recipe, load_recipe, print_json, recipe_store

if TYPE_CHECKING:
    from eyas.recipe import Recipe
    from eyas.work import Engine

EXAMPLE = (
    "eyas curate recipes/demo.toml\n  eyas curate RECIPE --shard $SLURM_ARRAY_TASK_ID/64 --wait"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument(
        "--engine", choices=("pool", "ray"), default="pool", help="who works (default pool)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="worker processes, 0 for one a core (default cluster.workers of the recipe)",
    )
    parser.add_argument(
        "--shard", metavar="I/N", help="do part I of N only, counted from 0; the store is shared"
    )
    parser.add_argument(
        "--wait", action="store_true", help="with --shard: stay until all parts are done"
    )
    parser.add_argument("--force", action="store_true", help="make it again though it is finished")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.corpus import curate, fetch_sources
    from eyas.work import NotYet

    from .stages import corpus_figure, forget

    recipe = load_recipe(args)
    engine = _engine(args, recipe)
    store = recipe_store(recipe)
    if args.force:
        forget(store, "corpus")
    fetch_sources(recipe, store)
    try:
        manifest = curate(recipe, store, engine, wait=args.wait)
    except NotYet as waiting:
        todo = f"part {args.shard} is done as far as it can be; {waiting}; run it again after them"
        if args.json:
            print_json({"waiting": todo})
        else:
            print(todo)
        return 0
    pages = [o.key for o in manifest.under("corpus/report-") if o.key.endswith(".html")]
    report = f"{store.url}/{pages[0]}"
    if args.json:
        facts = {"counters": dict(manifest.counters), "facts": dict(manifest.facts)}
        print_json(facts | {"report": report})
    else:
        print(corpus_figure(manifest))
        print(f"report: {report}")
    return 0


def _engine(args: argparse.Namespace, recipe: Recipe) -> Engine:
    from eyas.recipe import UsageError
    from eyas.work import Engine

    share = None
    if args.shard:
        numbers = re.fullmatch(r"(\d+)/(\d+)", args.shard)
        if not numbers:
            raise UsageError(f"--shard {args.shard}: write I/N, such as 0/8 for the first of eight")
        share = int(numbers[1]), int(numbers[2])
    if args.wait and not share:
        raise UsageError("--wait is for --shard I/N; without it nobody is waited for")
    if args.force and share:
        raise UsageError("--force would undo what the other parts do; force once, without --shard")
    workers = recipe.cluster.workers if args.workers is None else args.workers
    return Engine(args.engine, workers, share)
