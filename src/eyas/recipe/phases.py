"""What a recipe asks for between two milestones: steps, their batch, sequence and weights. Pure.

The data plan is laid out from these phases, and the planner reckons with them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .recipe import Recipe

__all__ = ["Phase", "merged_phases", "planned_steps", "recipe_phases"]


@dataclass(frozen=True)
class Phase:
    """`steps` steps from `first_step` of `batch` samples of `sequence` tokens, mixed by `weights`
    (by name of the source)."""

    first_step: int
    steps: int
    sequence: int
    batch: int
    weights: dict[str, float]


def recipe_phases(recipe: Recipe, weights: Mapping[str, float] | None = None) -> list[Phase]:
    """The phases of a whole run; `weights` are those at its beginning. A milestone begins with the
    first step at which so many tokens were seen; `train.tokens` is rounded down to whole steps."""
    total = recipe.train.tokens
    sequence, size = recipe.data.sequence, recipe.train.global_batch
    current = dict(weights or {})
    phases: list[Phase] = []
    step = seen = 0
    ends = [milestone.tokens for milestone in recipe.data.milestones]
    for milestone, end in itertools.zip_longest((None, *recipe.data.milestones), ends):
        if milestone is not None:
            sequence, size = milestone.sequence or sequence, milestone.global_batch or size
            current |= milestone.weights
        steps = (total - seen) // size
        if end is not None:
            steps = min(steps, max(0, -(-(end - seen) // size)))
        if steps:
            phases.append(Phase(step, steps, sequence, size // sequence, dict(current)))
        step, seen = step + steps, seen + steps * size
        if end is None or seen < end:
            break
    return merged_phases(phases)


def planned_steps(recipe: Recipe) -> int:
    """Steps of a whole run."""
    return sum(phase.steps for phase in recipe_phases(recipe))


def merged_phases(phases: Iterable[Phase]) -> list[Phase]:
    """Neighbours that ask for the same as one."""
    merged: list[Phase] = []
    for phase in phases:
        last = merged[-1] if merged else None
        if last and (last.sequence, last.batch, last.weights) == (
            phase.sequence,
            phase.batch,
            phase.weights,
        ):
            merged[-1] = dataclasses.replace(last, steps=last.steps + phase.steps)
        else:
            merged.append(phase)
    return merged
