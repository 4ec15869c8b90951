"""RefinedWeb's line-wise corrections (arXiv 2306.01116, appendix G.2).

A line is dropped if more than `max_uppercase` of its characters are capitals, if it is only
digits, if it is a counter ("3 likes", "1.2K followers") or if it has fewer than `min_line_words`
words. Of a line of at most `cut_line_words` words "sign-in" at its start, "read more..." at its end
and "items in cart" anywhere are cut. The value is

    removed_words = words in what was dropped or cut / words of the text

The paper gives these by example; the patterns here are our own, for English. Words are tokens that
are not punctuation only. Empty lines stay, at most one in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["rewrite"]

_COUNTER = re.compile(
    r"\W*\d[\d.,]*\s*[kmb]?\s+(?:likes?|shares?|followers?|comments?|retweets?|reposts?|replies|reply"
    r"|views?|downloads?|upvotes?|downvotes?|reactions?|subscribers?)\W*",
    re.IGNORECASE,
)
_CUT = re.compile(r"^sign-in\b|\bread more(?:\.\.\.|…)$|\bitems in cart\b", re.IGNORECASE)
_EMPTY_LINES = re.compile(r"\n{3,}")


def rewrite(
    text: str, limits: Mapping[str, Any], count_words: Callable[[str], int]
) -> tuple[str, dict[str, float]]:
    """The corrected text, and the value of the step. `count_words` counts those of a line."""
    words = removed = 0
    changed = False
    kept = []
    for line in text.split("\n"):
        stripped = line.strip()
        n_words = count_words(stripped)
        words += n_words
        if not stripped:
            kept.append(line)
        elif _dropped(stripped, n_words, limits):
            removed += n_words
            changed = True
        elif n_words > limits["cut_line_words"] or not _CUT.search(stripped):
            kept.append(line)
        else:
            changed = True
            left = _CUT.sub("", stripped).strip()
            removed += n_words - count_words(left)
            kept.extend([left] if left else [])
    left = "\n".join(kept)
    if changed:
        left = _EMPTY_LINES.sub("\n\n", left).strip("\n")
    return left, {"removed_words": removed / (words or 1)}


def _dropped(line: str, n_words: int, limits: Mapping[str, Any]) -> bool:
    return bool(
        n_words < limits["min_line_words"]
        or (limits["drop_numbers"] and line.isdigit())
        or (limits["drop_counters"] and line[-1:].isalpha() and _COUNTER.fullmatch(line))
        or _capitals(line) > limits["max_uppercase"] * len(line)
    )


def _capitals(line: str) -> int:
    if line.isascii():
        return len(line) - len(line.encode().translate(None, _ASCII_CAPITALS))
    return sum(map(str.isupper, line))


_ASCII_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
