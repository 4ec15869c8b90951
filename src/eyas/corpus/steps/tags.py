"""The tags of a page, in order, without parsing it: numpy finds them, and Python looks closer only
at those that may not be what they seem.

As in the HTML standard (https://html.spec.whatwg.org/#tokenization), what looks like a tag within a
comment, a script or another element of raw text, or within the quotes of an attribute, is none.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "ATTRIBUTES",
    "TEXT_END",
    "WHOLE_TAG",
    "Marks",
    "Tags",
    "find_marks",
    "find_tags",
    "name_key",
    "name_keys",
]

_ATTRIBUTE = rb"(?:[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\s>]*+))?+)"
ATTRIBUTES = re.compile(_ATTRIBUTE)
WHOLE_TAG = re.compile(rb"<[^\s/>]*+(?:[\s/]++|" + _ATTRIBUTE + rb")*+>")
TEXT_END = re.compile(
    rb"</(?:script|style|title|textarea|xmp|iframe|noembed|noframes)|--!?>", re.IGNORECASE
)
_COMMENT_END = re.compile(rb"--!?>")
_NAME_BYTE = np.ones(256, dtype=np.uint8)
_NAME_BYTE[list(b" \t\n\r\f/>")] = 0
_EIGHT = np.arange(8)
_PAD = b">" * 11 + b" "
_OPEN, _END, _SINGLE, _DOUBLE = 1, 2, 3, 4
_CLASSES = bytearray(256)
_CLASSES[ord("<")], _CLASSES[ord(">")] = _OPEN, _END
_BEGINS = np.zeros(256, dtype=bool)  # what may follow the `<` of a tag or comment
_BEGINS[list(b"/!abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = True
_CLASSES[ord("'")], _CLASSES[ord('"')] = _SINGLE, _DOUBLE
_I64 = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Marks:
    """Every `<` of a page that may begin a tag or comment: its place, the place behind the next
    `>`, and whether the tag may end elsewhere: another `<` stands before that, or quotes of which
    one may be open there. `page` is the page with something behind it."""

    page: npt.NDArray[np.uint8]
    at: _I64
    end: _I64
    odd: _Flags


@dataclass(frozen=True)
class Tags:
    """Start and end tags in order: place of the `<`, place behind the `>`, key of the name, and
    whether it is an end tag."""

    at: _I64
    end: _I64
    keys: _U64
    closing: _Flags


def name_key(name: str) -> int:
    """The first eight bytes of an element's name, as a number."""
    return int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "little")


def name_keys(names: str) -> frozenset[int]:
    """The keys of names with spaces between."""
    return frozenset(map(name_key, names.split()))


_RAW_NAMES = "iframe noembed noframes script style textarea title xmp"
_RAW = {name_key(name): b"</" + name.encode() for name in _RAW_NAMES.split()}
_RAW_KEYS = np.array(sorted(_RAW), dtype=np.uint64)


def find_marks(data: bytes) -> Marks:
    """All marks of a page in UTF-8 or another character set that holds ASCII."""
    classes = np.frombuffer((data + _PAD).translate(_CLASSES), dtype=np.uint8)
    page = np.frombuffer(data + _PAD, dtype=np.uint8)
    places = np.flatnonzero(classes != 0)
    places = places[(classes[places] != _OPEN) | _BEGINS[page[places + 1]]]
    found = classes[places]
    opens = np.flatnonzero(found == _OPEN)
    ends = np.flatnonzero(found == _END)
    end = ends[np.searchsorted(ends, opens)]
    singles, doubles = (
        quotes[end] - quotes[opens]
        for quotes in (np.cumsum(found == kind, dtype=np.int32) for kind in (_SINGLE, _DOUBLE))
    )
    odd = ((singles + doubles) % 2 == 1) | ((singles > 0) & (doubles > 0))
    odd |= np.append(opens, len(found))[1:] < end
    return Marks(page, places[opens], places[end] + 1, odd)


def find_tags(lower: bytes) -> Tags:
    """All tags of a page in lower case. One that is not ended is not there, nor what follows it."""
    marks = find_marks(lower)
    page, at, end = marks.page, marks.at, marks.end
    second = page[at + 1]
    closing = second == ord("/")
    first = page[at + 1 + closing]
    comment = second == ord("!")
    real = ((first >= ord("a")) & (first <= ord("z"))) | comment
    at, end, closing, comment = at[real], end[real], closing[real], comment[real]
    keys = _names(page, at + 1 + closing)
    raw = _among(keys, _RAW_KEYS) & ~closing
    keep = _look_closer(lower, at, end, keys, comment, raw, comment | raw | marks.odd[real])
    return Tags(at[keep], end[keep], keys[keep], closing[keep])


def _names(page: npt.NDArray[np.uint8], at: _I64) -> _U64:
    letters = page[at[:, None] + _EIGHT]
    letters *= np.multiply.accumulate(_NAME_BYTE[letters], axis=1)
    return letters.view(np.uint64).ravel()


def _among(keys: _U64, wanted: _U64) -> _Flags:
    found: _Flags = wanted[np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)] == keys
    return found


def _look_closer(
    lower: bytes, at: _I64, end: _I64, keys: _U64, comment: _Flags, raw: _Flags, close: _Flags
) -> _Flags:
    """Which tags are real; corrects `end` of those that end elsewhere."""
    keep = ~comment
    places = at.tolist()
    hidden = 0  # up to here nothing is a tag
    for i in np.flatnonzero(close).tolist():
        if places[i] < hidden:
            continue
        hidden = _end_of(lower, places[i], bool(comment[i]))
        if hidden < 0:  # the page ends within it
            keep[i:] = False
            break
        if not comment[i]:
            end[i] = hidden
        if raw[i]:
            hidden = lower.find(_RAW[int(keys[i])], hidden)
            hidden = len(lower) if hidden < 0 else hidden
        keep[i + 1 : bisect_left(places, hidden)] = False
    return keep


def _end_of(lower: bytes, start: int, comment: bool) -> int:
    """The place behind a tag or comment; -1 if the page ends within it."""
    if comment and not lower.startswith(b"<!--", start):
        return lower.find(b">", start) + 1 or -1
    found = _COMMENT_END.search(lower, start + 2) if comment else WHOLE_TAG.match(lower, start)
    return found.end() if found else -1
