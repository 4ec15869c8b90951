"""`[corpus]` and its tables: where pages come from and what each filter asks of them.

A key of a filter that is not set (None) is left to the preset and the language packs; the value in
brackets is the published one for English (`presets/corpus/published.toml`). A share is of 1, and a
value at its limit is kept. The same tables are what presets and language packs are written in, so
one validator reads all three.
"""

# ruff: noqa: RUF009 (key and table are dataclasses.field)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .key import key, table

__all__ = [
    "C4",
    "FILTERS",
    "STEPS",
    "Corpus",
    "CorpusPreset",
    "FilterTables",
    "FineWeb",
    "Gopher",
    "LanguagePack",
    "Lines",
    "Punctuation",
    "Repetition",
    "UrlKeys",
    "Words",
]

STEPS = ("url", "language", "repetition", "gopher", "c4", "fineweb", "lines")
FILTERS = STEPS[2:]
PRESETS = ("refinedweb", "fineweb", "gopher", "c4", "none")


def _share(doc: str) -> Any:
    return key(None, doc, low=0, high=1)


def _limit(doc: str) -> Any:
    return key(None, doc, low=0)


def _count(doc: str) -> Any:
    return key(None, doc, kind="count", low=0)


@dataclass(frozen=True)
class UrlKeys:
    """Which addresses are not read at all."""

    default_lists: bool = key(True, "block the small list of domains that ships")
    blocklist: tuple[str, ...] = key(
        (), "files of domains to block with all below them, one a line; plain or .gz, here or s3://"
    )
    strict_words: str = key("", "file of words that block an address anywhere in it; empty: ours")
    hard_words: str = key("", "file of words that block an address as whole words; empty: ours")
    soft_words: str = key("", "file of words of which a few are too many; empty: ours")
    max_soft_words: int = key(1, "most different soft words in an address", low=0)
    exclude_curated: bool = key(
        True, "leave out sites that are added from a curated source (Wikipedia, arXiv …)"
    )
    curated: tuple[str, ...] = key((), "more domains of curated sources")


@dataclass(frozen=True)
class Repetition:
    """What repeats itself (Gopher). N-grams are of words, their shares of all characters."""

    max_duplicate_paragraphs: float | None = _share("duplicate paragraphs (.30)")
    max_duplicate_paragraph_characters: float | None = _share("characters in them (.20)")
    max_duplicate_lines: float | None = _share("duplicate lines (.30)")
    max_duplicate_line_characters: float | None = _share("characters in them (.20)")
    max_top_2_gram: float | None = _share("most frequent 2-gram (.20)")
    max_top_3_gram: float | None = _share("most frequent 3-gram (.18)")
    max_top_4_gram: float | None = _share("most frequent 4-gram (.16)")
    max_duplicated_5_grams: float | None = _share("duplicated 5-grams (.15)")
    max_duplicated_6_grams: float | None = _share("duplicated 6-grams (.14)")
    max_duplicated_7_grams: float | None = _share("duplicated 7-grams (.13)")
    max_duplicated_8_grams: float | None = _share("duplicated 8-grams (.12)")
    max_duplicated_9_grams: float | None = _share("duplicated 9-grams (.11)")
    max_duplicated_10_grams: float | None = _share("duplicated 10-grams (.10)")


@dataclass(frozen=True)
class Gopher:
    """What is no prose (Gopher)."""

    min_words: int | None = _count("words (50)")
    max_words: int | None = _count("words (100,000)")
    min_word_length: float | None = _limit("mean characters a word (3)")
    max_word_length: float | None = _limit("mean characters a word (10)")
    max_hashes: float | None = _limit("hash signs a word (.1)")
    max_ellipses: float | None = _limit("ellipses a word (.1)")
    max_bullet_lines: float | None = _share("lines that start with a bullet (.9)")
    max_ellipsis_lines: float | None = _share("lines that end in an ellipsis (.3)")
    min_letter_words: float | None = _share("words with a letter (.8)")
    min_stop_words: int | None = _count("different stop words (2)")
    stop_words: tuple[str, ...] | None = key(
        None, "the stop words (the be to of and that have with)"
    )


@dataclass(frozen=True)
class C4:
    """Lines that are no sentences, then pages that are left with few (C4)."""

    terminal_punctuation: bool | None = key(
        None, "drop lines that do not end as a sentence does (true)"
    )
    min_line_words: int | None = _count("words a line, or it is dropped (3)")
    max_word_characters: int | None = _count("characters a word, or its line is dropped (1,000)")
    drop_javascript: bool | None = key(None, 'drop lines with "javascript" (true)')
    drop_policy: bool | None = key(None, "drop lines on cookies and terms of use (true)")
    remove_citations: bool | None = key(None, "cut [12] and [citation needed] (true)")
    max_lorem_ipsum: int | None = _count('"lorem ipsum" (0)')
    max_curly_brackets: int | None = _count("{ (0)")
    min_sentences: int | None = _count("sentences in the lines that stay (5)")
    bad_words: str | None = key(None, "file of bad words, one a line; empty: none (none)")
    max_bad_words: int | None = _count("bad words (0)")


@dataclass(frozen=True)
class FineWeb:
    """Lists and fragments (FineWeb)."""

    min_punctuated_lines: float | None = _share("lines that end as a sentence does (.12)")
    short_line_characters: int | None = _count("characters of a short line (30)")
    max_short_lines: float | None = _share("short lines (.67)")
    max_duplicate_line_characters: float | None = _share(
        "characters in duplicate lines (.1; preset fineweb .01)"
    )
    max_newlines_per_word: float | None = _limit("newlines a word (.3)")


@dataclass(frozen=True)
class Lines:
    """Lines of page furniture (RefinedWeb)."""

    max_uppercase: float | None = _share("upper-case characters, or the line is dropped (.5)")
    drop_numbers: bool | None = key(None, "drop lines of digits only (true)")
    drop_counters: bool | None = key(None, 'drop lines such as "3 likes" (true)')
    min_line_words: int | None = _count("words a line, or it is dropped (2)")
    cut_line_words: int | None = _count(
        'words of the longest line in which "items in cart" and the like are cut (10)'
    )
    max_removed_words: float | None = _share("words removed so, or the page is dropped (.05)")


@dataclass(frozen=True)
class Words:
    """How a language is written."""

    tokens_per_word: int | None = key(
        None,
        "tokens that make a word, in n-grams and shingles (1; more without spaces)",
        low=1,
        high=10,
    )
    keep_hyphens: bool | None = key(None, "words with a hyphen stay whole (false)")
    keep_ordinals: bool | None = key(None, 'numbers keep a full stop behind them: "3." (false)')
    whole_words: tuple[str, ...] | None = key(None, 'what stays whole: "usw.", "peut-être" (none)')


@dataclass(frozen=True)
class Punctuation:
    """The signs that a language ends its sentences with."""

    terminal: str | None = key(None, "signs that end a sentence (Unicode's Sentence_Terminal)")
    line_end: str | None = key(None, "signs that a C4 line may end with (. ? ! \" ')")


@dataclass(frozen=True)
class FilterTables:
    """The tables that a preset and a pack may hold."""

    repetition: Repetition = table(Repetition)
    gopher: Gopher = table(Gopher)
    c4: C4 = table(C4)
    fineweb: FineWeb = table(FineWeb)
    lines: Lines = table(Lines)
    words: Words = table(Words)
    punctuation: Punctuation = table(Punctuation)


@dataclass(frozen=True)
class CorpusPreset(FilterTables):
    """A preset: the steps in their order, and where it differs from the published values."""

    steps: tuple[str, ...] = key((), "the steps in their order")
    english_only: tuple[str, ...] = key((), "steps that other languages leave out")


@dataclass(frozen=True)
class LanguagePack(FilterTables):
    """The rules of one language."""

    codes: tuple[str, ...] = key((), 'codes of the language ("ar", "arb"); "*" for all others')
    scripts: tuple[str, ...] = key((), "ISO 15924 codes of its scripts (Arab); empty: any")
    published: bool = key(False, "on the published English values, not on those of all others")
    language_threshold: float | None = _share("least language score; empty: the recipe's")


@dataclass(frozen=True)
class Corpus:
    """From crawl to documents."""

    sources: tuple[str, ...] = key(
        (),
        "where pages come from: WARC, WET, ARC, HTML, JSONL, Parquet files or folders, s3:// keys, "
        'https:// files, crawls as "cc:CC-MAIN-2026-10", and documentation packages as "apt:NAME" '
        '(a * at the end matches) or "pypi:NAME"',
    )
    fallback_sources: tuple[str, ...] = key(
        (), "taken instead of the apt: sources where there is no apt-get, or it reaches nothing"
    )
    max_pages: int = key(
        0,
        "take at most this many pages from package sources, by seed; 0 is all",
        kind="count",
        low=0,
    )
    max_crawl_files: int = key(
        0, "take this many files of each cc: crawl, by seed; 0 is all", kind="count", low=0
    )
    crawl_mirror: str = key(
        "https://data.commoncrawl.org",
        "where cc: crawls are read from: https:// or s3://commoncrawl",
    )
    text_field: str = key("text", "the field of JSONL and Parquet files that holds the text")
    extractor: str = key(
        "trafilatura",
        "text extraction: trafilatura (F1 .955) or resiliparse (F1 .93, five times faster)",
        choices=("trafilatura", "resiliparse"),
    )
    max_page_bytes: int = key(4 * 2**20, "larger pages are rejected unread", kind="count", low=1024)
    max_page_nodes: int = key(50_000, "pages of more elements are rejected", kind="count", low=100)
    page_seconds: float = key(
        60.0, "CPU time of one page after which it is given up for good", kind="duration", above=0
    )
    preset: str = key(
        "refinedweb",
        "which published filters, in which order; none: the language only",
        choices=PRESETS,
    )
    steps: tuple[str, ...] = key(
        (), f"the steps in your order, of {', '.join(STEPS)}; empty: preset's"
    )
    languages: tuple[str, ...] = key((), "ISO 639-1 codes to keep; empty keeps all")
    language_threshold: float = key(0.65, "least language score (fastText lid.176)", low=0, high=1)
    language_packs: str = key("", "a folder of your own language packs, which go before all else")
    url: UrlKeys = table(UrlKeys)
    repetition: Repetition = table(Repetition)
    gopher: Gopher = table(Gopher)
    c4: C4 = table(C4)
    fineweb: FineWeb = table(FineWeb)
    lines: Lines = table(Lines)
    dedup_bands: int = key(14, "MinHash-LSH bands", low=1, high=1000)
    dedup_rows: int = key(8, "MinHash-LSH rows a band", low=1, high=100)
    dedup_shingle: int = key(5, "words a shingle", low=1, high=50)
    validation_share: float = key(
        0.05, "share of duplicate clusters held out for validation", low=0, high=0.5
    )
    cpu_hour_price: float = key(0.0, "dollars a CPU-hour, for the report's cost", low=0)
    seed: int = key(1, "decides the slice and the validation split", low=0)
