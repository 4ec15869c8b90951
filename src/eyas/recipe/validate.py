"""Raw TOML values to a typed section, with errors that name the key, what was given, what is legal.

Pure: in a dict, out a frozen dataclass or a list of problems (all of them, not the first).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, TypeVar

from .errors import UsageError
from .values import parse_count, parse_duration

__all__ = [
    "build_section",
    "default_of",
    "describe",
    "describe_section",
    "nested_of",
    "read_table",
    "suggest",
    "table_of",
    "toml_name",
]

T = TypeVar("T")
LARGEST = 2**63 - 1


def suggest(word: str, known: typing.Iterable[str]) -> str:
    """`; did you mean X?` or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; legal are {', '.join(names)}" if names else "; no key is legal here yet"


def build_section(cls: type[T], raw: object, where: str, problems: list[str]) -> T:
    """The section `where` as `cls`; what is wrong is appended to `problems`."""
    if not isinstance(raw, dict):
        legal = f"section; write [{where}] and keys below it"
        if where.endswith("]"):
            legal = "table; write [{ … }, { … }]"
        problems.append(f"{where}: {_show(raw)} is not a {legal}")
        return cls()
    fields = {toml_name(f): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    given: dict[str, Any] = {}
    dotted = f"{where}." if where else ""
    for name, value in raw.items():
        if name not in fields:
            problems.append(f"{dotted}{name}: no such key{suggest(name, fields)}")
            continue
        field = fields[name]
        if (nested := nested_of(hints[field.name])) is not None:
            given[field.name] = build_section(nested, value, f"{dotted}{name}", problems)
            continue
        try:
            if (table := table_of(hints[field.name])) is not None:
                given[field.name] = _tables(value, table, f"{dotted}{name}", problems)
            else:
                given[field.name] = _convert(value, hints[field.name], field.metadata)
        except ValueError as error:
            problems.append(f"{dotted}{name}: {_show(value)} is not legal; {error}")
    return cls(**given)


def read_table(cls: type[T], raw: object, origin: str) -> T:
    """A whole file as `cls`, such as a preset. Raises UsageError with every problem in `origin`."""
    problems: list[str] = []
    value = build_section(cls, raw, "", problems)
    if problems:
        raise UsageError(f"{origin}: " + "; ".join(problems))
    return value


def toml_name(field: dataclasses.Field[Any]) -> str:
    """The key as a recipe has it."""
    return field.name.removesuffix("_")


def nested_of(hint: Any) -> Any:
    """The dataclass of a key that is a table of its own, or None."""
    return hint if dataclasses.is_dataclass(hint) else None


def table_of(hint: Any) -> Any:
    """The dataclass of which a key is a list, or None."""
    element = (*typing.get_args(hint), None)[0]
    return element if dataclasses.is_dataclass(element) else None


def _tables(value: Any, table: Any, where: str, problems: list[str]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("write a list of tables, such as [{ … }, { … }]")
    return tuple(
        build_section(table, item, f"{where}[{number}]", problems)
        for number, item in enumerate(value)
    )


def _convert(value: Any, hint: Any, meta: typing.Mapping[str, Any]) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    if hint is bool:
        if not isinstance(value, bool):
            raise ValueError("write true or false")
        return value
    if hint is str:
        return _string(value, meta)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError('write a list, such as ["a", "b"]')
        return tuple(_string(item, {}) for item in value)
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ValueError("write a table of numbers, such as { a = 0.7, b = 0.3 }")
        return {name: _number(item, float, {"low": 0}) for name, item in value.items()}
    return _number(value, hint, meta)


def _string(value: Any, meta: typing.Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise ValueError("write a string in quotes")
    choices = meta.get("choices")
    if choices and value not in choices:
        raise ValueError(f"legal are {', '.join(choices)}")
    return value


def _number(value: Any, hint: type, meta: typing.Mapping[str, Any]) -> int | float:
    if meta.get("kind") == "duration":
        number: int | float = parse_duration(value)
    elif meta.get("kind") == "count":
        number = parse_count(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("write a whole number" if hint is int else "write a number")
    elif hint is int:
        if isinstance(value, float):
            raise ValueError("write a whole number")
        number = value
    else:
        number = float(value)
    if isinstance(number, int) and abs(number) > LARGEST:
        raise ValueError(f"at most {LARGEST}")
    if not math.isfinite(number):
        raise ValueError("write a finite number")
    low, high, above = meta.get("low"), meta.get("high"), meta.get("above")
    if low is not None and number < low:
        raise ValueError(f"at least {low}")
    if above is not None and number <= above:
        raise ValueError(f"more than {above}")
    if high is not None and number > high:
        raise ValueError(f"at most {high}")
    return number


def _show(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else text[:57] + "..."


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a key, lists as tuples."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def describe(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """The JSON schema of one key."""
    meta = field.metadata
    if isinstance(hint, types.UnionType):
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    if (nested := nested_of(hint)) is not None:
        return describe_section(nested)
    out: dict[str, Any] = {"description": meta["doc"]}
    if (table := table_of(hint)) is not None:
        out |= {"type": "array", "items": describe_section(table)}
    elif typing.get_origin(hint) is tuple:
        out |= {"type": "array", "items": {"type": "string"}}
    elif typing.get_origin(hint) is dict:
        out |= {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
    elif hint is bool:
        out["type"] = "boolean"
    elif hint is str:
        out["type"] = "string"
        if meta["choices"]:
            out["enum"] = list(meta["choices"])
    elif meta["kind"]:
        out["type"] = ["number", "string"]
    else:
        out["type"] = "integer" if hint is int else "number"
    for name, bound in (("minimum", "low"), ("maximum", "high"), ("exclusiveMinimum", "above")):
        if meta[bound] is not None:
            out[name] = meta[bound]
    default = default_of(field)
    if default is not None:
        out["default"] = list(default) if isinstance(default, tuple) else default
    return out


def describe_section(section: Any) -> dict[str, Any]:
    """The JSON schema of a section, or of a table in a list."""
    hints = typing.get_type_hints(section)
    return {
        "type": "object",
        "description": (section.__doc__ or "").strip(),
        "properties": {
            toml_name(f): describe(f, hints[f.name]) for f in dataclasses.fields(section)
        },
        "additionalProperties": False,
    }
