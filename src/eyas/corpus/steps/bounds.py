"""What a page would cost an extractor, told from its tags before anything parses it.

Parsers and extractors take time by the square of several things: how deep elements nest, how many
formatting elements (`<b>`, `<font>` …) are open when a paragraph starts and are opened again in it,
how many attributes an element has, how many cells the widest row of a table makes of every other
one. So a page of 200 KB can take minutes and gigabytes. The bounds here are functions of the bytes
alone: no clock decides.

What the tags open and close is followed about as the HTML standard
(https://html.spec.whatwg.org/#parsing) has it: an end tag without its element does nothing, a table
hides what is open around it, a <li> closes the <li> before it and a block the open <p>, and
formatting elements come back after what closed them. Most pages need not be followed: they have
too few tags to be deep, too few formatting ones, and no long one; of most others it is enough that
what each name opens and closes, counted for itself, could not add up to too much.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from .tags import (
    ATTRIBUTES,
    TEXT_END,
    WHOLE_TAG,
    Marks,
    Tags,
    find_marks,
    find_tags,
    name_key,
    name_keys,
)

__all__ = ["MAX_ATTRIBUTES", "MAX_DEPTHS", "Excess", "check_bounds"]

MAX_ATTRIBUTES = 512
MAX_DEPTHS = 10_000_000

_VOID = name_keys(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param "
    "source track wbr"
)
_FORMATS = name_keys("a b big code em font i nobr s small strike strong tt u")
_ALONE = name_keys("a nobr")  # of these only the last comes back
_RAW = name_keys("iframe noembed noframes script style textarea title xmp")
_FOREIGN = name_keys("svg math")
_TOP = name_keys("html body")
_BLOCKS = name_keys(
    "address article aside blockquote center details dialog dir div dl dd dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext "
    "pre search section summary table ul xmp"
)
_P, _TABLE, _ROW, _CELLS = name_key("p"), name_key("table"), name_key("tr"), name_keys("td th")
_OPTION = name_key("option")
# A start tag closes an open element of its group, unless a stop lies between.
_GROUPS = (
    "li|dd dt|option optgroup|td th|tr|tbody thead tfoot|rb rp rt rtc|button|h1 h2 h3 h4 h5 h6"
).split("|")
_CLOSES = {key: name_keys(group) for group in _GROUPS for key in name_keys(group)}
_STOPS = name_keys("ul ol menu dl select ruby tr section article blockquote")
_SPAN = re.compile(rb"colspan\s*=\s*[\"']?\s*(\d{1,9})")
_MOST_MARKS = 10  # what looks like a tag in a script is none, but memory is bounded
_FEW_TAGS = 4000  # the depths of so many add up to less than MAX_DEPTHS
_LONG_TAG = 2 * MAX_ATTRIBUTES  # bytes: the least for more attributes
_MAX_OPTIONS = 10_000  # resiliparse looks at all before each
_WIDEST = 100  # columns to which trafilatura fills up every row of a table
_LOOK = 8  # elements that closing one of a group passes without being counted


_TAG, _FORMAT, _OF_TOP = 1, 2, 3


def _kinds() -> npt.NDArray[np.uint8]:
    """By the two bytes behind a `<`: what kind of start tag it may be, 0 for none."""
    kinds = np.zeros((256, 256), dtype=np.uint8)
    letters = [ord(c) for c in "abcdefghijklmnopqrstuvwxyz"]
    kinds[letters] = _TAG
    ends = b" \t\n\r\f/>"
    for name in "b big code em font i s small strike strong tt u".split():
        kinds[ord(name[0]), list(ends) if len(name) == 1 else ord(name[1])] = _FORMAT
    for name in ("html", "body"):
        kinds[ord(name[0]), ord(name[1])] = _OF_TOP
    for first in letters:
        kinds[first, ord("A") : ord("Z") + 1] = kinds[first, ord("a") : ord("z") + 1]
        kinds[first - 32] = kinds[first]
    return kinds


_KINDS = _kinds()


class Excess(Exception):
    """A page over a bound: `reason` and the `value` at which it was seen."""

    def __init__(self, reason: str, value: float) -> None:
        super().__init__(f"{reason}: {value:g}")
        self.reason = reason
        self.value = value


def check_bounds(data: bytes, max_nodes: int) -> None:
    """Raises Excess for a page that an extractor should not be given. `data` is in UTF-8 or another
    character set that holds ASCII.

    Reasons: too_many_nodes (elements that a parser would make, with the cells that fill rows, over
    `max_nodes`; or options, over 10,000), too_deep (the depths of all tags, added up, over
    MAX_DEPTHS), too_many_attributes (of one element, over MAX_ATTRIBUTES). Of pages with few tags
    and formats, the cells and what is opened again are not counted.
    """
    marks = find_marks(data)
    if len(marks.at) > _MOST_MARKS * max_nodes:
        raise Excess("too_many_nodes", len(marks.at))
    if _is_small(data, marks, max_nodes):
        return
    lower = data.lower()
    tags = find_tags(lower)
    starts = len(tags.at) - int(np.count_nonzero(tags.closing))
    if starts > max_nodes:
        raise Excess("too_many_nodes", starts)
    options = int(np.count_nonzero((tags.keys == _OPTION) & ~tags.closing))
    if options > _MAX_OPTIONS:
        raise Excess("too_many_nodes", options)
    _check_attributes(lower, tags)
    if _may_exceed(tags, starts, max_nodes):
        opened = _follow(lower, tags, max_nodes)
        if opened.nodes > max_nodes:
            raise Excess("too_many_nodes", opened.nodes)
        if opened.depths > MAX_DEPTHS:
            raise Excess("too_deep", opened.depths)


def _is_small(data: bytes, marks: Marks, max_nodes: int) -> bool:
    """Whether nothing can be over a bound, as can be seen from the tags' first two letters."""
    tags = len(marks.at)
    if tags > min(_FEW_TAGS, max_nodes):
        return False
    kinds = _KINDS[marks.page[marks.at + 1], marks.page[marks.at + 2]]
    length = marks.end - marks.at
    if length[kinds == _OF_TOP].sum() > 2 * _LONG_TAG:
        return False
    formats = kinds == _FORMAT
    most = 4 * max_nodes // max(1, tags)  # of the same tag, three are opened again
    if np.count_nonzero(formats) > most and 3 * _different(data, marks, formats) > most:
        return False
    passed = looked = 0
    for at in marks.at[(kinds > 0) & (marks.odd | (length > _LONG_TAG))].tolist():
        if at < passed:
            continue
        tag = WHOLE_TAG.match(data, at)
        if tag is None or looked > 2 * len(data):
            return False
        if tag.end() - at > _LONG_TAG and len(ATTRIBUTES.findall(tag.group())) > MAX_ATTRIBUTES:
            return False
        # What looks like a tag in a script can hide real ones only behind the script's end.
        text_end = TEXT_END.search(data, at, tag.end())
        passed = text_end.end() if text_end else tag.end()
        looked += tag.end() - at
    return True


def _different(data: bytes, marks: Marks, chosen: npt.NDArray[np.bool_]) -> int:
    """How many different tags are among the chosen, at most."""
    plain = chosen & ~marks.odd
    places = zip(marks.at[plain].tolist(), marks.end[plain].tolist(), strict=True)
    return len({data[at:end] for at, end in places}) + int(np.count_nonzero(chosen & marks.odd))


def _check_attributes(lower: bytes, tags: Tags) -> None:
    """Those of a repeated <html> or <body> all go to the one element."""
    top = np.isin(tags.keys, _array(_TOP)) & ~tags.closing
    of_top = 0
    for i in np.flatnonzero((tags.end - tags.at > _LONG_TAG) | top).tolist():
        found = ATTRIBUTES.findall(lower, int(tags.at[i]) + 1, int(tags.end[i]) - 1)
        of_top += len(found) - 1 if top[i] else 0
        if max(len(found) - 1, of_top) > MAX_ATTRIBUTES:
            raise Excess("too_many_attributes", max(len(found) - 1, of_top))


def _may_exceed(tags: Tags, starts: int, max_nodes: int) -> bool:
    """Whether the page must be followed. The most that are open at once of each name, added up, is
    at least the depth; outside, and inside of how many tables, an element counts for itself."""
    void = np.isin(tags.keys, _array(_VOID | _RAW))
    keys, closing = tags.keys[~void], tags.closing[~void]
    if not len(keys):
        return False
    levels = _levels(keys, closing)
    order = np.lexsort((keys, levels))
    keys, levels, steps = keys[order], levels[order], np.where(closing[order], -1, 1)
    new = np.append(True, (keys[1:] != keys[:-1]) | (levels[1:] != levels[:-1]))
    # Every group begins below all before it, so that one running minimum serves them all.
    counts = np.cumsum(steps) - (np.cumsum(new) - 1) * 2 * len(keys)
    before = np.where(new, counts - steps, counts)
    open_now = counts - np.minimum.accumulate(np.minimum(before, counts))
    most = np.maximum.reduceat(open_now, np.flatnonzero(new))
    many = np.isin(keys[new], _array(_FORMATS - _ALONE))
    formats = int(most[many].sum()) + len(_ALONE)
    rows = int(np.count_nonzero(tags.keys == _ROW))
    if starts * (1 + formats) > max_nodes or rows * _WIDEST > max_nodes:
        return True
    return len(tags.at) * (int(most.sum()) + _LOOK) > MAX_DEPTHS


def _levels(keys: npt.NDArray[np.uint64], closing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Of each tag, how many tables are open around it."""
    tables = keys == _TABLE
    count = np.cumsum(np.where(tables, np.where(closing, -1, 1), 0))
    levels: npt.NDArray[np.int64] = count - np.minimum.accumulate(np.minimum(count, 0))
    return levels - (tables & ~closing)


def _array(keys: frozenset[int]) -> npt.NDArray[np.uint64]:
    return np.array(sorted(keys), dtype=np.uint64)


def _follow(lower: bytes, tags: Tags, max_nodes: int) -> _Opened:
    """What the tags open, up to where it is too much."""
    opened = _Opened()
    spans = _spans(lower, tags)
    columns = (tags.at, tags.end, tags.keys, tags.closing)
    for at, end, key, closing in zip(*(c.tolist() for c in columns), strict=True):
        if closing:
            opened.close(key)
        elif key in _VOID or key in _RAW:
            opened.count()
        else:
            plain = lower[at:end] if key in _FORMATS else b""
            opened.open(key, plain, lower.endswith(b"/>", at, end), spans.get(at, 1))
            if opened.nodes > max_nodes or opened.depths > MAX_DEPTHS:
                break
    while opened.outer:
        opened.close(_TABLE)
    return opened


def _spans(lower: bytes, tags: Tags) -> dict[int, int]:
    """Columns by place of the cell."""
    found = [(m.start(), int(m.group(1))) for m in _SPAN.finditer(lower)]
    if not found or not len(tags.at):
        return {}
    index = np.searchsorted(tags.at, [at for at, _ in found]) - 1
    places = tags.at[np.maximum(index, 0)].tolist()
    return {at: min(n, _WIDEST) for at, (_, n) in zip(places, found, strict=True)}


_Outside = tuple[list[int], dict[int, int], list[int], dict[int, list[bytes]], int]


class _Opened:
    """What is open, and what has been opened so far.

    `stack` holds the keys that are open since the last table began, `outer` the stacks and sizes
    around it. `formats` holds the formatting elements that will be opened again, by key: of the
    same tag at most three, as the standard has it.
    """

    def __init__(self) -> None:
        self.nodes = 0
        self.depths = 0
        self.stack: list[int] = []
        self.outer: list[_Outside] = []
        self._counts: dict[int, int] = {}
        self._size = [0, 0, 0, 0]  # rows, columns, columns of this row, cells
        self._formats: dict[int, list[bytes]] = {}
        self._again = 0
        self._below = 0

    def count(self) -> None:
        """One element that holds nothing."""
        self.nodes += 1 + self._again
        self.depths += len(self.stack) + self._below + self._again

    def open(self, key: int, plain: bytes, ends_itself: bool, span: int) -> None:
        """A start tag; `plain` is the whole of a formatting one."""
        if key in _BLOCKS and self._counts.get(_P):
            self._pop(_P)
        if key in _CLOSES:
            self._close_group(_CLOSES[key])
        elif key in _ALONE and self._counts.get(key):
            self._remove(key)
        self.count()
        if ends_itself and self._foreign:
            return
        self._push(key)
        if plain:
            self._keep_format(key, plain)
        elif key in _CELLS:
            self._size[3] += 1
            self._size[2] += span
            self._size[1] = max(self._size[1], self._size[2])
        elif key == _ROW:
            self._size[0] += 1
            self._size[2] = 0
        elif key == _TABLE:
            self._below += len(self.stack)
            self.outer.append((self.stack, self._counts, self._size, self._formats, self._again))
            self.stack, self._counts, self._size = [], {}, [0, 0, 0, 0]
            self._formats = {k: list(v) for k, v in self._formats.items()}

    def close(self, key: int) -> None:
        """An end tag."""
        if key == _TABLE and self.outer:
            rows, columns, _, cells = self._size
            self.nodes += max(0, rows * min(columns, _WIDEST) - cells)
            outside = self.outer.pop()
            self.stack, self._counts, self._size, self._formats, self._again = outside
            self._below -= len(self.stack)
        if same := self._formats.get(key):
            same.pop()
            self._again -= 1
        if self._counts.get(key):
            if key in _FORMATS:
                self._remove(key)
            else:
                self._pop(key)

    def _keep_format(self, key: int, plain: bytes) -> None:
        same = self._formats.setdefault(key, [])
        if key in _ALONE:
            self._again -= len(same)
            same.clear()
        if same[-99:].count(plain) < 3:
            same.append(plain)
            self._again += 1

    @property
    def _foreign(self) -> bool:
        return any(self._counts.get(key) for key in _FOREIGN)

    def _push(self, key: int) -> None:
        self.stack.append(key)
        self._counts[key] = self._counts.get(key, 0) + 1

    def _pop(self, key: int) -> None:
        """The innermost open element of this name and all within it."""
        while True:
            top = self.stack.pop()
            self._counts[top] -= 1
            if top == key:
                return

    def _remove(self, key: int) -> None:
        """The innermost open element of this name, but not the blocks within it: those stay open,
        and formats are put into them again."""
        place = len(self.stack) - 1
        while self.stack[place] != key:
            place -= 1
        within = len(self.stack) - 1 - place
        self.nodes += min(within, _LOOK)
        self.depths += max(0, within - _LOOK)
        del self.stack[place]
        self._counts[key] -= 1

    def _close_group(self, group: frozenset[int]) -> None:
        if not any(self._counts.get(key) for key in group):
            return
        for steps, key in enumerate(reversed(self.stack)):
            if key in group:
                self._pop(key)
                return
            if key in _STOPS:
                return
            self.depths += steps > _LOOK  # a long look costs the parser as much
