"""How good a tokenizer is, by language: bytes a token, tokens a word (fertility), unused items.

Pure: sampled documents in, a JSON-able report out. Words are the corpus' own count, so figures of
two tokenizers on one corpus compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from .sample import Sampled
from .tokenizer import Tokenizer

__all__ = ["measure"]

_BATCH = 64


def measure(tokenizer: Tokenizer, documents: Iterable[Sampled], reserved: int) -> dict[str, Any]:
    """`{"bytes", "tokens", "words", "bytes_per_token", "fertility", "languages": {name: the same},
    "unused_items"}`; an unused item is no reserved one and does not occur in these documents."""
    seen = np.zeros(tokenizer.vocab_size, bool)
    sums: dict[str, list[int]] = {}
    stream = iter(documents)
    while batch := list(islice(stream, _BATCH)):
        for document, ids in zip(
            batch, tokenizer.encode_batch([d.text for d in batch]), strict=True
        ):
            seen[ids] = True
            sum_ = sums.setdefault(document.language, [0, 0, 0, 0])
            for i, n in enumerate((1, len(document.text.encode()), len(ids), document.words)):
                sum_[i] += n
    total = [sum(s[i] for s in sums.values()) for i in range(4)]
    return {
        **_row(total),
        "languages": {name: _row(sums[name]) for name in sorted(sums)},
        "unused_items": int(np.count_nonzero(~seen[reserved:])),
    }


def _row(sums: list[int]) -> dict[str, Any]:
    documents, size, tokens, words = sums
    return {
        "documents": documents,
        "bytes": size,
        "tokens": tokens,
        "words": words,
        "bytes_per_token": round(size / tokens, 4) if tokens else 0.0,
        "fertility": round(tokens / words, 4) if words else 0.0,
    }
