"""The evaluation: bits per byte by language on the held-out split, beside xz on the same bytes.

A report is a value; it holds no time and no host name, so that the same model on the same corpus
gives the same bytes. It is kept as `eval/<step>-<attempt>.json`, sealed with its checksum, and says
which corpus, tokenizer and context it was made with: two reports compare when those agree (another
tokenizer may be compared too, that is what bits per byte are for).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eyas.recipe import UsageError
from eyas.store import Store, identity, read_manifest, seal, unseal
from eyas.tokens import read_data_plan
from eyas.work import progress

from .bits import DocumentScore, Judged, JudgeError, score_documents, xz_bytes
from .heldout import SMALL, HeldOut, group_small, held_out

__all__ = ["EvalReport", "LanguageScore", "evaluate", "read_report", "report_key", "write_report"]

TOTAL = "total"


@dataclass(frozen=True)
class LanguageScore:
    """One line of the report. `bits` is summed over `tokens` tokens; `standard_error` is that of
    `bits_per_byte` when documents are drawn anew (0 with one document)."""

    language: str
    documents: int
    bytes: int
    tokens: int
    bits: float
    bits_per_byte: float
    standard_error: float
    xz_bytes: int
    xz_bits_per_byte: float


@dataclass(frozen=True)
class EvalReport:
    """Scores by language and together, and what they were made from. `total`'s xz is one archive
    of all texts in the order of `languages`."""

    languages: tuple[LanguageScore, ...]
    total: LanguageScore
    max_bytes: int
    context: int
    corpus: str
    tokenizer: str

    @property
    def identity(self) -> str:
        """SHA-256 of everything in the report."""
        return identity("eval", dataclasses.asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with `identity`."""
        return {**dataclasses.asdict(self), "identity": self.identity}

    def render(self) -> str:
        """A table for people: lower is better, xz is the bar."""
        head = f"{'language':<10}{'documents':>10}{'bytes':>11}{'bits/byte':>16}{'xz':>8}"
        return "\n".join([head, *(_render(line) for line in (*self.languages, self.total))])


def evaluate(
    model: Judged,
    store: Store,
    max_bytes: int = 200_000,
    languages: Sequence[str] | None = None,
    *,
    context: int | None = None,
) -> EvalReport:
    """Score `model` on up to `max_bytes` of held-out text a language from `store`'s corpus.

    `context` is tokens a window; by default the length of the samples that the store's data plan
    trains on, or what the model can read if there is no plan: a rotary model is not good at
    positions that it never saw. Languages with less than 2 KiB are
    scored together as "other". Raises UsageError where the store has no corpus or no held-out
    text, JudgeError where the model answers no number.
    """
    manifest = read_manifest(store, "corpus")
    if manifest is None:
        raise UsageError(f"{store.url} has no corpus to judge on; run `eyas curate` first")
    found = held_out(store, manifest, max_bytes, languages)
    # A language cut to fewer bytes than that is not small: it may miss a character's last 3 bytes.
    documents = group_small(found, min(SMALL, max_bytes - 3))
    if not documents:
        raise UsageError(
            f"the corpus in {store.url} has no held-out documents; set corpus.validation_share"
        )
    context = context or _trained_context(model, store)
    if context > model.shape.max_sequence:
        raise UsageError(
            f"context {context} is longer than the model's {model.shape.max_sequence} tokens"
        )
    scores: dict[str, list[DocumentScore]] = {}
    size = sum(d.bytes for found in documents.values() for d in found)
    with progress("judge", total=size) as advance:
        for language, texts in documents.items():
            scores[language] = score_documents(model, texts, context, advance)
    return EvalReport(
        languages=tuple(_line(n, scores[n], documents[n]) for n in documents),
        total=_line(
            TOTAL,
            [s for found in scores.values() for s in found],
            [d for found in documents.values() for d in found],
        ),
        max_bytes=max_bytes,
        context=context,
        corpus=manifest.identity,
        tokenizer=str(getattr(model.tokenizer, "digest", "")),
    )


def _trained_context(model: Judged, store: Store) -> int:
    longest = model.shape.max_sequence
    if next(iter(store.list("data/plan-")), None) is None:
        return longest
    return min(longest, read_data_plan(store).segments[-1].sequence)


def report_key(step: int, attempt: int) -> str:
    """Where the report of a checkpoint lies."""
    return f"eval/{step:012d}-{attempt}.json"


def write_report(store: Store, report: EvalReport, step: int, attempt: int) -> str:
    """Keep the report; returns its key. The same report again changes nothing."""
    key = report_key(step, attempt)
    store.put(key, seal(report.to_dict() | {"step": step, "attempt": attempt}))
    return key


def read_report(store: Store, step: int, attempt: int) -> EvalReport:
    """Read it back. Raises NotFound, or Corrupt."""
    key = report_key(step, attempt)
    raw = unseal(store, key, store.get(key))
    lines = tuple(LanguageScore(**line) for line in raw["languages"])
    names = ("max_bytes", "context", "corpus", "tokenizer")
    return EvalReport(lines, LanguageScore(**raw["total"]), **{n: raw[n] for n in names})


def _line(
    language: str, scores: Sequence[DocumentScore], documents: Sequence[HeldOut]
) -> LanguageScore:
    size = sum(s.bytes for s in scores)
    bits = math.fsum(s.bits for s in scores)
    packed = xz_bytes([d.text for d in documents])
    if size == 0:
        raise JudgeError(f"the held-out documents in {language} are empty")
    return LanguageScore(
        language=language,
        documents=len(scores),
        bytes=size,
        tokens=sum(s.tokens for s in scores),
        bits=bits,
        bits_per_byte=bits / size,
        standard_error=_standard_error(scores, bits / size),
        xz_bytes=packed,
        xz_bits_per_byte=8 * packed / size,
    )


def _render(line: LanguageScore) -> str:
    error = f" ±{line.standard_error:.3f}" if line.standard_error else " " * 7
    return (
        f"{line.language:<10}{line.documents:>10,}{line.bytes:>11,}"
        f"{line.bits_per_byte:>9.3f}{error}{line.xz_bits_per_byte:>8.3f}"
    )


def _standard_error(scores: Sequence[DocumentScore], ratio: float) -> float:
    """Of a ratio of sums, by linearisation, documents being the units drawn."""
    n = len(scores)
    if n < 2:
        return 0.0
    spread = math.fsum((s.bits - ratio * s.bytes) ** 2 for s in scores)
    return math.sqrt(spread * n / (n - 1)) / sum(s.bytes for s in scores)
