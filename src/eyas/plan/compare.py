"""The plan held against the run: a row a figure that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eyas.recipe import format_bytes, format_count, format_seconds

from .plan import Plan

__all__ = ["Row", "compare"]

# Key of the run, key of the plan, name, how it is written.
_FIGURES = (
    ("peak_memory", "memory_total", "peak memory a rank", format_bytes),
    ("step_seconds", "step_seconds", "seconds a step", lambda s: f"{s:.3f} s"),
    ("tokens_per_s", "tokens_per_s", "tokens a second", lambda n: format_count(float(n))),
    ("seconds", "seconds", "the whole run", format_seconds),
)


@dataclass(frozen=True)
class Row:
    """`ratio` is actual over planned: 1.1 means that it took a tenth more than planned."""

    name: str
    planned: float
    actual: float
    ratio: float
    planned_text: str
    actual_text: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def compare(plan: Plan | Mapping[str, Any], actual: Mapping[str, Any]) -> list[Row]:
    """A row for each of `peak_memory` (bytes, the largest rank), `step_seconds`, `tokens_per_s` and
    `seconds` that `actual` has. `plan` may be what `Plan.to_dict` gave."""
    planned = plan.to_dict() if isinstance(plan, Plan) else plan
    rows = []
    for key, planned_key, name, write in _FIGURES:
        if actual.get(key) is not None:
            expected, found = float(planned[planned_key]), float(actual[key])
            rows.append(Row(name, expected, found, found / expected, write(expected), write(found)))
    return rows
