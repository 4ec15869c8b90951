"""C4's line and document rules (arXiv 1910.10683), as datatrove applies them.

Line by line, in this order: a word that is too long drops the line; citations such as [12] are cut;
a line that does not end as `line_end` says, or ends with "...", is dropped; so is one of too few
words, one with "javascript" and one with a phrase of a policy notice. Words here are what stands
between spaces. What is left is the text that later steps see. Values:

    lorem_ipsum, curly_brackets = lines with "lorem ipsum", with "{", that came as far as that check
    sentences                   = sentences of the lines that are left, at least one a line
    bad_words                   = occurrences of listed words in what is left

A sentence ends at a terminal sign that is a token of its own, and the next begins at the first
token behind it that is not punctuation: "see e.g. this" is one, "¿Qué? ¡Sí!" two. White space of
more than one space counts as such a token. This is the rule of spaCy's sentencizer, with which
datatrove counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .punctuation import TERMINALS
from .words import PUNCTUATION, Words, is_unspaced

__all__ = ["Kept", "count_bad_words", "count_sentences", "kept_lines"]

_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_GAP = re.compile(r" *[^\S ]\s*|\s{2,}")
_POLICIES = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)


@dataclass(frozen=True)
class Kept:
    """The lines that are left: their numbers in the text, how they read now, and which of them are
    not as they were. `values` has what was counted on the way."""

    numbers: list[int]
    lines: list[str]
    cut: list[int]
    values: dict[str, float]


def kept_lines(
    text: str, lines: Sequence[str], counts: Sequence[int], limits: Mapping[str, Any], line_end: str
) -> Kept:
    """What the rules leave of `lines`, those of the text without white space at their ends, in
    which stand `counts` words. `line_end` are the characters that a line may end with."""
    ends, longest, fewest = tuple(line_end), limits["max_word_characters"], limits["min_line_words"]
    must_end, cuts = limits["terminal_punctuation"], limits["remove_citations"] and "[" in text
    phrases = _phrases(text, cuts and _CITATION.search(text) is not None)
    javascript = limits["drop_javascript"] and "javascript" in phrases
    policies = phrases.intersection(_POLICIES) if limits["drop_policy"] else ()
    lorem = brackets = 0
    kept = Kept([], [], [], {})
    for number, line in enumerate(lines):
        if len(line) > longest and any(len(word) > longest for word in line.split()):
            continue
        cut = _CITATION.sub("", line) if cuts and "[" in line else line
        if must_end and (not cut.endswith(ends) or cut.endswith("...")):
            continue
        if counts[number] < fewest:
            continue
        lower = cut.lower() if phrases else ""
        lorem += "lorem ipsum" in lower
        if javascript and "javascript" in lower:
            continue
        brackets += "{" in cut
        if policies and any(phrase in lower for phrase in policies):
            continue
        if cut is not line and cut != line:
            kept.cut.append(len(kept.lines))
        kept.numbers.append(number)
        kept.lines.append(cut)
    kept.values.update({"lorem_ipsum": lorem, "curly_brackets": brackets})
    return kept


def _phrases(text: str, parted: bool) -> frozenset[str]:
    """Those that a line may hold: what occurs in the text, or all if citations may part them."""
    lower = text.lower()
    every = ("lorem ipsum", "javascript", *_POLICIES)
    return frozenset(phrase for phrase in every if parted or phrase in lower)


def count_sentences(
    lines: Sequence[str],
    words: Words,
    counts: npt.NDArray[np.int64],
    terminals: Set[str] = TERMINALS,
) -> int:
    """Sentences of lines with these tokens, `counts` a line; at least one a line."""
    terminal = words.among(terminals)
    silent = (words.flags & PUNCTUATION).astype(np.bool_) & ~terminal
    line = np.repeat(np.arange(len(counts)), counts)
    heard = np.flatnonzero(~silent)
    ends, of = terminal[heard], line[heard]
    same = np.zeros(len(of), np.bool_)
    same[:-1] = of[1:] == of[:-1]
    begins = np.append(~ends[1:], False) & same
    count = len(lines) + int((ends & begins).sum())
    # Between two terminal signs, or behind the last, only white space can be what follows. (Of all
    # white space only the space is printable.)
    stops = np.cumsum(counts)
    for number in set(of[ends & ~begins].tolist()):
        if "  " in lines[number] or not lines[number].isprintable():
            stop = int(stops[number])
            part = slice(stop - int(counts[number]), stop)
            tokens = Words(words.table, words.rows[part]).tokens
            marks = zip(tokens, terminal[part].tolist(), silent[part].tolist(), strict=True)
            count += _ended_by_gaps(lines[number], marks)
    return count


def _ended_by_gaps(line: str, tokens: Iterable[tuple[str, bool, bool]]) -> int:
    """Sentences of a line that end at a terminal sign since a gap follows and nothing else does.
    Of each token: whether it is terminal, and whether it is other punctuation."""
    count = at = 0
    ended = gap = False
    for token, terminal, silent in tokens:
        found = line.index(token, at)
        gap = gap or (ended and _GAP.fullmatch(line, at, found) is not None)
        at = found + len(token)
        if terminal:
            count, ended, gap = count + gap, True, False
        elif not silent:
            ended = gap = False
    return count + (gap or (ended and _GAP.fullmatch(line, at) is not None))


def count_bad_words(text: str, listed: tuple[str, ...]) -> int:
    """Occurrences of the listed words."""
    return len(_listed_pattern(listed).findall(text.lower())) if listed else 0


@functools.cache
def _listed_pattern(listed: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words; those of a script without spaces anywhere."""
    whole: list[str] = []
    anywhere: list[str] = []
    for word in sorted(listed, key=len, reverse=True):
        (anywhere if is_unspaced(word) else whole).append(re.escape(word.lower()))
    return re.compile("|".join([rf"(?<!\w)(?:{'|'.join(whole) or '(?!)'})(?!\w)", *anywhere]))
