"""The model card of an export: what the model is and what it was made from, by the manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eyas.recipe import format_count
from eyas.shape import ModelShape, parameters
from eyas.store import Manifest, Store, read_manifest

from .commit import Commit

__all__ = ["model_card"]


def model_card(store: Store, commit: Commit, shape: ModelShape) -> str:
    """Markdown with the front matter that the Hugging Face hub reads. What the store does not say
    is said to be unknown, never guessed."""
    sources, corpus = read_manifest(store, "sources"), read_manifest(store, "corpus")
    languages = _mapping(corpus.facts.get("languages")) if corpus else {}
    tokens = commit.facts.get("tokens")
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        *_front_languages(languages),
        "---",
        "",
        f"# {shape.name}",
        "",
        "A decoder-only language model in the shape of Falcon, trained with Eyas. It continues",
        "text; it was not tuned to follow instructions, and what it says may be wrong or harmful.",
        "",
        "| | |",
        "| --- | --- |",
        f"| parameters | {parameters(shape):,} |",
        f"| layers, width, heads, key-value heads | {shape.n_layers}, {shape.d_model}, "
        f"{shape.n_heads}, {shape.n_kv_heads} |",
        f"| vocabulary, context | {shape.vocab_size:,}, {shape.max_sequence:,} |",
        f"| tokens seen | {format_count(int(tokens)) if tokens is not None else 'unknown'} |",
        f"| checkpoint | attempt {commit.attempt}, step {commit.step}, save {commit.save_id} |",
        *_fact_rows(commit),
        "",
        "## Data",
        "",
        *_source_lines(sources),
        *_corpus_lines(corpus, languages),
        "",
        "## Files",
        "",
        "Weights are float32 safetensors. `sha256sum -c SHA256SUMS` verifies them.",
    ]
    return "\n".join(lines) + "\n"


def _front_languages(languages: Mapping[str, Any]) -> list[str]:
    codes = sorted(code for code in languages if len(code) in (2, 3))
    return ["language:", *(f"- {code}" for code in codes)] if codes else []


def _fact_rows(commit: Commit) -> list[str]:
    names = {
        "recipe": "recipe (SHA-256)",
        "tokenizer": "tokenizer (SHA-256)",
        "data_plan": "data plan",
        "digest": "digest of the data consumed",
        "code": "code",
        "imported_from": "imported from",
    }
    found = {text: commit.facts.get(key) for key, text in names.items()}
    return [f"| {text} | {_cell(value)} |" for text, value in found.items() if value]


def _source_lines(sources: Manifest | None) -> list[str]:
    rows = list(_licensed(sources.facts)) if sources else []
    if not rows:
        return ["Sources and their licences are not recorded in the store of this model.", ""]
    return [
        "| source | version | licence |",
        "| --- | --- | --- |",
        *(f"| {_cell(n)} | {_cell(v)} | {_cell(licence)} |" for n, v, licence in rows),
        "",
    ]


def _licensed(facts: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, version, licence) of whatever in the facts has a licence."""
    if isinstance(facts, Mapping) and ("licence" in facts or "license" in facts):
        licence = facts.get("licence", facts.get("license"))
        yield str(facts.get("name", name)), str(facts.get("version", "")), str(licence)
    elif isinstance(facts, Mapping):
        for key, value in facts.items():
            yield from _licensed(value, str(key))
    elif isinstance(facts, list | tuple):
        for value in facts:
            yield from _licensed(value, name)


def _corpus_lines(corpus: Manifest | None, languages: Mapping[str, Any]) -> list[str]:
    if corpus is None:
        return ["The corpus is not in the store of this model."]
    lines = []
    if "pages_in" in corpus.counters and "documents" in corpus.counters:
        lines.append(
            f"{int(corpus.counters['documents']):,} documents were kept of "
            f"{int(corpus.counters['pages_in']):,} pages, after quality filters and "
            "near-duplicate removal."
        )
    rows = {code: _mapping(value) for code, value in languages.items()}
    if rows:
        lines += ["", "| language | documents | bytes |", "| --- | --- | --- |"]
        by_size = sorted(rows.items(), key=lambda row: -int(row[1].get("bytes", 0)))
        lines += [
            f"| {_cell(code)} | {int(row.get('documents', 0)):,} | {int(row.get('bytes', 0)):,} |"
            for code, row in by_size
        ]
    return lines


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _cell(value: Any) -> str:
    """Text that cannot break out of a table's cell."""
    return " ".join(str(value).replace("|", "\\|").split())
