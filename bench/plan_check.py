"""The plan held against real training steps: `python bench/plan_check.py --preset nano-5m`.

Starts the ranks of the plan, each with the real network, loss, gradients in one vector, AdamW and
gloo all-reduces (data parallel), and prints planned beside measured: seconds a step (median wall
time of the slowest rank), peak memory a rank. Plan and run alternate `--pairs` times, because other
work on the machine changes what both find.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from eyas.plan import compare, make_plan
from eyas.recipe import Recipe


def rank(number: int, world: int, recipe: Recipe, plan: dict, folder: str) -> None:
    """One rank: a few steps; writes what it saw."""
    import torch
    import torch.distributed as dist

    from eyas.model import initial_weights, network_from, projected_loss
    from eyas.shape import model_shape

    torch.set_num_threads(plan["threads"])
    if world > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["PLAN_CHECK_PORT"]}
        dist.init_process_group("gloo", rank=number, world_size=world)
    shape = model_shape(recipe, recipe.tokenizer.vocab_size)
    network = network_from(shape, initial_weights(shape, 1)).requires_grad_(True)
    parameters = list(network.parameters())
    weights = torch.cat([p.data.flatten() for p in parameters])
    gradients = torch.zeros_like(weights)
    start = 0
    for p in parameters:
        p.data = weights[start : start + p.numel()].view(p.shape)
        p.grad = gradients[start : start + p.numel()].view(p.shape)
        start += p.numel()
    vector = torch.nn.Parameter(weights)
    vector.grad = gradients
    optimizer = torch.optim.AdamW([vector], lr=1e-3, fused=True)
    micro, sequence = plan["layout"]["micro_batch"], plan["sequence"]
    passes = plan["global_batch"] // sequence // plan["layout"]["data"] // micro
    took = []
    for step in range(5):
        if world > 1:
            dist.barrier()
        begin = time.perf_counter()
        gradients.zero_()
        for _ in range(passes):
            ids = torch.randint(0, shape.vocab_size, (micro, sequence + 1))
            documents = torch.zeros(micro, sequence, dtype=torch.int64)
            features = network.features(ids[:, :-1], document_ids=documents)
            total, count = projected_loss(features, network.head_weight_VD, ids[:, 1:], None, 1e-4)
            total.backward()
        if world > 1:
            dist.all_reduce(gradients)
        gradients.mul_(1.0 / float(count * passes * world))
        gradients.mul_(min(1.0, 1.0 / float(gradients.norm())))
        optimizer.step()
        if step:
            took.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seen = {"step_seconds": statistics.median(took), "peak_memory": peak}
    Path(folder, f"{number}.json").write_text(json.dumps(seen), encoding="utf-8")


def run(recipe: Recipe, plan: dict) -> dict[str, float]:
    """All ranks; the slowest and the largest."""
    world = plan["layout"]["world"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = str(plan["threads"])
        context = mp.get_context("spawn")
        ranks = [
            context.Process(target=rank, args=(n, world, recipe, plan, folder))
            for n in range(world)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        seen = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(Path(folder).iterdir())]
    return {key: max(one[key] for one in seen) for key in seen[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="nano-5m")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=16, help="of the global batch")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    os.environ.setdefault("PLAN_CHECK_PORT", str(29_600 + os.getpid() % 300))
    recipe = Recipe.build(
        {
            "name": "plan-check",
            "store": "unused",
            "tokenizer": {"vocab_size": args.vocab},
            "data": {"sequence": args.sequence},
            "model": {"preset": args.preset},
            "train": {"tokens": "1M", "global_batch": args.sequences * args.sequence},
            "layout": {"micro_batch": args.micro_batch},
            "cluster": {"processes": args.processes},
        }
    )
    ratios: dict[str, list[float]] = {}
    for _ in range(args.pairs):
        plan = make_plan(recipe).to_dict()
        actual = run(recipe, plan)
        for row in compare(plan, actual):
            ratios.setdefault(row.name, []).append(row.ratio)
            print(
                f"{row.name}: {row.planned_text} planned, {row.actual_text} taken, {row.ratio:.2f}"
            )
    for name, values in ratios.items():
        print(f"{name}: median ratio {statistics.median(values):.2f}")


if __name__ == "__main__":
    main()
