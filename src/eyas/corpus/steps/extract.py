"""A page to its main text: trafilatura in its fast mode, or resiliparse.

The same bytes give the same text, every time and in every process: never with `deduplicate=True`,
whose cache remembers earlier pages, and never with the slower fall-backs, whose outcome hangs on
thresholds between algorithms. Comments are left out. What comes back has plain newlines, no control
characters and at most one empty line in a row.

Extractors take time by the square of a page's depth (50,000 open <div> took resiliparse four
minutes), so a page nested deeper than browsers nest (512) is refused, by counting tags.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from itertools import accumulate

import trafilatura
from resiliparse.extract.html2text import extract_plain_text

__all__ = ["EXTRACTORS", "MAX_DEPTH", "TooDeep", "clean_text", "extract_text"]

MAX_DEPTH = 512

logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # what it cannot do is counted here

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_NEWLINES = re.compile(r"\r\n?|[\x85\u2028\u2029]")
_EMPTY_LINES = re.compile(r"\n[ \t]*\n\s*\n")
# Looked for at the start of a run only: else a run of n takes n * n steps.
_LINE_ENDS = re.compile(r"(?<![ \t\xa0])[ \t\xa0]++\n")
# Elements that hold nothing, or that the next of their kind closes.
_FLAT = (
    "a|area|base|body|br|button|circle|col|colgroup|dd|dt|ellipse|embed|frame|h[1-6]|head|hr|html|"
    "image|img|input|li|line|link|meta|nobr|optgroup|option|p|param|path|polygon|polyline|rect|rp|"
    "rt|script|source|stop|style|tbody|td|tfoot|th|thead|tr|track|use|wbr"
)
_NESTING = re.compile(rf"<(/?)(?!(?:{_FLAT})[\s/>])[a-z]", re.IGNORECASE)


class TooDeep(Exception):
    """A page nested deeper than MAX_DEPTH; `depth` is how deep."""

    def __init__(self, depth: int) -> None:
        super().__init__(f"nested {depth} deep")
        self.depth = depth


def extract_text(html: str, extractor: str) -> str:
    """The main text of a page, empty if it has none. `extractor` is a name in EXTRACTORS.

    Raises TooDeep. Whatever the extractor raises on a hostile page is passed on.
    """
    depth = _depth(html)
    if depth > MAX_DEPTH:
        raise TooDeep(depth)
    return clean_text(EXTRACTORS[extractor](html))


def clean_text(text: str) -> str:
    """Newlines are `\\n`, at most one line is empty; no control characters, no lone surrogates."""
    text = _CONTROL.sub("", _NEWLINES.sub("\n", text))
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return _EMPTY_LINES.sub("\n\n", _LINE_ENDS.sub("\n", text)).strip()


def _depth(html: str) -> int:
    """The most elements open at once, by their tags."""
    if html.count("<") <= MAX_DEPTH:
        return 0
    steps = (-1 if closing else 1 for closing in _NESTING.findall(html))
    return max(accumulate(steps), default=0)


def _trafilatura(html: str) -> str:
    text = trafilatura.extract(html, fast=True, include_comments=False, deduplicate=False)
    return text or ""


def _resiliparse(html: str) -> str:
    text: str = extract_plain_text(html, main_content=True, alt_texts=False, comments=False)
    return text


EXTRACTORS: dict[str, Callable[[str], str]] = {
    "trafilatura": _trafilatura,
    "resiliparse": _resiliparse,
}
