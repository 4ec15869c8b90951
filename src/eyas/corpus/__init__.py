"""The corpus: crawl files in; documents, rejects and a report out.

Each name loads its module with its first use: the workers of a stage need none that fetch, plan or
report, and are ready sooner.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .curate import curate, remove_documents
    from .documents import read_documents
    from .fetch.sources import fetch_sources
    from .reading.inputs import input_files
    from .report.inspect import Query, inspect_documents
    from .report.markup import Markup, el, join
    from .report.what_if import Change, WhatIf, parse_change, what_if
    from .steps.words import count_words

__all__ = [
    "Change",
    "Markup",
    "Query",
    "WhatIf",
    "count_words",
    "curate",
    "el",
    "fetch_sources",
    "input_files",
    "inspect_documents",
    "join",
    "parse_change",
    "read_documents",
    "remove_documents",
    "what_if",
]

_PLACES = {
    ".curate": ("curate", "remove_documents"),
    ".documents": ("read_documents",),
    ".fetch.sources": ("fetch_sources",),
    ".reading.inputs": ("input_files",),
    ".report.inspect": ("Query", "inspect_documents"),
    ".report.markup": ("Markup", "el", "join"),
    ".report.what_if": ("Change", "WhatIf", "parse_change", "what_if"),
    ".steps.words": ("count_words",),
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            module = importlib.import_module(place, __name__)
            # all of them: the module `curate` would else hide the function of that name
            globals().update({other: getattr(module, other) for other in names})
            return globals()[name]
    raise AttributeError(f"module 'eyas.corpus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
