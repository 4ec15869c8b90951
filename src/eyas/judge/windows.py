"""How a document longer than the context is cut into windows, so that every token is scored once.

A document is the sequence [end of text, t1 … tn]; position i of the sequence is predicted from the
positions before it. The first window scores all it sees. Each later one starts early enough that
its first scored token has half a window of context (rounded up), and scores from there to its end,
so a token is scored once, with at least half a window of context or with all that precedes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Window", "windows"]


@dataclass(frozen=True)
class Window:
    """Inputs are positions `start` to `stop` (exclusive) of the sequence; the positions predicted
    and scored are `first` to `stop` (inclusive): input i predicts position i + 1."""

    start: int
    stop: int
    first: int


def windows(tokens: int, context: int) -> Iterator[Window]:
    """Windows of at most `context` inputs over a document of `tokens` tokens after its start."""
    if context < 2:
        raise ValueError(f"a context of {context} leaves no room for half a window")
    overlap = (context + 1) // 2
    first = 1
    while first <= tokens:
        start = max(0, first - overlap) if first > 1 else 0
        stop = min(tokens, start + context)
        yield Window(start, stop, first)
        first = stop + 1
