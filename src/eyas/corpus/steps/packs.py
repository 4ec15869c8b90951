"""Language packs: the published thresholds and stop words, as data.

`gopher` is table A1 of Gopher (arXiv 2112.11446) for English. Arabic, French, German, Spanish,
Russian, Chinese and Japanese take what FineWeb-2 publishes for that language (stop words, mean word
length, letters, duplicate lines, n-grams) and Gopher's values where it publishes none. Every other
language takes `general`: Gopher's values without stop words, and a mean word length of 2 to 15, the
width of the published ones. Scripts without spaces are split into characters; a published n-gram of
words becomes one of `tokens_per_word` times as many characters (2 for Chinese and Japanese, 3 for
Thai, Lao, Khmer and Burmese: ours, no published value), and so do the least words and the shingles.
A changed number changes `packs_digest`, which is part of the stage's identity.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from eyas.store import identity

__all__ = ["PACKS", "Pack", "pack_for", "packs_digest"]

_NGrams = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Pack:
    """Thresholds of one language; shares are of 1. `top_ngrams` and `duplicated_ngrams` are pairs
    (tokens, most share of the characters). Bounds are inclusive: at the threshold is kept."""

    name: str
    stop_words: tuple[str, ...] = ()
    min_stop_words: int = 0
    min_words: int = 50
    max_words: int = 100_000
    min_word_length: float = 3.0
    max_word_length: float = 10.0
    max_hashes: float = 0.1
    max_ellipses: float = 0.1
    max_bullet_lines: float = 0.9
    max_ellipsis_lines: float = 0.3
    min_letter_words: float = 0.8
    max_duplicate_lines: float = 0.30
    max_duplicate_line_characters: float = 0.20
    max_duplicate_paragraphs: float = 0.30
    max_duplicate_paragraph_characters: float = 0.20
    top_ngrams: _NGrams = ((2, 0.20), (3, 0.18), (4, 0.16))
    duplicated_ngrams: _NGrams = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )
    tokens_per_word: int = 1


def _ngrams(first: int, shares: tuple[float, ...], tokens_per_word: int = 1) -> _NGrams:
    return tuple(((first + i) * tokens_per_word, share) for i, share in enumerate(shares))


_ENGLISH = Pack(
    "gopher", ("the", "be", "to", "of", "and", "that", "have", "with"), min_stop_words=2
)

_ARABIC = Pack(
    "arabic",
    tuple("، في من على إلى عام أن مع أو هو عن التي كان بين ما كانت هي المتحدة بعد".split()),
    min_stop_words=2,
    min_word_length=2,
    max_word_length=9,
    min_letter_words=0.787,
    max_duplicate_lines=0.304,
    top_ngrams=_ngrams(2, (0.197, 0.172, 0.146)),
    duplicated_ngrams=_ngrams(5, (0.165, 0.153, 0.142, 0.131, 0.12, 0.109)),
)

_FRENCH = Pack(
    "french",
    tuple("de la le et à en l' des du les est d' un une il dans par au".split()),
    min_stop_words=2,
    min_word_length=2,
    max_word_length=11,
    min_letter_words=0.812,
    max_duplicate_lines=0.264,
    top_ngrams=_ngrams(2, (0.161, 0.149, 0.134)),
    duplicated_ngrams=_ngrams(5, (0.15, 0.141, 0.131, 0.121, 0.111, 0.1)),
)

_GERMAN = Pack(
    "german",
    tuple("der und die in von im den des mit das er dem als wurde für".split()),
    min_stop_words=2,
    min_word_length=0,
    max_word_length=15,
    min_letter_words=0.774,
    max_duplicate_lines=0.263,
    top_ngrams=_ngrams(2, (0.169, 0.153, 0.137)),
    duplicated_ngrams=_ngrams(5, (0.141, 0.134, 0.126, 0.117, 0.108, 0.098)),
)

_SPANISH = Pack(
    "spanish",
    tuple("de la en el y a que del los se por un con una las su".split()),
    min_stop_words=2,
    min_word_length=4,
    max_word_length=14,
    min_letter_words=0.825,
    max_duplicate_lines=0.265,
    top_ngrams=_ngrams(2, (0.077, 0.097, 0.112)),
    duplicated_ngrams=_ngrams(5, (0.152, 0.137, 0.123, 0.114, 0.107, 0.099)),
)

_RUSSIAN = Pack(
    "russian",
    tuple("в и на с года по году из был к не от что за для его как а он также до после".split()),
    min_stop_words=2,
    min_word_length=3,
    max_word_length=11,
    min_letter_words=0.713,
    max_duplicate_lines=0.322,
    top_ngrams=_ngrams(2, (0.184, 0.164, 0.146)),
    duplicated_ngrams=_ngrams(5, (0.168, 0.156, 0.145, 0.133, 0.121, 0.109)),
)

_CHINESE = Pack(
    "chinese",
    tuple("的 年 在 月 是 和 日 了 於 · 為 有 被 人 中 为 他 與 後 也 而 由".split()),
    min_stop_words=2,
    min_words=100,
    max_words=200_000,
    min_word_length=1,
    max_word_length=5,
    min_letter_words=0.735,
    max_duplicate_lines=0.287,
    top_ngrams=_ngrams(2, (0.256, 0.201, 0.171), 2),
    duplicated_ngrams=_ngrams(5, (0.198, 0.182, 0.167, 0.154, 0.14, 0.127), 2),
    tokens_per_word=2,
)

_JAPANESE = Pack(
    "japanese",
    tuple("の に を は た て が と で 年 し ・ 月 れ さ".split()),
    min_stop_words=2,
    min_words=100,
    max_words=200_000,
    min_word_length=1,
    max_word_length=5,
    min_letter_words=0.759,
    max_duplicate_lines=0.375,
    top_ngrams=_ngrams(2, (0.121, 0.129, 0.145), 2),
    duplicated_ngrams=_ngrams(5, (0.307, 0.283, 0.264, 0.248, 0.234, 0.223), 2),
    tokens_per_word=2,
)

_GENERAL = Pack("general", min_word_length=2, max_word_length=15)

_UNSPACED = Pack(
    "unspaced",
    min_words=150,
    max_words=300_000,
    min_word_length=1,
    max_word_length=5,
    top_ngrams=_ngrams(2, (0.20, 0.18, 0.16), 3),
    duplicated_ngrams=_ngrams(5, (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), 3),
    tokens_per_word=3,
)

PACKS: dict[str, Pack] = {
    "en": _ENGLISH,
    "ar": _ARABIC,
    "arz": _ARABIC,
    "fr": _FRENCH,
    "de": _GERMAN,
    "es": _SPANISH,
    "ru": _RUSSIAN,
    "zh": _CHINESE,
    "wuu": _CHINESE,
    "yue": _CHINESE,
    "ja": _JAPANESE,
    "th": _UNSPACED,
    "lo": _UNSPACED,
    "km": _UNSPACED,
    "my": _UNSPACED,
}


def pack_for(language: str) -> Pack:
    """The pack of a language label; `general` for one without its own."""
    return PACKS.get(language, _GENERAL)


def packs_digest() -> str:
    """SHA-256 (hex) of every number and word here."""
    return identity({k: dataclasses.asdict(p) for k, p in [*PACKS.items(), ("", _GENERAL)]})
