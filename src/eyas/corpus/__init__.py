"""The corpus: crawl files in; documents, rejects and a report out."""

from __future__ import annotations

from .curate import curate, remove_documents
from .documents import read_documents
from .fetch.sources import fetch_sources
from .reading.inputs import input_files
from .report.inspect import Query, inspect_documents
from .report.what_if import Change, WhatIf, parse_change, what_if
from .steps.words import count_words

__all__ = [
    "Change",
    "Query",
    "WhatIf",
    "count_words",
    "curate",
    "fetch_sources",
    "input_files",
    "inspect_documents",
    "parse_change",
    "read_documents",
    "remove_documents",
    "what_if",
]
