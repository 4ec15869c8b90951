"""How far a list of names goes by occurrence: texts in; out comes how often a name of several words
stands there, and how often one item holds all of it.

A name counts where no letter goes on before or after it, the longest of those that begin at a word.
Words are compared as they are written: a name with vowel signs is another name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["NamePlaces"]

_WORD = re.compile(r"[^\W_]+")


class NamePlaces:
    """`occurrences` of the names in the texts so far, `single` of which lie in one item."""

    def __init__(self, names: Iterable[str]) -> None:
        self.occurrences = 0
        self.single = 0
        self._by_word: dict[str, list[str]] = {}
        for name in sorted((n for n in names if " " in n), key=len, reverse=True):
            if first := _WORD.match(name):
                self._by_word.setdefault(first.group(), []).append(name)

    def add(self, text: str, sizes: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """Count one text; `sizes` are the bytes of its items, one after another."""
        if not self._by_word:
            return
        ends = np.cumsum(sizes)
        at = reached = 0
        for word in _WORD.finditer(text):
            name = self._at(text, word)
            if name is None:
                continue
            reached += len(text[at : word.start()].encode())
            at = word.start()
            item = int(np.searchsorted(ends, reached, side="right"))
            self.occurrences += 1
            self.single += int(ends[item]) >= reached + len(name.encode())

    def _at(self, text: str, word: re.Match[str]) -> str | None:
        """The name that begins with this word, or None."""
        for name in self._by_word.get(word.group(), ()):
            end = word.start() + len(name)
            if text.startswith(name, word.start()) and not _goes_on(text[end : end + 1]):
                return name
        return None


def _goes_on(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "LMN"
