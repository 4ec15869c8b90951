"""Peak memory and time of the output projection with cross-entropy, forward and backward, on this
CPU: ours, plain PyTorch and `F.linear_cross_entropy`.

    python bench/loss_memory.py [--tokens 4096] [--vocab 256000] [--d-model 768] [--rounds 5]
        [--threads 1] [--steps 1] [--accumulate] [--sides ours plain fused ...]

At its defaults the plain side needs 13 GB beyond the weights. Every measurement is a process of its
own, one after the other, in an order that turns with each round; figures are medians. All sides
have the same float32 features, weights and targets, in memory before the measurement begins, and
leave the gradients of both behind. The peak is the kernel's high-water mark beyond that beginning,
so it counts these gradients, whose size is shown, for all sides alike.

    ours     eyas.model.projected_loss, with z-loss
    into     the same, the head's gradient added into .grad (with --accumulate), as training does
    plain    F.linear, F.cross_entropy
    plain-z  the same with the z-loss by torch.logsumexp
    fused    F.linear_cross_entropy in chunks of as many rows as ours, without z-loss
    auto     F.linear_cross_entropy with its own choice of options, without z-loss
    whole    F.linear_cross_entropy without options, without z-loss

CPU-seconds are the process's, all threads together: on a machine that others use, one thread and
CPU-seconds repeat best. With `--steps` the last of so many runs is timed, in memory the process
already has; with `--accumulate` .grad exists before it begins, as in a training loop.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from eyas.model import projected_loss

Z_LOSS = 1e-4
ROWS = 512  # a chunk of `projected_loss`
WARM = (64, 1024)  # tokens, vocabulary: loads libraries and starts threads


def _ours(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    return projected_loss(x_ND, w_VD, targets_N, z_loss=Z_LOSS)[0]


def _into(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    gradient_VD = w_VD.grad
    assert gradient_VD is not None, "into needs --accumulate"
    return projected_loss(x_ND, w_VD, targets_N, z_loss=Z_LOSS, head_gradient_VD=gradient_VD)[0]


def _plain(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x_ND, w_VD), targets_N, reduction="sum")


def _plain_z(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    logits_NV = F.linear(x_ND, w_VD)
    z_loss = Z_LOSS * torch.logsumexp(logits_NV, 1).square().sum()
    return F.cross_entropy(logits_NV, targets_N, reduction="sum") + z_loss


def _linear_cross_entropy(options: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def side(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
        return F.linear_cross_entropy(x_ND, w_VD, targets_N, reduction="sum", options=options)

    return side


SIDES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "ours": _ours,
    "into": _into,
    "plain": _plain,
    "plain-z": _plain_z,
    "fused": _linear_cross_entropy(torch.nn.LinearCrossEntropyOptions(batch_chunk_size=ROWS)),
    "auto": _linear_cross_entropy(torch.nn.LinearCrossEntropyOptions()),
    "whole": _linear_cross_entropy(None),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=256_000)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--accumulate", action="store_true")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["ours", "plain", "fused"])
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(_measure(args)))
        return 0
    print(
        f"{args.tokens:,} tokens x {args.vocab:,} vocabulary, d_model {args.d_model}, float32, "
        f"{args.threads} threads, {args.rounds} rounds; gradients: "
        f"{4 * args.d_model * (args.tokens + args.vocab) / 2**20:,.0f} MiB"
    )
    found: dict[str, list[dict[str, float]]] = {side: [] for side in args.sides}
    for turn in range(args.rounds):
        start = turn % len(args.sides)
        for side in args.sides[start:] + args.sides[:start]:
            run = _in_a_process(side)
            found[side].append(run)
            print(f"round {turn + 1} {_told(side, run)}", file=sys.stderr, flush=True)
    rows = {side: _medians(runs) for side, runs in found.items()}
    base = rows.get("plain")
    for side, row in rows.items():
        if base:
            row["peak_to_plain"] = row["peak_bytes"] / base["peak_bytes"]
            row["cpu_to_plain"] = statistics.median(
                mine["cpu_s"] / theirs["cpu_s"]
                for mine, theirs in zip(found[side], found["plain"], strict=True)
            )
        print(_told(side, row))
    keys = ("tokens", "vocab", "d_model", "rounds", "threads", "steps", "accumulate")
    print(json.dumps({key: getattr(args, key) for key in keys} | {"sides": rows}))
    return 0


def _in_a_process(side: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], f"--side={side}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _told(side: str, row: dict[str, float]) -> str:
    ratios = ""
    if "peak_to_plain" in row:
        ratios = f"; {row['peak_to_plain']:.3f} and {row['cpu_to_plain']:.3f} of plain"
    return (
        f"{side:>8}: peak {row['peak_bytes'] / 2**20:8,.0f} MiB, {row['cpu_s']:7.2f} CPU-s, "
        f"{row['wall_s']:7.2f} s{ratios}; loss a token {row['loss']:.5f}"
    )


def _measure(args: argparse.Namespace) -> dict[str, float]:
    torch.set_num_threads(args.threads)
    run = SIDES[args.side]
    _steps(run, *_inputs(*WARM, args.d_model), args.accumulate, 1)
    inputs = _inputs(args.tokens, args.vocab, args.d_model)
    return _steps(run, *inputs, args.accumulate, args.steps)


def _inputs(tokens: int, vocab: int, d_model: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x_ND = torch.randn(tokens, d_model, generator=g).requires_grad_()
    w_VD = torch.randn(vocab, d_model, generator=g).mul_(0.02).requires_grad_()
    return x_ND, w_VD, torch.randint(0, vocab, (tokens,), generator=g)


def _steps(
    run: Callable[[Tensor, Tensor, Tensor], Tensor],
    x_ND: Tensor,
    w_VD: Tensor,
    targets_N: Tensor,
    accumulate: bool,
    steps: int,
) -> dict[str, float]:
    """Forward and backward `steps` times; the time of the last, the peak of all."""
    if accumulate:
        for leaf in (x_ND, w_VD):
            leaf.grad = torch.zeros_like(leaf)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew: proc(5)
    for _ in range(steps):
        cpu, wall = time.process_time(), time.perf_counter()
        total = run(x_ND, w_VD, targets_N)
        total.backward()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert x_ND.grad is not None
    assert w_VD.grad is not None
    return {
        "peak_bytes": _status("VmHWM") - before,
        "cpu_s": cpu,
        "wall_s": wall,
        "loss": float(total.detach()) / len(targets_N),
    }


def _status(field: str) -> int:
    """Bytes, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


if __name__ == "__main__":
    raise SystemExit(main())
