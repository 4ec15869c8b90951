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
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from .punctuation import TERMINALS
from .words import is_unspaced

__all__ = ["count_sentences", "rewrite"]

_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_GAP = re.compile(r" *[^\S ]\s*|\s{2,}")
_POLICIES = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)


def rewrite(
    text: str,
    limits: Mapping[str, Any],
    *,
    line_end: str,
    terminal: str,
    split: Callable[[str], list[str]],
) -> tuple[str, dict[str, float]]:
    """The text of the lines that are left, and every value of the step.

    `line_end` are the characters that a line may end with, `terminal` those that end a sentence.
    `split` gives a line's tokens.
    """
    ends, terminals = tuple(line_end), frozenset(terminal)
    longest = limits["max_word_characters"]
    lorem = brackets = sentences = 0
    kept = []
    for raw in text.splitlines():
        line = raw.strip()
        words = line.split()
        if len(line) > longest and any(len(word) > longest for word in words):
            continue
        if limits["remove_citations"] and "[" in line:
            line = _CITATION.sub("", line)
        if limits["terminal_punctuation"] and (not line.endswith(ends) or line.endswith("...")):
            continue
        if len(words) < limits["min_line_words"]:
            continue
        lower = line.lower()
        lorem += "lorem ipsum" in lower
        if limits["drop_javascript"] and "javascript" in lower:
            continue
        brackets += "{" in line
        if limits["drop_policy"] and any(phrase in lower for phrase in _POLICIES):
            continue
        sentences += count_sentences(line, split(line), terminals)
        kept.append(line)
    left = "\n".join(kept).strip()
    listed = tuple(limits["bad_words"])
    values: dict[str, float] = {
        "lorem_ipsum": lorem,
        "curly_brackets": brackets,
        "sentences": sentences,
        "bad_words": _count_listed(left, listed) if listed else 0,
    }
    return left, values


def count_sentences(line: str, tokens: Sequence[str], terminals: Set[str] = TERMINALS) -> int:
    """Sentences of a line with these tokens; at least one."""
    if terminals.isdisjoint(tokens):
        return 1
    count, ended = 1, False
    for token in tokens if _evenly_spaced(line) else _with_gaps(line, tokens):
        if token in terminals:
            ended = True
        elif ended and not _is_punctuation(token):
            count, ended = count + 1, False
    return count


def _evenly_spaced(line: str) -> bool:
    return " ".join(line.split()) == line


def _with_gaps(line: str, tokens: Sequence[str]) -> Iterator[str]:
    """The tokens, and white space where it is more than one space."""
    at = 0
    for token in tokens:
        found = line.index(token, at)
        if _GAP.fullmatch(line, at, found):
            yield " "
        yield token
        at = found + len(token)
    if _GAP.fullmatch(line, at):
        yield " "


@functools.lru_cache(1 << 12)
def _is_punctuation(token: str) -> bool:
    return all(unicodedata.category(c)[0] == "P" for c in token)


def _count_listed(text: str, listed: tuple[str, ...]) -> int:
    return len(_listed_pattern(listed).findall(text.lower()))


@functools.cache
def _listed_pattern(listed: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words; those of a script without spaces anywhere."""
    whole: list[str] = []
    anywhere: list[str] = []
    for word in sorted(listed, key=len, reverse=True):
        (anywhere if is_unspaced(word) else whole).append(re.escape(word.lower()))
    return re.compile("|".join([rf"(?<!\w)(?:{'|'.join(whole) or '(?!)'})(?!\w)", *anywhere]))
