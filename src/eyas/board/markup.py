"""HTML and SVG that cannot be injected into: text is escaped unless it is `Markup` already.

Everything on the page is built by `el`, so a page title, a language code or a recipe name from the
outside can never become a tag, whoever wrote it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

__all__ = ["Markup", "el", "join", "text"]

_VOID = frozenset({"meta", "link", "br", "hr", "img"})


class Markup(str):
    """A string that is HTML already. Made only here, and from constants of this room."""

    __slots__ = ()


def text(value: object) -> Markup:
    """`value` as escaped text; markup passes. Characters that HTML forbids become U+FFFD."""
    if isinstance(value, Markup):
        return value
    plain = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in str(value))
    plain = plain.encode("utf-8", "replace").decode()
    return Markup(html.escape(plain, quote=True))


def join(parts: object, between: str = "") -> Markup:
    """The parts, one after the other, lists opened; None and "" are left out."""
    return Markup(str(text(between)).join(_flat(parts)))


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
