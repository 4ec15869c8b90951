"""HTML and SVG that cannot be injected into: everything is built by `el`, which escapes text.

What comes from outside (pages, URLs, names of recipes) is hostile: control characters, half
surrogates, tags, quotes. It becomes text here, whoever wrote it. The report of a corpus is built of
this, and so is the board.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

__all__ = ["Markup", "el", "join", "text"]

_ILLEGAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"link", "meta"})  # of HTML's elements without an end tag, those in use


class Markup(str):
    """A string that is HTML already; made only here and of constants of the pages' own code."""

    __slots__ = ()


def text(value: object) -> Markup:
    """`value` as escaped text; markup passes, lists are joined, None is nothing. Characters that
    HTML forbids become U+FFFD."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup("")
    if isinstance(value, list | tuple):
        return join(value)
    return Markup(html.escape(_ILLEGAL.sub("\ufffd", str(value)), quote=True))


def join(parts: object, between: str = "") -> Markup:
    """The parts, one after the other, lists opened; None and "" are left out."""
    return Markup(text(between).join(_flat(parts)))


def _flat(part: object) -> Iterator[Markup]:
    if isinstance(part, list | tuple):
        for inner in part:
            yield from _flat(inner)
    elif part is not None and part != "":
        yield text(part)


def el(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. An attribute's trailing _ is dropped and _ becomes -; None leaves it out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")
