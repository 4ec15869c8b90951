"""The corpus: crawl files in; documents, rejects and a report out."""

from __future__ import annotations

from .curate import curate
from .documents import read_documents
from .fetch.sources import fetch_sources
from .reading.inputs import input_files
from .steps.words import count_words

__all__ = ["count_words", "curate", "fetch_sources", "input_files", "read_documents"]
