"""The plan: what the run that is about to start will take, and after it, how true that was.

In: a recipe, and a machine (measured if not given). Out: the layout, memory a rank, seconds, tokens
a second, FLOPs and checkpoint bytes of the whole run, as one frozen value. `choose_layout` is pure
in (recipe, shape, memory of the machine), so every rank chooses the same without measuring.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eyas.recipe import (
    Phase,
    Recipe,
    UsageError,
    format_bytes,
    format_count,
    format_seconds,
    merged_phases,
    recipe_phases,
)
from eyas.shape import (
    Layout,
    ModelShape,
    check_layout,
    flops_per_token,
    legal_layouts,
    model_shape,
    parameters,
)

from .cost import Work, memory_by_kind, seconds_by_kind
from .machine import Machine, cores, measure_machine, memory_bytes

__all__ = ["Plan", "choose_layout", "make_plan"]

_USABLE = 0.85  # share of the memory that the ranks may plan with; the rest is the system's
_START = 12.0  # seconds: supervisor, interpreter, torch, process group, first weights
_SAVED = 12  # checkpoint bytes a parameter: float32 master and two moments
_SAVE_RATE = 250e6  # bytes/s a machine writes, checksums and makes durable


@dataclass(frozen=True)
class Plan:
    """Bytes are of one rank unless said; seconds are wall time. `memory` and `step` are by kind.

    Where milestones change batch or sequence, `sequence` and `global_batch` are those of the first
    step and `phases` has them all; `memory` is that of the largest step, `step` of the mean one.
    `memory_total` their sum, against `memory_available` a rank. `seconds` is the whole run with its
    start and its `checkpoints` commits of `checkpoint_bytes` each; `flops` are those of all ranks.
    """

    model: str
    layout: Layout
    threads: int
    parameters: int
    tokens: int
    sequence: int
    global_batch: int
    steps: int
    phases: tuple[Phase, ...]
    memory: Mapping[str, int]
    memory_total: int
    memory_available: int
    step: Mapping[str, float]
    step_seconds: float
    tokens_per_s: float
    seconds: float
    flops: float
    checkpoint_bytes: int
    checkpoints: int
    machine: Machine

    @property
    def fits(self) -> bool:
        """Whether the machine has the memory."""
        return self.memory_total <= self.memory_available

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = dataclasses.asdict(dataclasses.replace(self, memory={}, step={}))
        values |= {"memory": dict(self.memory), "step": dict(self.step), "fits": self.fits}
        values["layout"]["world"] = self.layout.world
        return values

    def render(self) -> str:
        """A short text for a terminal."""
        layout, machine = self.layout, self.machine
        memory = ", ".join(f"{kind} {format_bytes(n)}" for kind, n in self.memory.items())
        step = ", ".join(f"{kind} {s:.3f}" for kind, s in self.step.items() if s >= 0.0005)
        verdict = "" if self.fits else "  DOES NOT FIT: take a smaller model or fewer processes\n"
        return (
            f"{self.model}: {self.parameters:,} parameters, {format_count(self.tokens)} tokens in "
            f"{self.steps:,} steps of {format_count(self.global_batch)}, sequence {self.sequence}"
            f"{_changes(self.phases)}\n"
            f"layout: tensor {layout.tensor} x data {layout.data}, micro-batch "
            f"{layout.micro_batch}, {self.threads} threads a rank\n"
            f"machine: {machine.cores} cores, {format_bytes(machine.memory)}; "
            f"{machine.matmul_rate / 1e9:.1f} GFLOP/s a rank measured in matrix products\n"
            f"memory a rank: {format_bytes(self.memory_total)} of "
            f"{format_bytes(self.memory_available)} ({memory})\n{verdict}"
            f"a step: {self.step_seconds:.3f} s ({step}); "
            f"{format_count(float(self.tokens_per_s))} tokens/s\n"
            f"the run: {format_seconds(self.seconds)}, {self.flops:.3g} FLOP, "
            f"{self.checkpoints} x {format_bytes(self.checkpoint_bytes)} of checkpoints"
        )


def make_plan(
    recipe: Recipe, machine: Machine | None = None, vocab_size: int | None = None
) -> Plan:
    """The plan of `recipe.train` on this machine, measured for about a second if not given.

    The vocabulary is `vocab_size`, else the one that the recipe asks for. Raises UsageError for an
    impossible shape, an illegal layout or a global batch that is not whole sequences.
    """
    shape = _shape(recipe, vocab_size)
    memory = machine.memory if machine is not None else memory_bytes()
    layout = choose_layout(recipe, vocab_size, memory)
    phases = _phases(recipe)
    works = [_work(recipe, shape, layout, phase) for phase in phases]
    threads = recipe.cluster.threads or max(1, cores() // layout.world)
    if machine is None:
        largest = max(work.micro_tokens for work in works)
        machine = measure_machine(shape, largest, layout.world, threads)
    steps = sum(phase.steps for phase in phases)
    tokens = sum(_tokens(phase) for phase in phases)
    step = _mean_step(phases, works, machine.matmul_rate)
    step_seconds = sum(step.values())
    kinds = _largest(works)
    commits = math.ceil(steps / recipe.train.checkpoint_every)
    saved = _SAVED * parameters(shape)
    return Plan(
        model=shape.name,
        layout=layout,
        threads=threads,
        parameters=parameters(shape),
        tokens=tokens,
        sequence=recipe.data.sequence,
        global_batch=recipe.train.global_batch,
        steps=steps,
        phases=phases,
        memory=kinds,
        memory_total=sum(kinds.values()),
        memory_available=_available(memory, layout.world),
        step=step,
        step_seconds=step_seconds,
        tokens_per_s=tokens / steps / step_seconds,
        seconds=_START + steps * step_seconds + commits * saved / _SAVE_RATE,
        flops=sum(flops_per_token(shape, p.sequence) * _tokens(p) for p in phases),
        checkpoint_bytes=saved,
        checkpoints=commits,
        machine=machine,
    )


def choose_layout(
    recipe: Recipe, vocab_size: int | None = None, memory: int | None = None
) -> Layout:
    """The layout of `recipe.layout`, what it leaves at 0 chosen: one tensor rank, all processes
    data parallel, and the largest micro-batch that fits in `memory` bytes of the machine (this
    one's, if None) at every step; 1 if none does.

    Raises UsageError, naming the legal values, where the recipe's own are illegal.
    """
    keys, world = recipe.layout, recipe.cluster.processes
    shape = _shape(recipe, vocab_size)
    tensor = keys.tensor or (max(1, world // keys.data) if keys.data else 1)
    data = keys.data or max(1, world // tensor)
    sequences = _first_sequences(recipe, data)
    check_layout(shape, Layout(tensor, data, keys.micro_batch or 1), world, sequences)
    phases = _phases(recipe)
    _check_phases(recipe, phases, data)
    if keys.micro_batch:
        return Layout(tensor, data, keys.micro_batch)
    available = _available(memory_bytes() if memory is None else memory, world)
    legal = [lay for lay in legal_layouts(shape, world, sequences) if lay.tensor == tensor]
    fitting = [
        layout
        for layout in legal
        if sum(_largest([_work(recipe, shape, layout, p) for p in phases]).values()) <= available
    ]
    return max(fitting, key=lambda lay: lay.micro_batch, default=Layout(tensor, data, 1))


def _shape(recipe: Recipe, vocab_size: int | None) -> ModelShape:
    if vocab_size is None and recipe.model.vocab_size is None:
        vocab_size = recipe.tokenizer.vocab_size
    return model_shape(recipe, vocab_size)


def _phases(recipe: Recipe) -> tuple[Phase, ...]:
    """What the run does between changes of batch or sequence."""
    asked = recipe_phases(recipe)
    return tuple(merged_phases(dataclasses.replace(phase, weights={}) for phase in asked))


def _first_sequences(recipe: Recipe, data: int) -> int:
    """Sequences of the global batch at the beginning."""
    sequence, batch = recipe.data.sequence, recipe.train.global_batch
    if batch % sequence:
        raise UsageError(
            f"train.global_batch {batch} is not a multiple of data.sequence {sequence}; "
            f"legal are {max(1, batch // sequence) * sequence} and its like"
        )
    return _sequences(recipe, batch // sequence, data)


def _sequences(recipe: Recipe, batch: int, data: int) -> int:
    """Sequences of a batch; of a ragged one, with the padding for `data` ranks."""
    return -(-batch // data) * data if recipe.data.ragged else batch


def _check_phases(recipe: Recipe, phases: tuple[Phase, ...], data: int) -> None:
    """Every batch that a milestone asks for can be shared by the data ranks."""
    for phase in phases:
        if _sequences(recipe, phase.batch, data) % data:
            raise UsageError(
                f"data.milestones: from step {phase.first_step} on the global batch has "
                f"{phase.batch} sequences, which {data} data ranks do not divide; change "
                "global_batch, or set data.ragged"
            )


def _work(recipe: Recipe, shape: ModelShape, layout: Layout, phase: Phase) -> Work:
    sequences = _sequences(recipe, phase.batch, layout.data) // layout.data
    return Work(
        shape=shape,
        layout=dataclasses.replace(layout, micro_batch=min(layout.micro_batch, sequences)),
        sequence=phase.sequence,
        sequences=sequences,
        number_bytes=2 if recipe.train.precision == "bfloat16" else 4,
    )


def _tokens(phase: Phase) -> int:
    return phase.steps * phase.batch * phase.sequence


def _mean_step(phases: Sequence[Phase], works: Sequence[Work], rate: float) -> dict[str, float]:
    """Seconds of a step by kind, over all steps."""
    steps = sum(phase.steps for phase in phases)
    parts = [seconds_by_kind(work, rate) for work in works]
    return {
        kind: sum(p.steps * part[kind] for p, part in zip(phases, parts, strict=True)) / steps
        for kind in parts[0]
    }


def _largest(works: Sequence[Work]) -> dict[str, int]:
    """Bytes by kind of the step that needs most."""
    return max(map(memory_by_kind, works), key=lambda kinds: sum(kinds.values()))


def _changes(phases: Sequence[Phase]) -> str:
    """What milestones change, for the text."""
    return "".join(
        f"\nfrom step {p.first_step:,} on: {format_count(p.batch * p.sequence)} a step, "
        f"sequence {p.sequence}"
        for p in phases[1:]
    )


def _available(memory: int, world: int) -> int:
    return int(_USABLE * memory) // world
