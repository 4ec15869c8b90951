"""A page to its main text: trafilatura in its fast mode, or resiliparse.

The same bytes give the same text, every time and in every process: never with `deduplicate=True`,
whose cache remembers earlier pages, and never with the slower fall-backs, whose outcome hangs on
thresholds between algorithms. Comments are left out. What comes back has plain newlines, no control
characters and at most one empty line in a row.

What a page would cost is bounded beforehand, by its tags (`bounds`). Whatever an extractor then
still does on a hostile page is that page's verdict: an exception, an end of memory, a panic of
Rust code, or more text than the page had.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import lxml.html
import trafilatura
import trafilatura.utils
from lxml import etree
from resiliparse.extract.html2text import extract_plain_text

from eyas.corpus.reading.decode import decode_text
from eyas.corpus.reading.read import Page

from .bounds import Excess, check_bounds

__all__ = ["EXTRACTORS", "Extracted", "clean_text", "extract_page", "extract_text"]

logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # what it cannot do is counted here
# lxml's own choice of a class for each element is a Python function; this one is C, and the classes
# are the same but for forms, which trafilatura does not ask.
trafilatura.utils.HTML_PARSER.set_element_class_lookup(
    etree.ElementDefaultClassLookup(
        element=lxml.html.HtmlElement,
        comment=lxml.html.HtmlComment,
        pi=lxml.html.HtmlProcessingInstruction,
        entity=lxml.html.HtmlEntity,
    )
)

_MOST_TYPES = 100
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_NEWLINES = re.compile(r"\r\n?|[\x85\u2028\u2029]")
_EMPTY_LINES = re.compile(r"\n\n\s*\n")
# Looked for at the start of a run only: else a run of n takes n * n steps.
_LINE_ENDS = re.compile(r"(?<![ \t\xa0])[ \t\xa0]++\n")


@dataclass(frozen=True)
class Extracted:
    """A text, or why there is none: `reason`, the number behind it if there is one, and more."""

    text: str = ""
    reason: str = ""
    value: float | None = None
    detail: str = ""


def extract_page(page: Page, extractor: str, max_nodes: int) -> Extracted:
    """The main text of a page as read; never raises for what the page holds.

    `extractor` is a name in EXTRACTORS. Reasons: no_text (`value` is the page's bytes),
    too_many_nodes, too_deep, too_many_attributes (see `check_bounds`) and extractor_failed.
    """
    try:
        if page.body:
            html, charset = decode_text(page.body, page.charset)
            data = page.body if charset == "utf-8" else html.encode("utf-8", "surrogatepass")
            check_bounds(data, max_nodes)
            text = extract_text(html, extractor)
        else:
            text = clean_text(page.text)
    except Excess as excess:
        return Extracted(reason=excess.reason, value=excess.value)
    except BaseException as error:  # a page may break an extractor in any way
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        detail = f"{type(error).__name__}: {error}"[:200]
        return Extracted(reason="extractor_failed", detail=clean_text(detail))
    if not text:
        return Extracted(reason="no_text", value=len(page.body) or len(page.text))
    return Extracted(text)


def extract_text(html: str, extractor: str) -> str:
    """The main text of a page that is within the bounds, empty if it has none.

    Raises ValueError for more text than page, and passes on whatever the extractor raises.
    """
    text = EXTRACTORS[extractor](html)
    if len(text) > len(html) + 1000:
        raise ValueError(f"{len(text)} characters of text from a page of {len(html)}")
    return clean_text(text)


def clean_text(text: str) -> str:
    """Newlines are `\\n`, at most one line is empty; no control characters, no lone surrogates."""
    if "\r" in text or not text.isascii():
        text = _NEWLINES.sub("\n", text)
        text = text.encode("utf-8", "replace").decode("utf-8")
    text = _CONTROL.sub("", text)
    if " \n" in text or "\t\n" in text or "\xa0\n" in text:
        text = _LINE_ENDS.sub("\n", text)
    return _EMPTY_LINES.sub("\n\n", text).strip()


def _trafilatura(html: str) -> str:
    if html.count('"@type"') > _MOST_TYPES:  # it looks from each of these for the next bracket
        most = max(part.count('"@type"') for part in html.split("]"))
        if most > _MOST_TYPES:
            raise Excess("too_many_nodes", most)
    text = trafilatura.extract(html, fast=True, include_comments=False, deduplicate=False)
    return text or ""


def _resiliparse(html: str) -> str:
    text: str = extract_plain_text(html, main_content=True, alt_texts=False, comments=False)
    return text


EXTRACTORS: dict[str, Callable[[str], str]] = {
    "trafilatura": _trafilatura,
    "resiliparse": _resiliparse,
}
