"""The licence of an export: what was stated, never a guess.

In this order: what the caller says (a file, or an SPDX id), the recipe's `model.licence`, the
licence files of the folder that the checkpoint was imported from. Nothing stated means that nothing
is granted, and the release says so. Of Apache-2.0 and MIT the full text is written, of other ids
the id and where its text stands (https://spdx.org/licenses).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from eyas.recipe import UsageError
from eyas.store import NotFound, Store

from .commit import Commit

__all__ = ["Licence", "find_licence"]

_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
# Ids have dots in version numbers only; what else has one is a file that is not there.
_FILE_NAME = re.compile(r"\.[A-Za-z]")
_FULL = {"apache-2.0": "Apache-2.0", "mit": "MIT"}
_NONE = """No licence is granted for this model.

Neither the recipe nor the checkpoint that it was made from states one, so all rights remain with
its makers. State one with model.licence in the recipe, or with `eyas export --licence`.
"""


@dataclass(frozen=True)
class Licence:
    """`id` is SPDX, "other" for a text of its own, "" where none is granted; `files` by name, what
    goes into the release; `source` says who stated it."""

    id: str
    files: Mapping[str, str]
    source: str


def find_licence(store: Store, commit: Commit, asked: str | None = None) -> Licence:
    """The licence of a checkpoint. Raises UsageError for what is neither a file nor an SPDX id."""
    year, holder = commit.created[:4], f"the makers of {_holder(store, commit)}"
    if asked is not None:
        text = _file(asked)
        if text is not None:
            return Licence(_recognised(text), {"LICENSE": text}, "stated at the export")
        return _of_id(asked, "stated at the export", year, holder)
    stated = _recipe(store).get("model", {}).get("licence")
    if stated:
        return _of_id(str(stated), "model.licence of the recipe", year, holder)
    files = commit.facts.get("licences")
    if files and list(files.values()) != [_NONE]:  # an export of ours without one
        source = f"came with {commit.facts['imported_from']}"
        return Licence(_recognised(next(iter(files.values()))), dict(files), source)
    return Licence("", {"LICENSE": _NONE}, "not stated")


def _file(asked: str) -> str | None:
    """The text of the file that is asked for, None if there is none of that name."""
    try:
        return Path(asked).read_text(encoding="utf-8") if Path(asked).is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"licence {asked} cannot be read as UTF-8 text: {error}") from error


def _of_id(text: str, source: str, year: str, holder: str) -> Licence:
    if not _SPDX.fullmatch(text) or _FILE_NAME.search(text):
        raise UsageError(
            f'licence "{text}" is neither a file nor an SPDX id such as Apache-2.0, MIT or '
            "CC-BY-4.0 (https://spdx.org/licenses)"
        )
    name = _FULL.get(text.lower())
    if name is None:
        where = f"https://spdx.org/licenses/{text}.html"
        file = f"SPDX-License-Identifier: {text}\n\nIts text stands at {where}\n"
        return Licence(text, {"LICENSE": file}, source)
    full = resources.files("eyas") / "presets" / "licences" / f"{name}.txt"
    file = full.read_text(encoding="utf-8")
    return Licence(
        name, {"LICENSE": file.replace("{year}", year).replace("{holder}", holder)}, source
    )


def _recognised(text: str) -> str:
    """The id of a text that says what it is in its first lines, else "other"."""
    head = " ".join(text[:400].split())
    if match := re.search(r"SPDX-License-Identifier: ([A-Za-z0-9.+-]+)", head):
        return match[1]
    if "Apache License Version 2.0" in head:
        return "Apache-2.0"
    return "MIT" if head.startswith("MIT License") else "other"


def _holder(store: Store, commit: Commit) -> str:
    shape = commit.facts.get("shape") or {}
    return str(_recipe(store).get("name") or shape.get("name") or "this model")


def _recipe(store: Store) -> dict:
    """The recipe of the store as resolved, {} if it holds none."""
    try:
        return tomllib.loads(store.get("recipe.toml").decode())
    except NotFound:
        return {}
