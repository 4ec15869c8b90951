"""Tokens a second of one training step under several layouts, beside PyTorch's own
DistributedDataParallel with the same network and optimizer, and where the seconds go.

    .venv/bin/python bench/train_scaling.py [--preset nano-5m] [--vocab 8192] [--sequence 256]
        [--sequences 16] [--steps 10] [--threads 2]

`--threads` is the total: each rank has its share. Ids come from a seed; no store, no checkpoint.
Each case is a process group of its own; seconds are rank 0's, medians over the steps after two to
warm up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CASES = ("one", "dp2", "tp2", "ddp2")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="nano-5m")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=16, help="of a global batch")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2, help="of all ranks together")
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        _rank(args)
        return 0
    print(
        f"{args.preset}, {args.sequences} x {args.sequence} tokens a step, {args.threads} threads"
    )
    for case in args.cases:
        print(_launch(case), flush=True)
    return 0


def _launch(case: str) -> str:
    ranks = 1 if case == "one" else 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", *sys.argv, f"--case={case}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return f"{case}: failed\n{done.stderr[-2000:]}"
    row = json.loads(lines[-1])
    phases = ", ".join(f"{name} {1000 * s:.1f}" for name, s in row["phases"].items() if s > 1e-5)
    return (
        f"{case:>5}: {row['tokens_per_s']:8,.0f} tokens/s, {1000 * row['seconds']:7.1f} ms a step "
        f"({phases}), loss {row['loss']:.4f}"
    )


def _rank(args: argparse.Namespace) -> None:
    import dataclasses

    import torch

    from eyas.shape import preset_shape

    ranks = int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, args.threads // ranks))
    shape = dataclasses.replace(preset_shape(args.preset), vocab_size=args.vocab)
    step, take, leave = (_ddp if args.case == "ddp2" else _engine)(args, shape)
    seconds, phases, loss = [], [], 0.0
    for number in range(args.steps + 2):
        take()
        began = time.perf_counter()
        loss = step(number)
        seconds.append(time.perf_counter() - began)
        phases.append(take())
    if os.environ["RANK"] == "0":
        median = statistics.median(seconds[2:])
        split = {n: statistics.median(p[n] for p in phases[2:]) for n in phases[0]}
        tokens = args.sequences * args.sequence
        row = {"seconds": median, "tokens_per_s": tokens / median, "phases": split, "loss": loss}
        print(json.dumps(row), flush=True)
    leave()


def _ids(args: argparse.Namespace, shape, rank: int, world: int):  # type: ignore[no-untyped-def]
    import torch

    generator = torch.Generator().manual_seed(1)
    size = (args.sequences, args.sequence + 1)
    ids = torch.randint(0, shape.vocab_size, size, generator=generator)
    part = args.sequences // world
    return ids[rank * part : (rank + 1) * part]


def _engine(args: argparse.Namespace, shape):  # type: ignore[no-untyped-def]
    import torch

    from eyas.recipe import Train
    from eyas.shape import Layout, slice_holders
    from eyas.train import Engine, Mesh

    world = int(os.environ["WORLD_SIZE"])
    tensor = 2 if args.case == "tp2" else 1
    shared = slice_holders(shape, tensor)["blocks.0.attention.key.weight"]
    mesh = Mesh(Layout(tensor, world // tensor, args.micro_batch), shared)
    engine = Engine(shape, mesh, Train())
    ids = _ids(args, shape, mesh.data_rank, mesh.layout.data)
    mask = torch.ones(ids.shape[0], args.sequence, dtype=torch.bool)
    return lambda n: engine.step(n, ids, mask, 1e-3).loss, mesh.clock.take, mesh.leave


def _ddp(args: argparse.Namespace, shape):  # type: ignore[no-untyped-def]
    """The plain way: DDP around the network, a mean loss, clip_grad_norm_, fused AdamW."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from eyas.model import initial_weights, network_from, projected_loss

    dist.init_process_group("gloo")
    network = network_from(shape, initial_weights(shape, 1))

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids):  # type: ignore[no-untyped-def]
            head = network.head_weight_VD
            return projected_loss(network.features(ids[:, :-1]), head, ids[:, 1:], None, 1e-4)[0]

    model = DistributedDataParallel(WithLoss(), gradient_as_bucket_view=True)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    ids = _ids(args, shape, dist.get_rank(), dist.get_world_size())
    parts = ids.split(args.micro_batch)
    count = ids.shape[0] * args.sequence

    def step(number: int) -> float:
        optimizer.zero_grad()
        total = 0.0
        for n, part in enumerate(parts):
            if n < len(parts) - 1:
                with model.no_sync():
                    loss = model(part) / count
                    loss.backward()
            else:
                loss = model(part) / count
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        box = torch.tensor([total])
        dist.all_reduce(box)
        return float(box) / dist.get_world_size()

    return step, lambda: {}, dist.destroy_process_group


if __name__ == "__main__":
    sys.exit(main())
