"""The board: one static page to see a run, or several."""

from __future__ import annotations

from .page import write_board

__all__ = ["write_board"]
