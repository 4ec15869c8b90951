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

import functools
import re
from collections.abc import Collection, Sequence

import numpy as np

from .words import COUNTED, LETTERS, Words, matching_form

__all__ = ["measure"]

_SIGNED = re.compile("[\u0590-\u06ff\u0750-\u077f]")


def measure(
    text: str, lines: Sequence[str], words: Words, stop_words: Collection[str]
) -> dict[str, float]:
    """Every value of the step. `lines` are the text's without white space at their ends."""
    tokens = len(words) or 1
    counted = (words.flags & COUNTED).astype(np.bool_)
    n_counted = int(np.count_nonzero(counted))
    joined = "\n".join(["", *lines, ""])
    bullets = joined.count("\n•") + joined.count("\n-")
    ellipses = joined.count("...\n") + joined.count("…\n")
    return {
        "words": n_counted,
        "word_length": int(words.lengths[counted].sum()) / (n_counted or 1),
        "hashes": text.count("#") / tokens,
        "ellipses": (text.count("...") + text.count("…")) / tokens,
        "bullet_lines": bullets / (len(lines) or 1),
        "ellipsis_lines": ellipses / (len(lines) or 1),
        "letter_words": int(np.count_nonzero(words.flags & LETTERS)) / tokens,
        "stop_words": _count_stop_words(words, stop_words),
    }


def _count_stop_words(words: Words, listed: Collection[str]) -> int:
    """In Arabic and Hebrew script one word is written with vowel signs or without, with tatweel,
    with any form of alef: there forms are compared."""
    if forms := _forms(tuple(listed)):
        return len(forms.intersection(map(_form, set(words.tokens))))
    return words.distinct(listed)


@functools.cache
def _forms(listed: tuple[str, ...]) -> frozenset[str]:
    """Those of a list in such a script; of others none."""
    return frozenset(map(_form, listed)) if any(map(_SIGNED.search, listed)) else frozenset()


@functools.lru_cache(1 << 16)
def _form(token: str) -> str:
    """A sign, which has no form, is its own."""
    return matching_form(token) or token
