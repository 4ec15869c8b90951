"""Tokens a second of one whole training step (forward, loss, backward, clipping, AdamW) on this
CPU, ours and rivals in turn: Hugging Face's Falcon and a plain GPT, each eager and compiled.

    python bench/train_step.py [--preset nano-125m] [--batch 2] [--sequence 512] [--pairs 7]
        [--threads 2] [--rivals hf hf-compiled gpt gpt-compiled] [--rival-pages stock|kept]

Ours is `eyas.train.Engine.step` on one rank, as a run does it. Rivals have SDPA, fused AdamW,
`clip_grad_norm_` and two steps to warm up (compilers three). All are float32, see the same ids and
have as many threads; none has a z-loss. The GPT has its own key and value for each head, learned
positions, sequential blocks and two LayerNorms, and a narrower MLP, so that its matrices have
as many numbers. Each side lives in a process of its own and steps on command, strictly one at a
time, the first of a pair changing, so that both see the same noise; ratios are of pairs. With
`--rival-pages kept` the rivals get the same setting of the allocator as a run of ours (without: as
their users start them).

On a machine that others use at the same time, `OMP_WAIT_POLICY=passive` keeps waiting threads from
counting as work, and the figures in CPU-seconds (the process's, all threads) are the ones to read.

The matmul rate is that of `torch.mm` on the network's own products with weights, forward and both
backward, all tokens of the batch at once, measured after each pair. The share of it counts the
FLOPs of `eyas.shape.flops_per_token`; `weights` is the share without the products of attention.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eyas.shape import ModelShape, flops_per_token, matmul_parameters, preset_shape

RIVALS = ("hf", "hf-compiled", "gpt", "gpt-compiled")
LR, BETAS, DECAY, CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0


class Side:
    """A process that does something on command and says how long it took."""

    def __init__(self, name: str, pages: str) -> None:
        command = [sys.executable, __file__, *sys.argv[1:], f"--side={name}", f"--pages={pages}"]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def go(self) -> dict[str, float]:
        """What the process measured this time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with {self._process.wait()}")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="nano-125m")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rivals", nargs="*", default=RIVALS, choices=RIVALS)
    parser.add_argument("--rival-pages", default="stock", choices=("stock", "kept"))
    parser.add_argument("--side", choices=("ours", "matmul", *RIVALS), help=argparse.SUPPRESS)
    parser.add_argument("--pages", choices=("stock", "kept"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        _side(args)
        return 0
    shape = preset_shape(args.preset)
    tokens = args.batch * args.sequence
    print(f"{args.preset}, {args.batch} x {args.sequence} tokens a step, {args.threads} threads")
    ours, matmul = Side("ours", "kept"), Side("matmul", "stock")
    _warm(ours, 3)
    _warm(matmul, 1)
    rows: dict[str, Any] = {}
    mine: list[dict[str, float]] = []
    rates: list[dict[str, float]] = []
    for name in args.rivals:
        rival = Side(name, args.rival_pages)
        _warm(rival, 3 if name.endswith("compiled") else 2)
        pairs = []
        for number in range(args.pairs):
            order = (ours, rival) if number % 2 else (rival, ours)
            done = {side.name: side.go() for side in order}
            pairs.append((done["ours"], done[name]))
            rates.append(matmul.go())
        rival.end()
        mine += [one for one, _ in pairs]
        rows[name] = _row(pairs, tokens)
        print(_told(name, rows[name]), flush=True)
    ours.end()
    matmul.end()
    result = {
        "preset": args.preset,
        "batch": args.batch,
        "sequence": args.sequence,
        "threads": args.threads,
        "rival_pages": args.rival_pages,
        "peak_rss": max(one["peak_rss"] for one in mine),
        "rivals": rows,
    }
    whole = tokens * flops_per_token(shape, args.sequence)
    weights = tokens * 6.0 * matmul_parameters(shape)
    for kind, unit in (("seconds", "a second"), ("cpu_seconds", "a CPU-second")):
        step = statistics.median(one[kind] for one in mine)
        speeds = sorted(one["flops"] / one[kind] for one in rates)
        rate = statistics.median(speeds)
        result[kind] = {
            "step": step,
            "tokens_per_s": tokens / step,
            "matmul_rate": rate,
            "share": whole / step / rate,
            "share_weights": weights / step / rate,
        }
        print(
            f"ours: {tokens / step:.1f} tokens {unit} ({step:.2f} a step); torch.mm "
            f"{rate / 1e9:.1f} GFLOP {unit} ({speeds[0] / 1e9:.1f} to {speeds[-1] / 1e9:.1f}), "
            f"share {whole / step / rate:.1%} (weights {weights / step / rate:.1%})"
        )
    print(f"ours: peak RSS {result['peak_rss'] / 2**30:.2f} GiB")
    print(json.dumps(result))
    return 0


def _warm(side: Side, steps: int) -> None:
    for _ in range(steps):
        side.go()


def _row(pairs: list[tuple[dict[str, float], dict[str, float]]], tokens: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "parameters": pairs[0][1]["parameters"],
        "peak_rss": max(theirs["peak_rss"] for _, theirs in pairs),
    }
    for kind in ("seconds", "cpu_seconds"):
        ratios = sorted(theirs[kind] / mine[kind] for mine, theirs in pairs)
        theirs = statistics.median(theirs[kind] for _, theirs in pairs)
        row[kind] = {
            "step": theirs,
            "tokens_per_s": tokens / theirs,
            "ours": statistics.median(mine[kind] for mine, _ in pairs),
            "ratio": statistics.median(ratios),
            "low": ratios[0],
            "high": ratios[-1],
        }
    return row


def _told(name: str, row: dict[str, Any]) -> str:
    wall, cpu = row["seconds"], row["cpu_seconds"]
    return (
        f"{name:>12}: {wall['tokens_per_s']:6.1f} tokens/s, ours {wall['ratio']:.3f} times that "
        f"({wall['low']:.3f} to {wall['high']:.3f}); {cpu['step']:.2f} CPU-s a step, "
        f"{cpu['ratio']:.3f} times ours ({cpu['low']:.3f} to {cpu['high']:.3f}); peak RSS "
        f"{row['peak_rss'] / 2**30:.2f} GiB; {row['parameters']:,.0f} parameters"
    )


def _side(args: argparse.Namespace) -> None:
    """One measurement for each line on standard input."""
    import torch

    if args.pages == "kept":
        from eyas.train import keep_pages

        keep_pages()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    shape = preset_shape(args.preset)
    if args.side == "matmul":
        measure = _matmul(shape, args.batch * args.sequence)
    else:
        ids = torch.randint(0, shape.vocab_size, (args.batch, args.sequence + 1))
        step, parameters = (_ours if args.side == "ours" else _rival)(args, shape, ids)
        measure = _timed(step, parameters)
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)


def _timed(step: Callable[[], float], parameters: int) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        began, cpu_began = time.perf_counter(), time.process_time()
        loss = step()
        return {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu_began,
            "loss": loss,
            "parameters": parameters,
            "peak_rss": _peak_rss(),
        }

    return measure


def _peak_rss() -> int:
    """Bytes; the kernel's own high-water mark of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def _matmul(shape: ModelShape, tokens: int) -> Callable[[], dict[str, float]]:
    """FLOP/s over the products of a step: each matrix forward, for the input's gradient and for its
    own, as often as a step has them."""
    import collections

    import torch

    from eyas.shape import parameter_table

    table = parameter_table(shape)
    sizes = collections.Counter(
        size for name, size in table.items() if len(size) == 2 and name.startswith("blocks.")
    )
    sizes[shape.vocab_size, shape.d_model] += 1
    cases = [
        (torch.randn(tokens, cols), torch.randn(rows, cols), torch.randn(tokens, rows), many)
        for (rows, cols), many in sizes.items()
    ]

    def measure() -> dict[str, float]:
        flops = seconds = cpu_seconds = 0.0
        for x, weight, gradient, many in cases:
            repeat = min(3, many)
            for one, other in ((x, weight.T), (gradient, weight), (gradient.T, x)):
                out = torch.mm(one, other)
                began, cpu_began = time.perf_counter(), time.process_time()
                for _ in range(repeat):
                    torch.mm(one, other, out=out)
                seconds += (time.perf_counter() - began) * many / repeat
                cpu_seconds += (time.process_time() - cpu_began) * many / repeat
                flops += 2.0 * tokens * weight.numel() * many
        return {"flops": flops, "seconds": seconds, "cpu_seconds": cpu_seconds}

    return measure


def _ours(args: argparse.Namespace, shape: ModelShape, ids: Any) -> tuple[Callable[[], float], int]:
    import torch

    from eyas.recipe import Train
    from eyas.shape import Layout, parameters
    from eyas.train import Engine, Mesh

    keys = Train(
        z_loss=0.0, weight_decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], grad_clip=CLIP, lr=LR
    )
    engine = Engine(shape, Mesh(Layout(micro_batch=args.batch)), keys)
    mask = torch.ones(args.batch, args.sequence, dtype=torch.bool)
    return lambda: engine.step(0, ids, mask, LR).loss, parameters(shape)


def _rival(
    args: argparse.Namespace, shape: ModelShape, ids: Any
) -> tuple[Callable[[], float], int]:
    """The usual loop of a training script."""
    import torch

    network = _falcon(shape) if args.side.startswith("hf") else _gpt(shape, args.sequence)
    network.train()
    count = sum(p.numel() for p in network.parameters())
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY, fused=True
    )
    run = torch.compile(network) if args.side.endswith("compiled") else network

    def step() -> float:
        loss = run(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step, count


def _falcon(shape: ModelShape) -> Any:
    """Hugging Face's, of the same shape, with its own loss; given `shift_labels` it takes the
    targets as they are, so that as many positions count as with ours."""
    import torch
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        ffn_hidden_size=shape.d_ff,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        bias=False,
        alibi=False,
        use_cache=False,
    )
    network = FalconForCausalLM(config)

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            # `shift_labels`: the targets as they are, so that no position goes unused.
            targets = ids[:, 1:].contiguous()
            out = self.network(
                input_ids=ids[:, :-1], labels=targets, shift_labels=targets, use_cache=False
            )
            return out.loss

    return WithLoss()


def _gpt(shape: ModelShape, sequence: int) -> Any:
    """A plain GPT-2 without biases, written as one would: one product for query, key and value,
    SDPA, cross-entropy over all logits."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    D, H = shape.d_model, shape.n_heads
    matrices = matmul_parameters(shape) - shape.vocab_size * D
    d_ff = (matrices // shape.n_layers - 4 * D * D) // (2 * D)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
            self.up, self.down = nn.Linear(D, d_ff, bias=False), nn.Linear(d_ff, D, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            B, T, _ = x.shape
            q, k, v = (
                part.view(B, T, H, D // H).transpose(1, 2)
                for part in self.qkv(self.norm_1(x)).split(D, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
            return x + self.down(F.gelu(self.up(self.norm_2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocab_size, D)
            self.positions = nn.Embedding(sequence, D)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.n_layers))
            self.norm = nn.LayerNorm(D)
            self.head = nn.Linear(D, shape.vocab_size, bias=False)
            self.head.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids: Tensor) -> Tensor:
            places = torch.arange(ids.shape[1] - 1, device=ids.device)
            x = self.tokens(ids[:, :-1]) + self.positions(places)
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return GPT()


if __name__ == "__main__":
    sys.exit(main())
