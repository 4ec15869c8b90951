"""Text to words, once per document, and the form of a word that matching compares.

A token is a run of letters, digits and combining marks, or one sign of punctuation, or a row of
dots or dashes. Signs that join stay inside (don't, l'eau, v1.2, 10:30, me@example.org, --help, a
URL); others part (well-known, a/b), so that tokens are counted much as spaCy's blank tokenizer
counts them, which the published thresholds were used with. Scripts that are written without spaces
(Han, Kana, Thai, Lao, Khmer, Burmese) give one token a character, its marks with it; `packs.py`
says how many of those make a word. Python's `\\w` leaves combining marks out, which would cut Hindi
and vocalised Arabic words into pieces, so the class is built here.

`matching_form` is for finding duplicates only and never reaches an output: compatibility forms,
case, punctuation of any script, tatweel, Arabic and Hebrew vowel signs and the forms of alef are
folded, so two copies that differ only in those match.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator

__all__ = ["count_words", "is_word", "matching_form", "split_words"]

_Range = tuple[int, int]

# Scripts without spaces: Thai, Lao, Burmese, Khmer, Kana, Han.
_UNSPACED: tuple[_Range, ...] = (
    (0x0E01, 0x0E3A),
    (0x0E40, 0x0E46),
    (0x0E81, 0x0EC6),
    (0x1000, 0x109F),
    (0x1780, 0x17D3),
    (0x3041, 0x3096),
    (0x309D, 0x309F),
    (0x30A1, 0x30FA),
    (0x30FC, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3005, 0x3007),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x20000, 0x3FFFF),
)
# Tatweel, Arabic vowel and Quranic signs, Hebrew points.
_FOLDED_AWAY = re.compile(
    "[\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0591-\u05c7]"
)
_ALEF = str.maketrans("أإآٱى", "ااااي")


def split_words(text: str) -> list[str]:
    """All tokens of `text` in order, punctuation included; white space is none."""
    words, unspaced = _patterns()
    if not text.isascii() and unspaced.search(text):
        text = unspaced.sub(r" \g<0> ", text)
    return words.findall(text)


def is_word(token: str) -> bool:
    """False for a token of punctuation or symbols only."""
    return token[0].isalnum() or token.isalnum() or any(_is_word_character(c) for c in token)


def count_words(text: str) -> int:
    """As the corpus counts them: tokens that are not punctuation only."""
    return sum(map(is_word, split_words(text)))


def matching_form(token: str) -> str:
    """What matching compares; empty for a token that it ignores."""
    if token.isascii():
        if token.isalnum():
            return token.lower()
        return "".join(c for c in token if c.isalnum()).lower()
    folded = unicodedata.normalize("NFKC", token).casefold()
    folded = _FOLDED_AWAY.sub("", folded).translate(_ALEF)
    return "".join(c for c in folded if _is_word_character(c))


def _is_word_character(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Tokens; one character of an unspaced script with its marks."""
    marks = _char_class(_ranges(_marks()))
    word = f"[\\w{marks}]+"
    inside = r"(?:['’@+~\\]|\.(?=[a-z0-9])|(?<=\d)[,:/](?=\d))"
    tokens = (
        r"(?:https?|ftp)://[^\s<>\"]*[\w/=]",
        rf"(?:(?<!\S)[-/.~@\\]+)?{word}(?:{inside}{word})*",
        r"\.\.+|--+",
        rf"[^\w\s{marks}]",
    )
    return re.compile("|".join(tokens)), re.compile(f"[{_char_class(_UNSPACED)}][{marks}]*")


def _marks() -> Iterator[int]:
    """Combining marks of the basic plane: ranges above it would make `re` ten times slower."""
    return (c for c in range(0x10000) if unicodedata.category(chr(c))[0] == "M")


def _ranges(codes: Iterable[int]) -> list[_Range]:
    out: list[_Range] = []
    for code in codes:
        if out and out[-1][1] == code - 1:
            out[-1] = (out[-1][0], code)
        else:
            out.append((code, code))
    return out


def _char_class(ranges: Iterable[_Range]) -> str:
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
