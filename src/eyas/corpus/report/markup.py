"""HTML and SVG that cannot be injected into: everything is built by `el`, which escapes text.

What comes from pages is hostile: control characters, half surrogates, tags, quotes. It becomes text
here, whatever it was.
"""

from __future__ import annotations

import html
import re

__all__ = ["Markup", "el", "text"]

_ILLEGAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"meta"})


class Markup(str):
    """A string that is HTML already; made only by `el`, `text` and constants of this folder."""

    __slots__ = ()


def text(value: object) -> Markup:
    """`value` as escaped text; markup passes, lists are joined, None is nothing."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup("")
    if isinstance(value, list | tuple):
        return Markup("".join(map(text, value)))
    return Markup(html.escape(_ILLEGAL.sub("\ufffd", str(value)), quote=True))


def el(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. An attribute's trailing _ is dropped and _ becomes -; None leaves it out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{text(children)}</{tag}>")
