"""The recipe of `eyas init`: every key with its default and meaning, from the sections."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

import tomli_w

from .recipe import Recipe
from .validate import default_of, nested_of, table_of, toml_name

__all__ = ["commented_recipe"]

_SET = {("corpus", "sources"): ["./crawl/*.warc.gz"], ("train", "tokens"): "10M"}


def commented_recipe(name: str) -> str:
    """TOML text. Keys at their default are commented out, so the file says only what was chosen."""
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "my-run"
    lines = [
        "# An Eyas recipe: everything that a run depends on. A key behind # is at its default.",
        f'name = "{clean}"',
        f'store = "./runs/{clean}"    # or s3://bucket/prefix',
    ]
    for section, cls in typing.get_type_hints(Recipe).items():
        if dataclasses.is_dataclass(cls):
            lines += _section(section, cls)
    return "\n".join(lines) + "\n"


def _section(section: str, cls: Any) -> list[str]:
    lines = ["", f"[{section}]    # {(cls.__doc__ or '').strip()}"]
    hints = typing.get_type_hints(cls)
    nested: list[str] = []
    for field in dataclasses.fields(cls):
        if (table := nested_of(hints[field.name])) is not None:
            nested += _section(f"{section}.{toml_name(field)}", table)
            continue
        chosen = _SET.get((section, field.name))
        default = default_of(field)
        lines.append(f"# {field.metadata['doc']}")
        lines += _table_keys(hints[field.name])
        if chosen is not None:
            lines.append(_assign(toml_name(field), chosen))
        elif default is None:
            lines.append(f"#{toml_name(field)} =")
        else:
            lines.append(
                f"#{_assign(toml_name(field), _friendly(default, field.metadata['kind']))}"
            )
    return lines + nested


def _table_keys(hint: Any) -> list[str]:
    """What each table of a list may hold; nothing for other keys."""
    table = table_of(hint)
    if table is None:
        return []
    return [f"#   {toml_name(f):<13} {f.metadata['doc']}" for f in dataclasses.fields(table)]


def _friendly(value: Any, kind: str) -> Any:
    """A count as people write it: "64Mi", "1M"."""
    if isinstance(value, tuple):
        return list(value)
    if kind == "count":
        for scale, unit in ((2**20, "Mi"), (10**6, "M")):
            if value and value % scale == 0:
                return f"{value // scale}{unit}"
    return value


def _assign(name: str, value: Any) -> str:
    return " ".join(tomli_w.dumps({name: value}).split()).replace(", ]", " ]")
