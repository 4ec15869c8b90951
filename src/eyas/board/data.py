"""The sections of the data: the corpus funnel, its languages, the tokenizer and the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eyas.corpus import Markup, el, join
from eyas.recipe import format_bytes
from eyas.store import Manifest

from .collect import Run
from .parts import bar, missing, name, number, percent, section, table

__all__ = ["funnel", "languages", "tokenizer"]

_REASONS = 8
_LANGUAGES = 24


def funnel(run: Run) -> Markup:
    """Pages in and out of every stage, with reasons."""
    title = "Corpus"
    if run.corpus is None:
        return section(title, None, missing("No corpus is committed in this store."))
    stages = [s for s in run.corpus.facts.get("funnel", ()) if isinstance(s, Mapping)]
    if not stages:
        counted = _figures(run.corpus.counters)
        return section(title, None, missing("The corpus has no funnel."), counted)
    first, last = _count(stages[0].get("in")), _count(stages[-1].get("out"))
    rows = [_stage(s, first) for s in stages]
    heads = [("stage", ""), ("in", "n"), ("out", "n"), ("kept", "n"), ("of all pages", "w")]
    lead = f"{first:,} pages in, {last:,} documents out ({percent(last, first)})."
    notes = _notes(run.corpus.counters)
    return section(title, lead, table(heads, rows), notes)


def languages(run: Run) -> Markup | None:
    """By language: documents left after every stage that knows it, and the text kept."""
    found = _mapping(run.corpus.facts.get("languages")) if run.corpus else {}
    if not found:
        return None
    after = _after_stages(run)
    ranked = sorted(found.items(), key=lambda kv: (-_count(kv[1].get("bytes")), kv[0]))
    most = _count(ranked[0][1].get("bytes")) or 1
    rows = [_language(n, f, after, most) for n, f in ranked[:_LANGUAGES]]
    if rest := ranked[_LANGUAGES:]:
        together = {k: sum(_count(f.get(k)) for _, f in rest) for k in ("documents", "bytes")}
        sums = {s: {"": sum(_count(c.get(n)) for n, _ in rest)} for s, c in after.items()}
        rows.append([f"{len(rest)} more", *_language("", together, sums, most)[1:]])
    heads = [("language", ""), *((f"after {_words(s)}", "n") for s in after)]
    heads += [("documents", "n"), ("text", "n"), ("", "w")]
    size = sum(_count(f.get("bytes")) for f in found.values())
    count = f"{len(found):,} languages" if len(found) > 1 else "One language"
    return section("Languages", f"{count}, {format_bytes(size)} of text.", table(heads, rows))


def tokenizer(run: Run) -> Markup:
    """The tokenizer's figures and the tokens written."""
    title = "Tokens"
    if run.tokenizer is None and run.tokens is None:
        return section(title, None, missing("No tokenizer and no tokens in this store yet."))
    columns = []
    for heading, manifest in (("Tokenizer", run.tokenizer), ("Token shards", run.tokens)):
        found = _figures(_facts(manifest)) if manifest else missing("Not there yet.")
        columns.append(el("div", el("h3", heading), found))
    facts = run.tokenizer.facts if run.tokenizer else {}
    lead = None
    if (size := facts.get("bytes_per_token")) is not None:
        vocabulary = number(facts.get("vocab_size"))
        lead = f"{vocabulary} items; a token holds {number(size, 2)} bytes of text."
    return section(title, lead, el("div", columns, class_="columns"), _by_language(run))


def _facts(manifest: Manifest) -> dict[str, Any]:
    """Counters and plain facts; those by split as `tokens, train`."""
    found: dict[str, Any] = {**manifest.counters, **manifest.facts}
    for key in ("tokens", "documents"):
        split = found.pop(key, None)
        if isinstance(split, Mapping):
            found = {k: v for k, v in found.items() if not k.startswith(f"{key}_")}
            found |= {f"{key}, {n}": v for n, v in sorted(split.items()) if _is_number(v)}
    return {k: v for k, v in found.items() if k not in ("pattern", "library", "end_of_text")}


def _by_language(run: Run) -> Markup | None:
    """Bytes a token and tokens a word by language, beside how much of it was trained on."""
    facts = run.tokenizer.facts if run.tokenizer else {}
    found = {n: f for n, f in _mapping(facts.get("languages")).items() if isinstance(f, Mapping)}
    trained = _mapping(facts.get("trained_on"))
    written = _mapping(_mapping(run.tokens.facts if run.tokens else {}).get("languages"))
    tokens = _mapping(written.get("train"))
    if not found:
        return None
    ranked = sorted(found, key=lambda n: (-_count(trained.get(n)), n))[:_LANGUAGES]
    rows = [
        [
            name(n),
            number(found[n].get("bytes_per_token"), 2),
            number(found[n].get("fertility"), 2),
            format_bytes(_count(trained.get(n))),
            number(tokens.get(n)),
        ]
        for n in ranked
    ]
    heads = [("language", ""), ("bytes a token", "n"), ("tokens a word", "n")]
    return join(
        [
            el("h3", "By language"),
            table([*heads, ("tokenizer trained on", "n"), ("tokens to train on", "n")], rows),
        ]
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _stage(stage: Mapping[str, Any], first: int) -> list[object]:
    came, left = _count(stage.get("in")), _count(stage.get("out"))
    reasons = stage.get("reasons")
    found = reasons.items() if isinstance(reasons, Mapping) else ()
    ranked = sorted(((_count(n), str(r)) for r, n in found if _count(n)), reverse=True)
    said = [el("span", f"{n:,} ", name(_words(r))) for n, r in ranked[:_REASONS]]
    if len(ranked) > _REASONS:
        rest = sum(n for n, _ in ranked[_REASONS:])
        said.append(el("span", f"{rest:,} for {len(ranked) - _REASONS} other reasons"))
    title = join(
        [name(_words(str(stage.get("stage", "")))), el("p", join(said, " "), class_="why")]
    )
    whole = first or 1
    drawn = bar((left / whole, ""), (max(0, came - left) / whole, "lost"))
    return [title, number(came), number(left), percent(left, came), drawn]


def _after_stages(run: Run) -> dict[str, Mapping[str, Any]]:
    """What leaves each stage by language; not of the last, which are the documents."""
    stages = run.corpus.facts.get("funnel", ()) if run.corpus else ()
    known = {
        str(s.get("stage")): _mapping(s.get("languages"))
        for s in stages
        if isinstance(s, Mapping) and _mapping(s.get("languages"))
    }
    return dict(list(known.items())[:-1])


def _language(
    language: str,
    facts: Mapping[str, Any],
    after: Mapping[str, Mapping[str, Any]],
    most: int,
) -> list[object]:
    size = _count(facts.get("bytes"))
    return [
        name(language),
        *(number(_count(counts.get(language))) for counts in after.values()),
        number(_count(facts.get("documents"))),
        format_bytes(size),
        bar((size / most, "")),
    ]


def _notes(counters: Mapping[str, float]) -> Markup | None:
    """What the funnel's rows do not say: the split, and what could not be read."""
    wanted = {
        "documents_train": "documents to train on",
        "documents_validation": "held out",
        "broken_records": "broken records",
    }
    said = [el("span", f"{number(counters[k])} {v}") for k, v in wanted.items() if k in counters]
    return el("p", join(said, " "), class_="why") if said else None


def _figures(facts: Mapping[str, Any]) -> Markup:
    """Plain values as a list; long digests are cut to twelve characters."""
    pairs = []
    for key, value in facts.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        if isinstance(value, str):
            shown: object = el("code", value[:12]) if _is_digest(value) else name(value[:200])
        elif isinstance(value, int) or value == int(value):
            shown = format_bytes(value) if key.endswith("bytes") else number(value)
        else:
            shown = number(value, 3)
        pairs += [el("dt", name(_words(str(key)))), el("dd", shown)]
    return el("dl", pairs) if pairs else missing("No figures.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_digest(value: str) -> bool:
    return len(value) >= 32 and all(c in "0123456789abcdef" for c in value)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and _is_number(value) else 0
