"""The model card of an export: what the model is and what it was made from, by the manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eyas.model import family_of
from eyas.recipe import EyasError, format_count
from eyas.shape import ModelShape, flops_per_token, parameters
from eyas.store import Manifest, Store, read_manifest, unseal
from eyas.tokens import Tokenizer, read_data_plan

from .commit import Commit
from .licence import Licence

__all__ = ["Release", "model_card"]

_FAMILIES = {"falcon": "Falcon", "llama": "Llama", "gpt2": "GPT-2"}


@dataclass(frozen=True)
class Release:
    """What the export knows of itself: see `ExportReport`. `compared` is the largest difference of
    logits and on what."""

    dtype: str
    rounded: int
    logits_moved: float
    licence: Licence
    tokenizer: Tokenizer | None
    compared: str


def model_card(store: Store, commit: Commit, shape: ModelShape, release: Release) -> str:
    """Markdown with the front matter that the Hugging Face hub reads. What the store does not say
    is said to be unknown, never guessed."""
    sources, corpus = read_manifest(store, "sources"), read_manifest(store, "corpus")
    languages = _mapping(corpus.facts.get("languages")) if corpus else {}
    family = _FAMILIES[family_of(shape)]
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        *_front_licence(release.licence),
        *_front_languages(languages),
        "---",
        "",
        f"# {shape.name}",
        "",
        f"A decoder-only language model in the shape of {family}, {_made(commit)} with Eyas. It",
        "continues text; it was not tuned to follow instructions, and what it says may be wrong or",
        "harmful.",
        "",
        "| | |",
        "| --- | --- |",
        f"| parameters | {parameters(shape):,} |",
        f"| layers, width, heads, key-value heads | {shape.n_layers}, {shape.d_model}, "
        f"{shape.n_heads}, {shape.n_kv_heads} |",
        f"| vocabulary, context | {shape.vocab_size:,}, {shape.max_sequence:,} |",
        f"| checkpoint | attempt {commit.attempt}, step {commit.step}, save {commit.save_id} |",
        *_fact_rows(commit),
        "",
        "## Licence",
        "",
        *_licence_lines(release.licence),
        "",
        "## Data",
        "",
        *_source_lines(sources),
        *_corpus_lines(corpus, languages),
        "",
        "## Tokens",
        "",
        *_token_lines(store, commit, release.tokenizer),
        "",
        "## Compute",
        "",
        *_compute_lines(store, commit, shape),
        "",
        "## Evaluation",
        "",
        *_evaluation_lines(store, commit),
        "",
        "## Files",
        "",
        f"Weights are {release.dtype} safetensors. {_rounding(release)}transformers gives on them",
        f"the logits of Eyas: the largest difference is {release.compared}.",
        "`sha256sum -c SHA256SUMS` verifies the files; `deploy_sagemaker.py` is an example that",
        "deploys them as a hosted endpoint.",
    ]
    return "\n".join(lines) + "\n"


def _made(commit: Commit) -> str:
    return "imported and converted" if commit.facts.get("imported_from") else "trained"


def _front_licence(licence: Licence) -> list[str]:
    if licence.id in ("Apache-2.0", "MIT"):
        return [f"license: {licence.id.lower()}"]
    if not licence.id:
        return []
    return ["license: other", f"license_name: {licence.id.lower()}", "license_link: LICENSE"]


def _licence_lines(licence: Licence) -> list[str]:
    if not licence.id:
        return ["No licence is granted: none is stated for this model."]
    names = ", ".join(licence.files)
    return [f"{_cell(licence.id)} ({_cell(licence.source)}), see {_cell(names)}."]


def _rounding(release: Release) -> str:
    if not release.rounded:
        return "Nothing was rounded. "
    return (
        f"{release.rounded:,} weights were rounded to it, which moved logits by at most "
        f"{release.logits_moved:.3g}. "
    )


def _front_languages(languages: Mapping[str, Any]) -> list[str]:
    codes = sorted(code for code in languages if len(code) in (2, 3))
    return ["language:", *(f"- {code}" for code in codes)] if codes else []


def _fact_rows(commit: Commit) -> list[str]:
    names = {
        "recipe": "recipe (SHA-256)",
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


def _token_lines(store: Store, commit: Commit, tokenizer: Tokenizer | None) -> list[str]:
    rows = []
    tokens = read_manifest(store, "tokens")
    if tokens is not None and tokens.facts.get("tokenizer") == commit.facts.get("tokenizer"):
        for kind in ("documents", "tokens"):
            by_split = _mapping(tokens.facts.get(kind))
            rows += [f"| {kind}, {s} | {int(n):,} |" for s, n in by_split.items()]
        splits = [_mapping(x) for x in _mapping(tokens.facts.get("sources")).values()]
        for split in dict.fromkeys(name for x in splits for name in x):
            size = sum(int(_mapping(x.get(split)).get("bytes", 0)) for x in splits)
            rows.append(f"| bytes of text, {split} | {size:,} |")
    if tokenizer is not None:
        rows.append(f"| tokenizer | byte-level BPE, {tokenizer.vocab_size:,} items |")
        rows.append(f"| tokenizer (SHA-256) | {tokenizer.digest} |")
    lines = ["| | |", "| --- | --- |", *rows] if rows else []
    if tokenizer is None:
        why = commit.facts.get("tokenizer_not_taken")
        lines.append("This folder has no tokenizer" + (f": {_cell(why)}." if why else "."))
    return lines


def _compute_lines(store: Store, commit: Commit, shape: ModelShape) -> list[str]:
    facts = commit.facts
    if facts.get("tokens") is None:
        return ["Tokens seen and time spent are not recorded in the store of this model."]
    tokens = int(facts["tokens"])
    rows = [f"| tokens seen | {format_count(tokens)} |"]
    sequence = _sequence(store, commit)
    if sequence is not None:
        flops = tokens * flops_per_token(shape, sequence)
        rows.append(
            f"| training FLOPs, forward and backward, at {sequence} tokens a sample | {flops:.3g} |"
        )
    if facts.get("seconds"):
        seconds, devices = float(facts["seconds"]), int(facts.get("world", 1))
        rows.append(f"| wall time | {seconds:,.0f} s |")
        together = f"{devices}, {seconds * devices:,.0f} s"
        rows.append(f"| processes, and their time together | {together} |")
    if hosts := _hosts(store):
        rows.append(f"| hosts that started it | {hosts} |")
    if isinstance(facts.get("layout"), Mapping):
        layout = ", ".join(f"{name} {value}" for name, value in facts["layout"].items())
        rows.append(f"| layout | {_cell(layout)} |")
    return ["| | |", "| --- | --- |", *rows]


def _sequence(store: Store, commit: Commit) -> int | None:
    """Tokens a sample at this step, if the store has the data plan."""
    version = commit.facts.get("data_plan")
    if not isinstance(version, int):
        return None
    try:
        return int(read_data_plan(store, version).segment(max(0, commit.step - 1)).sequence)
    except EyasError:
        return None


def _hosts(store: Store) -> int:
    found = set()
    for info in store.list("checkpoints/attempts/"):
        found.add(_mapping(unseal(store, info.key, store.get(info.key))).get("host"))
    return len(found - {None})


def _evaluation_lines(store: Store, commit: Commit) -> list[str]:
    rows = []
    losses = {"last_loss": "loss of the last step", "validation_loss": "held-out loss"}
    for key, text in losses.items():
        if isinstance(commit.facts.get(key), int | float):
            rows.append(f"| {text}, nats a token | {commit.facts[key]:.4f} |")
    lines = ["| | |", "| --- | --- |", *rows] if rows else []
    report = _report(store, commit)
    if report is not None:
        scores = [*report["languages"], report["total"]]
        lines += [
            *([""] if lines else []),
            f"On held-out text, in windows of {report['context']} tokens (lower is better; xz on",
            "the same bytes beside it):",
            "",
            "| language | documents | bytes | bits a byte | xz |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {_cell(s['language'])} | {s['documents']:,} | {s['bytes']:,} | "
            f"{s['bits_per_byte']:.3f} | {s['xz_bits_per_byte']:.3f} |"
            for s in scores
        ]
    return lines or ["No evaluation of this checkpoint is in its store."]


def _report(store: Store, commit: Commit) -> Mapping[str, Any] | None:
    """The evaluation of this very checkpoint."""
    key = f"eval/{commit.step:012d}-{commit.attempt}.json"
    if store.stat(key) is None:
        return None
    return _mapping(unseal(store, key, store.get(key))) or None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _cell(value: Any) -> str:
    """Text that cannot break out of a table's cell."""
    return " ".join(str(value).replace("|", "\\|").split())
