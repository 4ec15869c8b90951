"""What a step costs one rank, by arithmetic: bytes by kind, seconds by kind. Pure.

Memory counts what a rank keeps: weights, gradients and AdamW's two moments (all float32), and what
backward needs of every layer, tensor by tensor as autograd saves them (a test counts them in the
real network). Time counts FLOPs of the matrices and of attention (Narayanan et al. 2021, without
recomputation) and everything else (norms, GELU, rotary, softmax, optimizer) as so many FLOPs of
matrix product a number: on one core all of these go with the speed of the core, so one measured
rate carries them. The constants were fitted once, on one CPU, by `bench/plan_fit.py`; they are
never fitted to a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eyas.shape import Layout, ModelShape, tensor_slices

__all__ = ["Work", "memory_by_kind", "seconds_by_kind"]

# Bytes.
# Python, torch with its optimizers, readers of data, and what start, saving and evaluation leave
# with the allocator: before any weight.
_PROCESS = 410 * 2**20
_LOSS_CHUNK = 16 * 2**20  # logits that `eyas.model.projected_loss` holds at once ...
_LOSS_ROWS = 512  # ... or of so many tokens, where that is more
_ALLOCATOR = 1.1  # freed blocks that the allocator keeps, on what comes and goes

# Share of NumPy's matmul rate that torch reaches in the products of a step.
_MATMUL = 0.90
# Attention's FLOPs against those of a matrix product; torch's CPU kernel takes keys in blocks of so
# many and skips a block that the causal mask hides.
_ATTENTION = 1.6
_KEY_BLOCK = 512
# FLOPs of matrix product that the other work on one number takes.
_A_NUMBER = 130.0  # a number that passes through a block
_A_LOGIT = 600.0  # softmax, cross-entropy and z-loss, with their gradient
_A_PARAMETER = 200.0  # gradient norm and AdamW
# Seconds.
_A_BLOCK = 2e-3  # dispatch of a block's operations, forward and backward, a micro-batch
_A_MESSAGE = 0.5e-3  # latency of a collective between processes of one machine
_LINK = 1.0e9  # bytes/s of an all-reduce between processes of one machine


@dataclass(frozen=True)
class Work:
    """What a rank does in a step: the model, its layout, tokens a sample, samples of one data rank,
    bytes of a number in the forward pass (4 float32, 2 bfloat16)."""

    shape: ModelShape
    layout: Layout
    sequence: int
    sequences: int
    number_bytes: int = 4

    @property
    def micro_batches(self) -> int:
        """Forward passes a step."""
        return -(-self.sequences // self.layout.micro_batch)

    @property
    def micro_tokens(self) -> int:
        """Tokens a forward pass."""
        return self.layout.micro_batch * self.sequence

    @property
    def tokens(self) -> int:
        """Tokens of one data rank a step."""
        return self.sequences * self.sequence


def memory_by_kind(work: Work) -> dict[str, int]:
    """Peak bytes of one rank, by kind."""
    numbers = sum(math.prod(size) for _, size in _slices(work).values())
    chunk = min(
        max(_LOSS_CHUNK, 4 * _LOSS_ROWS * work.shape.vocab_size),
        4 * work.micro_tokens * work.shape.vocab_size,
    )
    widest = work.micro_tokens * max(work.shape.d_ff // work.layout.tensor, work.shape.d_model)
    casts = 0 if work.number_bytes == 4 else work.number_bytes * numbers
    return {
        "process": _PROCESS,
        "weights": 4 * numbers + casts,
        "gradients": 4 * numbers,
        "optimizer": 8 * numbers,
        "activations": int(_ALLOCATOR * work.number_bytes * _saved_numbers(work)),
        "workspace": int(_ALLOCATOR * (chunk + 3 * work.number_bytes * widest)),
    }


def seconds_by_kind(work: Work, matmul_rate: float) -> dict[str, float]:
    """Seconds of one step by kind; `matmul_rate` FLOP/s as `measure_machine` measures it."""
    shape, layout, tokens = work.shape, work.layout, work.tokens
    slices = _slices(work)
    numbers = sum(math.prod(size) for _, size in slices.values())
    matrices = sum(
        math.prod(size)
        for name, (_, size) in slices.items()
        if len(size) == 2 and name not in ("embedding.weight", "head.weight", "positions.weight")
    )
    head = shape.vocab_size * shape.d_model
    heads = shape.n_heads // layout.tensor * shape.head_dim
    skips = shape.positions != "alibi"  # with a mask no block of keys is left out
    seen = min(work.sequence, (work.sequence + _KEY_BLOCK) / 2) if skips else work.sequence
    widths = 4 if shape.activation == "swiglu" else 2
    in_a_block = 6 * shape.d_model + widths * shape.d_ff // layout.tensor + 4 * heads
    flops = {
        "matmul": 6 * (matrices + head) * tokens / _MATMUL,
        "attention": 12 * shape.n_layers * heads * seen * tokens * _ATTENTION,
        "pointwise": _A_NUMBER * shape.n_layers * in_a_block * tokens,
        "loss": _A_LOGIT * shape.vocab_size * tokens,
        "optimizer": _A_PARAMETER * numbers,
    }
    seconds = {kind: count / matmul_rate for kind, count in flops.items()}
    seconds["dispatch"] = _A_BLOCK * (shape.n_layers + 1) * work.micro_batches
    seconds["communication"] = _communication(work, numbers)
    return seconds


def _communication(work: Work, numbers: int) -> float:
    """All-reduces of a step: gradients over the data ranks once; activations over the tensor ranks
    once a block forward (a sequential one twice) and once a norm backward, each micro-batch; a few
    single numbers."""
    layout, shape = work.layout, work.shape
    if layout.world == 1:
        return 0.0
    collectives, carried = 2.0, 0.0
    if layout.data > 1:
        collectives += 1
        carried += _ring(layout.data) * 4 * numbers
    if layout.tensor > 1:
        sums = 2 if shape.block == "sequential" else 1
        passes = shape.n_layers * (sums + shape.n_norms) * work.micro_batches
        collectives += passes
        size = work.number_bytes * work.micro_tokens * shape.d_model
        carried += passes * _ring(layout.tensor) * size
    return collectives * _A_MESSAGE + carried / _LINK


def _ring(ranks: int) -> float:
    """How often a number passes a rank in a ring all-reduce, over twice as in two ranks."""
    return 2 * (ranks - 1) / ranks


def _saved_numbers(work: Work) -> int:
    """Numbers that autograd keeps for backward, of one forward pass: per token and block what each
    norm reads (the residual, which two norms of a parallel block share), its output and statistics,
    query, key, value, attention's output and log-sum, and the MLP's width before and after the
    activation (and before and after the gate); then the last norm and the features; once, ALiBi's
    mask."""
    shape, tensor = work.shape, work.layout.tensor
    heads = shape.n_heads // tensor
    groups = max(1, shape.n_kv_heads // tensor)
    residuals = 2 if shape.block == "sequential" else 1
    # RMSNorm keeps its input scaled by the root mean square, besides the result.
    statistics = 2 if shape.norm == "layernorm" else shape.d_model + 2
    widths = 4 if shape.activation == "swiglu" else 2
    block = (
        residuals * shape.d_model
        + shape.n_norms * (shape.d_model + statistics)
        + 2 * (heads + groups) * shape.head_dim
        + heads
        + widths * shape.d_ff // tensor
    )
    mask = heads * work.sequence**2 if shape.positions == "alibi" else 0
    return work.micro_tokens * (shape.n_layers * block + 3 * shape.d_model + statistics) + mask


def _slices(work: Work) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return tensor_slices(work.shape, work.layout.tensor, 0)
