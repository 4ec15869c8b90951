"""How one key of a recipe is declared: default, meaning and what is legal, in one line.

The validator, the JSON schema and the commented recipe are all made from these declarations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["key", "table"]


def key(
    default: Any,
    doc: str,
    *,
    kind: str = "",
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """One key. `kind` is "count" or "duration" for numbers with units; bounds are inclusive,
    `above` is exclusive."""
    meta = {"doc": doc, "kind": kind, "choices": choices, "low": low, "high": high, "above": above}
    if isinstance(default, list | tuple | dict):
        value = dict(default) if isinstance(default, dict) else tuple(default)
        return dataclasses.field(default_factory=lambda: value, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def table(cls: type) -> Any:
    """A key that is a table of its own; its meaning is the docstring of `cls`."""
    return key(cls(), (cls.__doc__ or "").strip())
