"""Eyas raises a foundation model: from a raw web crawl to a served, audited model.

`import eyas` is light; each name below loads its room with its first use (DESIGN, "The library
face").
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eyas.checkpoint import load
    from eyas.plan import make_plan
    from eyas.recipe import EyasError, Recipe
    from eyas.store import open_store
    from eyas.tokens import open_tokens

__all__ = ["EyasError", "Recipe", "load", "make_plan", "open_store", "open_tokens"]
__version__ = "0.1.0"

_ROOMS = {
    "EyasError": "eyas.recipe",
    "Recipe": "eyas.recipe",
    "load": "eyas.checkpoint",
    "make_plan": "eyas.plan",
    "open_store": "eyas.store",
    "open_tokens": "eyas.tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'eyas' has no attribute {name!r}")
    value = getattr(importlib.import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
