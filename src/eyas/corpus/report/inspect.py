"""Documents to look at: kept ones and dropped ones, by stage, reason, language, source and URL.

In: a corpus manifest and a query; out: rows, one after the other. The small columns that the query
asks about are read first, and the texts only of objects that hold a match, so that one URL is found
in a large corpus without reading its texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eyas.corpus.documents import DOCUMENTS, REJECTS, read_columns, read_tables
from eyas.recipe import UsageError
from eyas.store import Manifest, ObjectRef, Store

__all__ = ["Query", "inspect_documents"]

_EXACT = ("stage", "reason", "language")
_PARTS = ("source", "url")


@dataclass(frozen=True)
class Query:
    """What to show; empty is any. `source` and `url` are parts of the name, in any case."""

    kept: bool = True
    dropped: bool = True
    stage: str = ""
    reason: str = ""
    language: str = ""
    source: str = ""
    url: str = ""


def inspect_documents(
    store: Store, manifest: Manifest, query: Query, limit: int
) -> list[dict[str, Any]]:
    """At most `limit` kept and `limit` dropped documents, in the order of the corpus, each with
    `kept` and its table's columns. Raises UsageError for a stage, reason or language that the
    corpus does not have, Corrupt for a damaged object."""
    _check(query, manifest.facts)
    rows: list[dict[str, Any]] = []
    if query.kept and not (query.stage or query.reason):
        found = _rows(store, manifest.under("corpus/documents/"), DOCUMENTS, query, limit)
        rows += ({"kept": True} | row for row in found)
    if query.dropped:
        found = _rows(store, manifest.under("corpus/rejects/"), REJECTS, query, limit)
        rows += ({"kept": False} | row for row in found)
    return rows


def _rows(
    store: Store, refs: Sequence[ObjectRef], schema: pa.Schema, query: Query, limit: int
) -> Iterator[dict[str, Any]]:
    asked = {name: wanted for name in (*_EXACT, *_PARTS) if (wanted := getattr(query, name))}
    for ref in refs:
        if limit <= 0:
            return
        places = list(_places(store, ref, asked))
        if not any(map(len, places)):
            continue
        for table, rows in zip(read_tables(store, ref, schema.names), places, strict=True):
            for row in table.take(rows.slice(0, limit)).to_pylist():
                limit -= 1
                yield row
            if limit <= 0:
                return


def _places(store: Store, ref: ObjectRef, asked: Mapping[str, str]) -> Iterator[pa.Array]:
    """The matching rows of every row group of an object."""
    for table in read_columns(store, ref, list(asked) or ["id"]):
        matches = pa.chunked_array([pa.array([True] * table.num_rows, pa.bool_())])
        for name, wanted in asked.items():
            found = (
                pc.equal(table[name], wanted)
                if name in _EXACT
                else pc.match_substring(table[name], wanted, ignore_case=True)
            )
            matches = pc.and_(matches, pc.fill_null(found, False))
        yield pc.indices_nonzero(matches)


def _check(query: Query, facts: Mapping[str, Any]) -> None:
    """A name that the corpus does not have would look like a clean corpus."""
    if (query.stage or query.reason) and not query.dropped:
        raise UsageError("stage and reason are of dropped documents; leave --kept out")
    rows = [r for r in facts["funnel"] if query.stage in ("", r["stage"])]
    if not rows:
        stages = ", ".join(r["stage"] for r in facts["funnel"])
        raise UsageError(f'there is no stage "{query.stage}"; this corpus has {stages}')
    reasons = sorted({reason for r in rows for reason in r["reasons"]})
    if query.reason and query.reason not in reasons:
        where = f" in {query.stage}" if query.stage else ""
        raise UsageError(
            f'nothing was dropped for "{query.reason}"{where}; '
            f"reasons are {', '.join(reasons) or 'none'}"
        )
    languages = sorted({*facts["languages"], *facts["rejects_by_language"]} - {""})
    if query.language and query.language not in languages:
        raise UsageError(
            f'no page was labelled "{query.language}"; this corpus has {", ".join(languages)}'
        )
