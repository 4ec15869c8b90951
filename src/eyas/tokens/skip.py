"""Skipping: an operator amends the data plan, and says so in a new version of it.

What is left out are samples by their numbers, or all samples of one block of a token object; from
a step on. The steps stay as many: what comes after moves up, source by source, so that every other
sample is still seen once an epoch. What is skipped counts as seen. Steps that were done cannot be
changed but by going back to before them, which has to be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from eyas.recipe import UsageError
from eyas.store import Store

from .data_plan import DataPlan, amend_data_plan, read_data_plan
from .phases import Skip
from .plan_sources import stored_sources

__all__ = ["Amended", "skip_block", "skip_samples"]


@dataclass(frozen=True)
class Amended:
    """The new version of a plan, and how many samples more than the one before it leaves out."""

    plan: DataPlan
    skipped: int


def skip_samples(store: Store, first: int, stop: int, from_step: int) -> Amended:
    """Leave samples `first` to `stop` - 1 out of the current plan, which is otherwise changed only
    from `from_step` on. Raises UsageError for samples that the plan hands out earlier, or not at
    all."""
    plan = read_data_plan(store)
    earliest = plan.segment(from_step).sample_after(from_step)
    end = plan.segments[-1].stop_sample
    if not earliest <= first < stop <= end:
        raise UsageError(
            f"samples {first}:{stop} are not among those that data plan {plan.version} hands out "
            f"from step {from_step} on, {earliest}:{end}"
            + ("; go back with an earlier --from-step" if first < earliest else "")
        )
    return _amend(store, plan, Skip(from_step, samples=(first, stop)))


def skip_block(store: Store, key: str, block: int, from_step: int) -> Amended:
    """Leave all samples of a block of the token object `key` out, from `from_step` on and in every
    epoch. Raises UsageError if there is no such block, or the plan does not reach it."""
    plan = read_data_plan(store)
    last = plan.segment(from_step)
    blocks = stored_sources(store, last.sources, plan.window).block_count(key)
    if not 0 <= block < blocks:
        raise UsageError(
            f"{key} has no block {block}; it has blocks 0 to {blocks - 1}"
            if blocks
            else f"{key} is no token object (.tok) of the training split of data plan "
            f"{plan.version}; `eyas trace RECIPE --step S` names those behind a step"
        )
    return _amend(store, plan, Skip(from_step, key=key, block=block))


def _amend(store: Store, plan: DataPlan, skip: Skip) -> Amended:
    amended = amend_data_plan(store, plan, skip)
    return Amended(amended, _skipped(amended) - _skipped(plan))


def _skipped(plan: DataPlan) -> int:
    return sum(stop - first for segment in plan.segments for first, stop in segment.skipped)
