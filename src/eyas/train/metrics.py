"""Metrics: one record a step, written by rank 0 as immutable pieces.

`metrics/<attempt:06d>/<first step:012d>.jsonl`, a piece every 30 seconds, at every commit and at
the end, so that a commit never runs ahead of the metrics of its steps.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from eyas.store import Store, StoreError, put_piece

__all__ = ["Metrics"]

_log = logging.getLogger("eyas.train")
_SECONDS = 30.0


class Metrics:
    """The stream of one attempt. On other ranks than 0 (`active` False) nothing is kept."""

    def __init__(self, store: Store, attempt: int, active: bool) -> None:
        self._store = store
        self._prefix = f"metrics/{attempt:06d}"
        self._active = active
        self._records: list[dict[str, Any]] = []
        self._flushed = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether a piece is old enough to be written."""
        return self._active and time.monotonic() - self._flushed >= _SECONDS

    def add(self, step: int, **values: Any) -> None:
        """The record of a step."""
        if self._active:
            self._records.append({"step": step, **values})

    def try_flush(self) -> None:
        """Write what is there; what a store refuses now is kept for the next time."""
        try:
            self.flush()
        except StoreError as error:
            self._flushed = time.monotonic()
            _log.warning("%d metrics records not written yet: %s", len(self._records), error)

    def flush(self) -> None:
        """Write what is there. Raises StoreError."""
        if self._records:
            put_piece(self._store, self._prefix, self._records[0]["step"], self._records)
            self._records = []
        self._flushed = time.monotonic()
