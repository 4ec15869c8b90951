"""Pages that are made to take an extractor long, by shape; each is about as long as asked."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SHAPES", "many", "numbered"]

TEXT = "A sentence that stands here to be found again by whoever looks. "


def many(unit: str, size: int) -> str:
    """`unit` again and again, `size` characters of it."""
    return unit * (size // len(unit) + 1)


def numbered(unit: str, size: int) -> str:
    """`unit` again and again, with another number for each `#`."""
    return "".join(unit.replace("#", str(n)) for n in range(size // len(unit) + 1))


def _formats(count: int) -> str:
    return "".join(f"<b a={n}>" for n in range(count))


SHAPES: dict[str, Callable[[int], str]] = {
    # What the parser has to keep open.
    "open blocks": lambda n: many("<div>x ", n),
    "open sections": lambda n: many("<section><article><main>x", n),
    "open blocks with an end tag of another": lambda n: many("<div></span>", n),
    "open blocks with their ends in attributes": lambda n: many('<div a="</div>">x', n),
    "open blocks with their ends behind mixed quotes": lambda n: many(
        """<div x='"' y="></div>">x""", n
    ),
    "open blocks with their ends in scripts": lambda n: many("<div><script></div></script>", n),
    "open blocks with their ends in comments": lambda n: many("<div><!--</div>-->", n),
    "open blocks with their ends as attributes": lambda n: many("<div </div>", n),
    "open blocks with their ends in tables": lambda n: many(
        "<div>" * 500 + "<table><td>" + "</div>" * 500 + "</table>", n
    ),
    "open blocks with a zero in their name": lambda n: many("<div\0>", n),
    "open tables": lambda n: many("<table><tr><td>", n),
    "open lists": lambda n: many("<ul><li>x", n),
    "open unknown elements": lambda n: numbered("<x#>y", n),
    "open option groups": lambda n: many("<optgroup>", n),
    "open paths": lambda n: "<svg>" + many("<path>", n),
    "open formats, each another": lambda n: numbered("<b a=#>x ", n),
    "formats opened again in paragraphs": lambda n: "<p>" + _formats(300) + many("<p>x", n),
    "formats and paragraphs": lambda n: numbered("<font c=#><p>x", n),
    "formats that overlap": lambda n: many("<a><b><i><div></a></b></i>", n),
    "formats that a block tears": lambda n: numbered("<b x=#><i y=#><div>z</b>", n),
    "text and formats before a table": lambda n: "<table>" + many("x<b>", n),
    "many paragraphs deep inside": lambda n: "<section>" * 400 + many("<p>x</p>", n),
    # What there may be many of.
    "open paragraphs": lambda n: many("<p>x y ", n),
    "open cells": lambda n: "<table><tr>" + many("<td>x", n),
    "open cells without a table": lambda n: many("<td>x", n),
    "open rows": lambda n: "<table>" + many("<tr><td>x", n),
    "open items": lambda n: "<ul>" + many("<li>x", n),
    "open terms": lambda n: "<dl>" + many("<dt>x<dd>y", n),
    "breaks": lambda n: many("x<br>", n),
    "blocks": lambda n: many("<div>x</div>", n),
    "quotes": lambda n: many("<q>x</q>", n),
    "tables": lambda n: many(f"<table><tr><td>{TEXT}</table>", n),
    "unknown elements": lambda n: numbered("<x#>y</x#>", n),
    "options": lambda n: "<select>" + many("<option>x</option>", n) + "</select>",
    "columns of one cell": lambda n: many("<table><tr><td colspan=100000>x</table>", n),
    "wide rows": lambda n: "<table><tr><td COLSPAN=' 999'>x" + many("<tr><td>x", n),
    "attributes": lambda n: "<p " + numbered("a#=b ", n) + ">" + TEXT * 9,
    "attributes behind a quoted end": lambda n: '<p x=">" ' + numbered("a# ", n) + ">" + TEXT * 9,
    "attributes of the page": lambda n: numbered("<body a#=b>", n),
    "comments": lambda n: many("<!--x-->", n),
    "comment starts": lambda n: many("<!--", n),
    "signs": lambda n: many("<", n),
    "unended tags": lambda n: many("<a ", n),
    "unended quotes": lambda n: many('<a x="', n),
    "entities": lambda n: many("&amp;", n),
    "types in JSON": lambda n: (
        '<script type="application/ld+json">' + many('"@type":[', n) + "</script>" + TEXT * 9
    ),
    # What is one thing and long.
    "a word": lambda n: "<p>" + "x" * n,
    "spaces": lambda n: "<p>x" + " \t\xa0" * (n // 3) + "y",
    "lines": lambda n: "<pre>x" + " \n" * (n // 2) + "y",
    "accents": lambda n: "<p>x" + "\u0301\u0327\u0323" * (n // 3),
    "a title": lambda n: "<title>" + "x" * n,
    "a script": lambda n: f"<p>{TEXT * 9}<script>" + "x<" * (n // 2),
}
