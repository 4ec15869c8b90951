"""Gopher's quality values (arXiv 2112.11446, appendix A1.1), counted as datatrove counts them.

    words          = tokens that are not signs only
    word_length    = mean characters of those
    hashes         = "#" in the text / tokens; ellipses = "..." and "…" in the text / tokens
    bullet_lines   = lines that begin with "•" or "-" / lines
    ellipsis_lines = lines that end with "..." or "…" / lines
    letter_words   = tokens with a letter / tokens
    stop_words     = how many of the language's stop words occur, each once, case as written

Punctuation is a token but no word. A text without tokens has 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Collection

from .words import Words

__all__ = ["measure"]

_BULLETS = ("•", "-")
_ELLIPSES = ("...", "…")


def measure(text: str, words: Words, stop_words: Collection[str]) -> dict[str, float]:
    """Every value of the step."""
    tokens = len(words.tokens) or 1
    counted = int(words.counted.sum())
    lines = text.splitlines() or [""]
    return {
        "words": counted,
        "word_length": int(words.lengths[words.counted].sum()) / (counted or 1),
        "hashes": text.count("#") / tokens,
        "ellipses": (text.count("...") + text.count("…")) / tokens,
        "bullet_lines": sum(s.lstrip().startswith(_BULLETS) for s in lines) / len(lines),
        "ellipsis_lines": sum(s.rstrip().endswith(_ELLIPSES) for s in lines) / len(lines),
        "letter_words": int(words.letters.sum()) / tokens,
        "stop_words": len(set(stop_words).intersection(words.tokens)),
    }
