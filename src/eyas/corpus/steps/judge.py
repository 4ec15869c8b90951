"""One page to one verdict: a document, or the stage, reason and value that it failed at.

The order is RefinedWeb's: extraction, language, repetition, quality. Pure in (page, keys). Words
are split once; the tokens go on to the rules and to matching.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eyas.corpus.reading.decode import decode_text
from eyas.corpus.reading.read import Page

from .extract import TooDeep, clean_text, extract_text
from .language import detect_language
from .packs import pack_for
from .rules import measure, verdict
from .words import split_words

__all__ = ["Keys", "Verdict", "judge"]


@dataclass(frozen=True)
class Keys:
    """What the recipe decides here. `languages` empty keeps all."""

    extractor: str
    languages: tuple[str, ...]
    language_threshold: float


@dataclass(frozen=True)
class Verdict:
    """`reason` is empty for a document. `values` are all measures, where the rules were reached."""

    stage: str = ""
    reason: str = ""
    value: float | None = None
    detail: str = ""
    text: str = ""
    language: str = ""
    score: float = 0.0
    tokens: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)


def judge(page: Page, keys: Keys) -> Verdict:
    """What becomes of a page."""
    try:
        text = _text_of(page, keys.extractor)
    except TooDeep as error:
        return Verdict("extract", "too_deep", error.depth)
    except BaseException as error:  # a page may break an extractor in any way
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return Verdict(
            "extract", "extractor_failed", detail=f"{type(error).__name__}: {error}"[:200]
        )
    if not text:
        return Verdict("extract", "no_text", len(page.body))
    language, score = detect_language(text)
    if keys.languages and language not in keys.languages:
        return Verdict("language", "other_language", score, text=text, language=language)
    if score < keys.language_threshold:
        return Verdict("language", "uncertain_language", score, text=text, language=language)
    tokens = split_words(text)
    pack = pack_for(language)
    values = measure(text, tokens, pack)
    failure = verdict(values, pack)
    if failure is None:
        return Verdict("", "", None, "", text, language, score, tokens, values)
    rule = failure.rule
    return Verdict(
        rule.stage, rule.reason, failure.value, pack.name, text, language, score, values=values
    )


def _text_of(page: Page, extractor: str) -> str:
    if not page.body:
        return clean_text(page.text)
    html, _ = decode_text(page.body, page.charset)
    return extract_text(html, extractor)
