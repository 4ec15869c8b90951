"""Text to words, once per document, and the form of a word that matching compares.

A token is what the published thresholds were counted in, spaCy's blank tokens, by rules of our own
for all languages: signs come off both ends of what stands between white space, one at a time, and
what is left parts at hyphens, slashes and the like between letters (well, -, known; and, /, x).
Numbers, URLs, initials and titles stay whole (1,000, v1.2, 10:30, e.g., Mr.); English contractions
and French and Italian elisions part (do, n't; l', eau). Scripts that are written without spaces
(Han, Kana, Thai, Lao, Khmer, Burmese) give one token a character, its marks with it; the language
packs say how many of those make a word. German, Spanish, Portuguese and the Nordic languages keep
hyphened words whole in spaCy and not here.

No token holds white space, so a text is cut at white space first and each piece is looked up: most
pieces of a text are words that the process has seen. What is remembered is bounded and changes no
result.

`describe` gives what the rules need to know of each token as arrays, from a table of the tokens
seen. The hash of a token is the polynomial of its bytes over 64 bits, so that the hash of tokens
put together follows from theirs.

`matching_form` is for finding duplicates only and never reaches an output: compatibility forms,
case, punctuation of any script, tatweel, Arabic and Hebrew vowel signs and the forms of alef are
folded, so two copies that differ only in those match.
"""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import regex

from .punctuation import SIGNS, TERMINALS

__all__ = [
    "HASH_BASE",
    "Words",
    "count_word_tokens",
    "count_words",
    "describe",
    "is_unspaced",
    "is_word",
    "matching_form",
    "split_words",
]


# A character with its marks of a script without spaces: Thai, Lao, Burmese, Khmer, Kana, Han.
_UNSPACED_SIGN = regex.compile(
    r"([\u0E01-\u0E3A\u0E40-\u0E46\u0E81-\u0EC6\u1000-\u109F\u1780-\u17D3\u3041-\u3096\u309D-\u309F"
    r"\u30A1-\u30FA\u30FC-\u30FF\u31F0-\u31FF\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF"
    r"\uFF66-\uFF9D\U00020000-\U0003FFFF]\p{M}*)"
)
_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_SIGNS = "…:;!?¿¡()[]{}<>_#*&～·،؛٪—–、" + _QUOTES + "".join(sorted(TERMINALS - {"."}))
_SIGN = rf"[\p{{So}}\p{{Sc}}{regex.escape(_SIGNS, special_only=False)}--[°]]"
_LETTER = r"[\p{L}\p{M}]"
_SMALL, _CAPITAL = r"\p{Ll}\p{Lo}", r"\p{Lu}\p{Lt}\p{Lo}"
# French and Italian articles and particles: their packs count some of them as stop words.
_ELIDED = r"[cdjlmnst]|(?:jus|lors|puis)?qu|un|[dns]?ell|all|dall|sull|quell"
_UNIT = r"[kdcmµn]?m[²³]?|[kmµ]?g|ha|km/h|[KMGT]B?|[kmgt]b"
_PREFIX = regex.compile(rf"\.\.+|\+(?!\d)|[§%=]|{_SIGN}|(?i:{_ELIDED})['’](?={_LETTER})", regex.V1)
_SUFFIX = regex.compile(  # (?r): searched from the end
    rf"(?r)(?:\.\.+|(?i:n['’]t|['’](?:s|re|ll|ve|d|m))|{_SIGN}|(?<=\d)(?:\+|%|{_UNIT})"
    rf"|(?<=[\d{_SMALL}%²+\-\p{{Po}}\p{{Ps}}\p{{Pe}}{_QUOTES}])\.|(?<=[{_CAPITAL}][{_CAPITAL}])\.)$",
    regex.V1,
)
_INFIX = regex.compile(
    rf"(\.\.+|…|[\p{{So}}--[°]]|(?<=\d)[+\-*^](?=[\d-])|(?<={_LETTER}),(?={_LETTER})"
    rf"|(?<=[{_SMALL}{_QUOTES}])\.(?=[{_CAPITAL}{_QUOTES}])"
    rf"|(?<=[\p{{L}}\p{{M}}\d])(?:---?|[-–—~]|[:<>=/])(?={_LETTER}))",
    regex.V1,
)
_WHOLE = regex.compile(
    r"(?:\p{L}\.)+|and/or|(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Corp|Co|Gen|Gov|Rev|Sen|vs|Ph\.D)\."
    r"|[a-z]+://[^\s<>\"]*[\w/=]|(?:[\w-]+\.)+[a-z]{2,}(?:[:/?#][^\s<>\"]*[\w/=])?",
    regex.V1,
)
_PLAIN = regex.compile(r"[\w\p{M}]+|[^\w\s\p{M}]")
_LONGEST = 256
# Tatweel, Arabic vowel and Quranic signs, Hebrew points.
_FOLDED_AWAY = re.compile(
    "[\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0591-\u05c7]"
)
_ALEF = str.maketrans("أإآٱى", "ااااي")


def split_words(text: str) -> list[str]:
    """All tokens of `text` in order, punctuation included; white space is none."""
    return list(itertools.chain.from_iterable(map(_PIECES.__getitem__, text.split())))


class _Pieces(dict[str, tuple[str, ...]]):
    """The tokens of each piece between white space, remembered for the short ones. (Tuples of
    strings are nothing that the garbage collector walks through again and again.)"""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        if piece.isalpha() and not is_unspaced(piece):
            tokens: tuple[str, ...] = (piece,)
        else:
            parts = enumerate(_UNSPACED_SIGN.split(piece))
            tokens = tuple(
                token for n, part in parts for token in ((part,) if n % 2 else _split_piece(part))
            )
        if len(piece) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[piece] = tokens
        return tokens


_REMEMBERED = 1 << 17
_REMEMBERED_LENGTH = 32
_PIECES = _Pieces()


@dataclass(frozen=True)
class Words:
    """Tokens and, for each: its characters; whether it counts as a word under the published rules
    (any character outside `SIGNS`) and holds a letter; its hash and HASH_BASE to its bytes."""

    tokens: Sequence[str]
    lengths: npt.NDArray[np.int64]
    counted: npt.NDArray[np.bool_]
    letters: npt.NDArray[np.bool_]
    hashes: npt.NDArray[np.uint64]
    powers: npt.NDArray[np.uint64]


def describe(tokens: Sequence[str]) -> Words:
    """What the rules need to know of `tokens`."""
    global _vocabulary
    if len(_vocabulary) > _REMEMBERED:
        _vocabulary = _Vocabulary()
    table = _vocabulary
    ids = np.fromiter(map(table.__getitem__, tokens), np.int64, len(tokens))
    return Words(
        *(tokens, table.lengths[ids], table.counted[ids]),
        *(table.letters[ids], table.hashes[ids], table.powers[ids]),
    )


class _Vocabulary(dict[str, int]):
    """Token to its row in the arrays, which are longer than they need to be."""

    def __init__(self) -> None:
        self.lengths = np.zeros(1024, np.int64)
        self.counted = np.zeros(1024, np.bool_)
        self.letters = np.zeros(1024, np.bool_)
        self.hashes = np.zeros(1024, np.uint64)
        self.powers = np.zeros(1024, np.uint64)

    def __missing__(self, token: str) -> int:
        row = len(self)
        if row == len(self.lengths):
            for name in ("lengths", "counted", "letters", "hashes", "powers"):
                setattr(self, name, np.resize(getattr(self, name), 2 * row))
        self.lengths[row] = len(token)
        self.counted[row] = not SIGNS.issuperset(token)
        self.letters[row] = token[:1].isalpha() or any(map(str.isalpha, token))
        self.hashes[row], self.powers[row] = _polynomial(token)
        self[token] = row
        return row


def _polynomial(token: str) -> tuple[int, int]:
    value, power = 0, 1
    for byte in token.encode(errors="surrogatepass"):
        value = (value * HASH_BASE + _BYTE_VALUES[byte]) & _MASK
        power = (power * HASH_BASE) & _MASK
    return value, power


HASH_BASE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_BYTE_VALUES = tuple(map(random.Random(0).getrandbits, itertools.repeat(64, 256)))  # noqa: S311
_vocabulary = _Vocabulary()


def is_word(token: str) -> bool:
    """False for a token of punctuation or symbols only."""
    return token[0].isalnum() or token.isalnum() or any(_is_word_character(c) for c in token)


def is_unspaced(text: str) -> bool:
    """True if it holds a character of a script that is written without spaces."""
    return not text.isascii() and _UNSPACED_SIGN.search(text) is not None


def count_words(text: str) -> int:
    """As the corpus counts them: tokens that are not punctuation only."""
    return count_word_tokens(split_words(text))


def count_word_tokens(tokens: Iterable[str]) -> int:
    """How many of `tokens` are not punctuation only."""
    return sum(map(_WORDNESS.__getitem__, tokens))


class _Wordness(dict[str, bool]):
    """`is_word` of tokens, remembered."""

    def __missing__(self, token: str) -> bool:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[token] = found = is_word(token)
        return found


_WORDNESS = _Wordness()


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


def _split_piece(piece: str) -> list[str]:
    """Signs off both ends, then apart at signs that part. What is too long for a word only parts
    into letters and signs, so that a page cannot make this slow."""
    if len(piece) > _LONGEST:
        return _PLAIN.findall(piece)
    before: list[str] = []
    behind: list[str] = []
    while piece and not _WHOLE.fullmatch(piece):
        if found := _PREFIX.match(piece):
            before.append(found[0])
            piece = piece[found.end() :]
        elif found := _SUFFIX.search(piece):
            behind.append(found[0])
            piece = piece[: found.start()]
        else:
            before += filter(None, _INFIX.split(piece))
            piece = ""
    return [*before, *([piece] if piece else []), *reversed(behind)]
