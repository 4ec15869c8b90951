"""Text to words, once per document, and the form of a word that matching compares.

A token is what the published thresholds were counted in, spaCy's blank tokens, by rules of our own
for all languages: signs come off both ends of what stands between white space, one at a time, and
what is left parts at hyphens, slashes and the like between letters (well, -, known; and, /, x).
Numbers, URLs, initials and titles stay whole (1,000, v1.2, 10:30, e.g., Mr.); English contractions
and French and Italian elisions part (do, n't; can, not; l', eau). Scripts that are written without
spaces (Han, Kana, Thai, Lao, Khmer, Burmese) give one token a character, its marks with it; the
language packs say how many of those make a word, and what else stays whole in a language (`Style`):
as spaCy has it, in German a word with a hyphen, 3. and usw. For spaCy "):" is a face and one token.

No token holds white space, so a text is cut at white space first and each piece is looked up: most
pieces of a text are words that the process has seen. What is remembered is bounded and changes no
result.

`describe` gives what the rules need to know of each token as arrays, from a table of the tokens
seen.

`matching_form` is for finding duplicates only and never reaches an output: compatibility forms,
case, punctuation of any script, tatweel, Arabic and Hebrew vowel signs and the forms of alef are
folded, so two copies that differ only in those match.
"""

from __future__ import annotations

import itertools
import re
import string
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from .punctuation import SIGNS, TERMINALS

__all__ = [
    "COUNTED",
    "LETTERS",
    "PUNCTUATION",
    "WORD",
    "Style",
    "Words",
    "count_words",
    "describe",
    "describe_pieces",
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
_SUFFIX = regex.compile(  # (?r): matched from the end
    rf"(?r)(?:\.\.+|(?i:n['’]t|['’](?:s|re|ll|ve|d|m))|{_SIGN}|(?<=\d)(?:\+|%|{_UNIT})"
    rf"|(?<=[\d{_SMALL}%²+\-\p{{Po}}\p{{Ps}}\p{{Pe}}{_QUOTES}])\.|(?<=[{_CAPITAL}][{_CAPITAL}])\.)$",
    regex.V1,
)
_INFIX, _INFIX_BUT_HYPHENS = (
    regex.compile(
        rf"(\.\.+|…|[\p{{So}}--[°]]|(?<=\d)[{between_digits}](?=[\d-])|(?<={_LETTER}),(?={_LETTER})"
        rf"|(?<=[{_SMALL}{_QUOTES}])\.(?=[{_CAPITAL}{_QUOTES}])"
        rf"|(?<=[\p{{L}}\p{{M}}\d])(?:{hyphens}|[:<>=/])(?={_LETTER}))",
        regex.V1,
    )
    for between_digits, hyphens in ((r"+\-*^", "---?|[-–—~]"), ("+*^", "--"))
)
_ORDINAL = regex.compile(r"[\w.\-/]*\d\.")
_TITLES = frozenset("Mr Mrs Ms Dr Prof St Jr Sr Inc Ltd Corp Co Gen Gov Rev Sen vs Ph.D".split())
_WHOLE = regex.compile(
    rf"(?:\p{{L}}\.)+|and/or|(?:{'|'.join(map(regex.escape, sorted(_TITLES)))})\."
    r"|[a-z]+://[^\s<>\"]*[\w/=]|(?:[\w-]+\.)+[a-z]{2,}(?:[:/?#][^\s<>\"]*[\w/=])?",
    regex.V1,
)
_PLAIN = regex.compile(r"[\w\p{M}]+|[^\w\s\p{M}]")
_PARTED = {"cannot": ("can", "not"), "Cannot": ("Can", "not")}
_LONGEST = 256
_PLAIN_ENDS = frozenset(",;:!?)")
# Tatweel, Arabic vowel and Quranic signs, Hebrew points.
_FOLDED_AWAY = re.compile(
    "[\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0591-\u05c7]"
)
_ALEF = str.maketrans("أإآٱى", "ااااي")


@dataclass(frozen=True)
class Style:
    """What stays one token in a language: words with a hyphen; a number with the full stop that
    makes it an ordinal; these words and abbreviations, each with its signs."""

    keep_hyphens: bool = False
    keep_ordinals: bool = False
    whole_words: tuple[str, ...] = ()


_PLAIN_STYLE = Style()


def split_words(text: str, style: Style = _PLAIN_STYLE) -> list[str]:
    """All tokens of `text` in order, punctuation included; white space is none."""
    return list(describe_pieces([text.split()], style)[0].tokens)


@dataclass(frozen=True)
class Words:
    """Tokens as rows of a table of tokens."""

    table: _Table
    rows: npt.NDArray[np.int32]

    @property
    def tokens(self) -> Iterator[str]:
        return map(self.table.tokens.__getitem__, self.rows.tolist())

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Characters of each token."""
        return np.frombuffer(self.table.lengths, np.int32)[self.rows].astype(np.int64)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each token."""
        return np.frombuffer(self.table.sizes, np.int32)[self.rows].astype(np.int64)

    @cached_property
    def flags(self) -> npt.NDArray[np.uint8]:
        """`COUNTED`, `LETTERS`, `WORD` and `PUNCTUATION` of each token, added up."""
        return np.frombuffer(self.table.flags, np.uint8)[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def among(self, tokens: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Whether each is one of `tokens`."""
        wanted = np.zeros(len(self.table.tokens), np.bool_)
        wanted[self.table.known(tokens)] = True
        return wanted[self.rows]

    def distinct(self, tokens: Iterable[str]) -> int:
        """How many different ones of `tokens` are there."""
        there = np.zeros(len(self.table.tokens), np.bool_)
        there[self.rows] = True
        return int(np.count_nonzero(there[self.table.known(tokens)]))


COUNTED = 1  # a word under the published rules: any character outside `SIGNS`
LETTERS = 2  # holds a letter
WORD = 4  # `is_word`
PUNCTUATION = 8  # punctuation only, as Unicode has it


def describe(tokens: Sequence[str]) -> Words:
    """What the rules need to know of `tokens`."""
    table = _table(_PLAIN_STYLE)
    return Words(table, np.array(table.rows_of(tokens), np.int32))


def describe_pieces(
    lines: Sequence[Sequence[str]], style: Style = _PLAIN_STYLE
) -> tuple[Words, npt.NDArray[np.int64]]:
    """The tokens of lines that were cut at white space, and how many each line has."""
    table = _table(style)
    pieces = np.fromiter(map(len, lines), np.int64, len(lines))
    at = np.array(table.pieces_of(itertools.chain.from_iterable(lines)), np.int32)
    starts = np.frombuffer(table.starts, np.int32)
    first, counts = starts[at], starts[at + 1]
    del starts  # an array that is looked into cannot grow
    counts -= first
    ends = np.cumsum(counts)
    first -= ends - counts
    rows = np.frombuffer(table.rows, np.int32)[np.repeat(first, counts) + np.arange(counts.sum())]
    return Words(table, rows), _sums(counts, pieces)


def _sums(values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of the first so many of `values`, of the so many behind those, and so on."""
    before = np.concatenate((_NONE, np.cumsum(values)))
    return np.diff(before[np.concatenate((_NONE, np.cumsum(counts)))])


class _Numbers(dict[str, int]):
    """Numbers texts in the order in which they are first asked for; `new` are the last of them."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        self.new.append(text)
        return number


class _Table:
    """Token to its row in the arrays, and each piece between white space to its tokens.

    What is known of a token is worked out once, for all new ones of a text together. Rows are only
    added, so an array of rows stays right for as long as it lives; a full table makes room for a
    new one between two texts."""

    def __init__(self, style: Style) -> None:
        self._split = _Splitter(style).piece
        self._tokens, self._pieces = _Numbers(), _Numbers()
        self.tokens: list[str] = []
        self.lengths, self.sizes, self.flags = array("i"), array("i"), array("B")
        # The tokens of piece n are `rows` from `starts[n]` to `starts[n + 1]`, `words[n]` of them
        # words.
        self.rows, self.starts, self.words = array("i"), array("i", [0]), array("i")
        self.characters = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def known(self, tokens: Iterable[str]) -> list[int]:
        """Rows of those of `tokens` that were seen."""
        return list(map(self._tokens.__getitem__, self._tokens.keys() & tokens))

    def rows_of(self, tokens: Iterable[str]) -> list[int]:
        """The row of each token."""
        found = list(map(self._tokens.__getitem__, tokens))
        if new := self._tokens.new:
            lengths = list(map(len, new))
            sizes, flags = list(map(_size, new)), list(map(_flags, new))
            self.characters += sum(lengths)
            self.tokens.extend(new)
            self.lengths.extend(lengths)
            self.sizes.extend(sizes)
            self.flags.extend(flags)
            new.clear()
        return found

    def pieces_of(self, pieces: Iterable[str]) -> list[int]:
        """The number of each piece in `starts` and `words`."""
        found = list(map(self._pieces.__getitem__, pieces))
        if new := self._pieces.new:
            tokens = list(map(self._split, new))
            rows = self.rows_of(itertools.chain.from_iterable(tokens))
            counts = np.fromiter(map(len, tokens), np.int64, len(tokens))
            words = _sums(np.frombuffer(self.flags, np.uint8)[rows] & WORD != 0, counts)
            self.characters += sum(map(len, new))
            self.starts.extend((np.cumsum(counts) + len(self.rows)).tolist())
            self.words.extend(words.tolist())
            self.rows.extend(rows)
            new.clear()
        return found


def _size(token: str) -> int:
    return len(token) if token.isascii() else len(token.encode(errors="surrogatepass"))


def _flags(token: str) -> int:
    if token.isalpha():
        return COUNTED + LETTERS + WORD  # no sign is a letter
    return (
        COUNTED * (not SIGNS.issuperset(token))
        + LETTERS * any(map(str.isalpha, token))
        + WORD * is_word(token)
        + PUNCTUATION * all(unicodedata.category(c)[0] == "P" for c in token)
    )


def _table(style: Style) -> _Table:
    known = _tables.values()
    if (
        sum(map(len, known)) > _REMEMBERED
        or sum(table.characters for table in known) > _REMEMBERED_CHARACTERS
    ):
        _tables.clear()
    if style not in _tables:
        _tables[style] = _Table(style)
    return _tables[style]


_REMEMBERED = 1 << 17
_REMEMBERED_CHARACTERS = 1 << 22
_NONE = np.zeros(1, np.int64)
_tables: dict[Style, _Table] = {}


def is_word(token: str) -> bool:
    """False for a token of punctuation or symbols only."""
    return token[0].isalnum() or token.isalnum() or any(_is_word_character(c) for c in token)


def is_unspaced(text: str) -> bool:
    """True if it holds a character of a script that is written without spaces."""
    return not text.isascii() and _UNSPACED_SIGN.search(text) is not None


def count_words(text: str, style: Style = _PLAIN_STYLE) -> int:
    """As the corpus counts them: tokens that are not punctuation only."""
    table = _table(style)
    return sum(map(table.words.__getitem__, table.pieces_of(text.split())))


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


class _Splitter:
    """Cuts what stands between white space into tokens."""

    def __init__(self, style: Style) -> None:
        self._infix = _INFIX_BUT_HYPHENS if style.keep_hyphens else _INFIX
        self._ordinals = style.keep_ordinals
        self._whole = frozenset(style.whole_words)
        self._parted = {word: parts for word, parts in _PARTED.items() if word not in self._whole}

    def piece(self, piece: str) -> Sequence[str]:
        """The tokens of a piece; the common kinds without a look at any pattern."""
        if piece.isascii():
            if piece.isalpha() or piece in self._whole:
                return self._parted.get(piece, (piece,))
            body, last = piece[:-1], piece[-1]
            if body.isalpha() and body not in self._parted:
                stop = last == "." and len(body) > 1 and body[-2:].islower()
                if last in _PLAIN_ENDS or (stop and body not in _TITLES):
                    return body, last
            return self._part(piece)
        parts = _UNSPACED_SIGN.split(piece)
        if len(parts) == 1:
            return (piece,) if piece.isalpha() else self._part(piece)
        return [
            token
            for n, part in enumerate(parts)
            for token in ((part,) if n % 2 else self._part(part))
        ]

    def _part(self, piece: str) -> list[str]:
        """Signs off both ends, then apart at signs that part. What is too long for a word only
        parts into letters and signs, so that a page cannot make this slow."""
        if len(piece) > _LONGEST:
            return _PLAIN.findall(piece)
        before: list[str] = []
        behind: list[str] = []
        while piece and not self._is_whole(piece):
            first, last = piece[0], piece[-1]
            if first in _ASCII_SIGNS:
                before.append(first)
                piece = piece[1:]
            elif _may_begin(piece) and (found := _PREFIX.match(piece)):
                before.append(found[0])
                piece = piece[found.end() :]
            elif last in _ASCII_SIGNS:
                behind.append(last)
                piece = piece[:-1]
            elif _may_end(piece) and (found := _SUFFIX.match(piece)):
                behind.append(found[0])
                piece = piece[: found.start()]
            elif piece.isalnum() or (piece.isascii() and _ASCII_PARTING.isdisjoint(piece)):
                break
            else:
                before += filter(None, self._infix.split(piece))
                piece = ""
        middle = self._parted.get(piece, (piece,)) if piece else ()
        tokens = [*before, *middle, *reversed(behind)]
        for at in range(len(tokens) - 1, 0, -1):
            if tokens[at] == ":" and tokens[at - 1] == ")":
                tokens[at - 1 : at + 1] = ["):"]
        return tokens

    def _is_whole(self, piece: str) -> bool:
        if piece in self._whole:
            return True
        if "." not in piece and "/" not in piece:
            return False
        return _WHOLE.fullmatch(piece) is not None or (
            self._ordinals and _ORDINAL.fullmatch(piece) is not None
        )


def _may_begin(piece: str) -> bool:
    """Whether `_PREFIX` is worth a look: only an elision begins with a letter."""
    return piece[0] not in _ALNUM or "'" in piece or "’" in piece


def _may_end(piece: str) -> bool:
    """Whether `_SUFFIX` is: only units and contractions end with a letter, nothing with a digit."""
    if piece[-1] not in _ALNUM:
        return True
    return not piece[-1].isdigit() and (
        "'" in piece or "’" in piece or any(map(str.isdigit, piece[-5:-1]))
    )


_ASCII_PARTING = frozenset(".,:<>=/+-*^~")  # those of ASCII in `_INFIX`
_ALNUM = frozenset(string.ascii_letters + string.digits)
_ASCII_SIGNS = frozenset(filter(regex.compile(_SIGN, regex.V1).fullmatch, string.punctuation))
