"""FineWeb's values (arXiv 2406.17557, section 3.6), counted as datatrove counts them.

Lines are what stands between newlines and is not blank:

    punctuated_lines          = lines whose last character ends a sentence / lines
    short_lines               = lines of at most `short_line_characters` / lines
    duplicate_line_characters = characters in later copies of lines / characters without newlines
    newlines_per_word         = newlines / tokens

`terminals` are the characters that end a sentence. A text without lines has 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Set

from .repetition import later_copies

__all__ = ["measure"]


def measure(
    text: str,
    tokens: int,
    *,
    short_line_characters: int,
    terminals: Set[str],
) -> dict[str, float]:
    """Every value of the step. `tokens` is how many tokens the text has."""
    lines = [line for line in text.split("\n") if line.strip()]
    lengths = list(map(len, lines))
    newlines = text.count("\n")
    count = len(lines) or 1
    return {
        "punctuated_lines": sum([line[-1] in terminals for line in lines]) / count,
        "short_lines": sum([length <= short_line_characters for length in lengths]) / count,
        "duplicate_line_characters": later_copies(lines)[1] / ((len(text) - newlines) or 1),
        "newlines_per_word": newlines / (tokens or 1),
    }
