"""How good a tokenizer is: bytes a token and tokens a word (fertility) by language and by domain,
what its items are and which of them are of no use, and the proof that texts come back.

Documents in, a JSON-able report out. Words are the corpus' own count, so figures of two tokenizers
on one corpus compare. An item of several words has white space between two letters; a name is one
of which every word begins with a capital letter, which only some scripts have.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from eyas.recipe import EyasError
from eyas.store import Store, read_manifest

from .encoder import split
from .name_places import NamePlaces
from .sample import Sampled, sample_documents
from .texts import CorpusTexts
from .tokenizer import Tokenizer

__all__ = ["compare", "held_out_sample", "inspect", "measure"]

_BATCH = 64
_SAMPLE_BYTES = 4 * 2**20
_RARE = 2
_LISTED = 20
_EXAMPLE_CHARACTERS = 160
_SEVERAL = re.compile(r"[^\W\d_]\S*\s+\S*[^\W\d_]")

Counts = npt.NDArray[np.int64]


def measure(
    tokenizer: Tokenizer,
    documents: Iterable[Sampled],
    reserved: int,
    names: NamePlaces | None = None,
) -> dict[str, Any]:
    """`{"documents", "bytes", "tokens", "words", "bytes_per_token", "fertility", "languages":
    {name: the same}, "unused_items", "rare_items", "multiword_items", "multiword_tokens",
    "round_trip"}`.

    An unused item does not occur in these documents, a rare one once or twice; the `reserved` are
    not counted. `multiword_tokens` is the share of tokens that are items of several words.
    `round_trip` has the `documents` that decode to what they were, and their `bytes`. `names` are
    counted on the way.
    """
    return _tallied(tokenizer, documents, names=names).report(tokenizer, reserved)


def inspect(
    tokenizer: Tokenizer,
    documents: Iterable[Sampled],
    reserved: int,
    advance: Callable[[float], None] = lambda n: None,
) -> dict[str, Any]:
    """As `measure`, and: `vocab_size`, `reserved`, `domains` (as `languages`, the largest ones),
    `name_items`, `longest` and `names` (items as text), `examples` (language to the items of a
    text's beginning), `encoder` (see `Proof`). `advance` is called with bytes done."""
    tally = _tallied(tokenizer, documents, advance)
    several = _several(tokenizer.items)
    texts = {i: _text(tokenizer.items[i]) for i in several}
    names = [i for i in several if all(word[:1].isupper() for word in texts[i].split())]
    return {
        "vocab_size": tokenizer.vocab_size,
        "reserved": reserved,
        **tally.report(tokenizer, reserved),
        "domains": _rows(tally.domains, _LISTED),
        "name_items": len(names),
        "longest": _longest(tokenizer.items, reserved),
        "names": [texts[i] for i in names[:_LISTED]],
        "examples": tally.examples,
        "encoder": dataclasses.asdict(tokenizer.proof),
    }


def compare(
    tokenizers: Mapping[str, Tokenizer],
    documents: Sequence[Sampled],
    advance: Callable[[float], None] = lambda n: None,
) -> list[dict[str, Any]]:
    """A row for each tokenizer on the same documents: `name`, `vocab_size`, `bytes_per_token`,
    `fertility`, `ratio` (of its bytes a token to the first one's) and `languages` (bytes a token).
    """
    rows: list[dict[str, Any]] = []
    for name, tokenizer in tokenizers.items():
        tally = _tallied(tokenizer, documents, advance)
        total = tally.total.row()
        first = rows[0]["bytes_per_token"] if rows else total["bytes_per_token"]
        by_language = _rows(tally.languages, len(tally.languages)).items()
        rows.append(
            {
                "name": name,
                "vocab_size": tokenizer.vocab_size,
                "bytes_per_token": total["bytes_per_token"],
                "fertility": total["fertility"],
                "ratio": round(total["bytes_per_token"] / first, 4) if first else 0.0,
                "languages": {key: row["bytes_per_token"] for key, row in by_language},
            }
        )
    return rows


def held_out_sample(store: Store) -> tuple[str, list[Sampled]]:
    """Up to 4 MiB of held-out documents of the store's corpus, languages alike, and the name of
    their split; of training ones if none are held out. Raises EyasError without a corpus."""
    corpus = read_manifest(store, "corpus")
    if corpus is None:
        raise EyasError(
            f"{store.url} holds no corpus to measure a tokenizer on; make one with `eyas curate "
            f"RECIPE`, or ask a store that has one: `eyas tokenizer OTHER compare {store.url}`"
        )
    texts = [CorpusTexts(store, corpus)]
    for name in ("validation", "train"):
        documents = list(sample_documents(texts, name, _SAMPLE_BYTES, temperature=0.0))
        if documents:
            break
    return name, documents


@dataclass
class _Sum:
    """What is added up over documents."""

    documents: int = 0
    bytes: int = 0
    tokens: int = 0
    words: int = 0

    def add(self, size: int, tokens: int, words: int) -> None:
        self.documents += 1
        self.bytes += size
        self.tokens += tokens
        self.words += words

    def row(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "bytes_per_token": round(self.bytes / self.tokens, 4) if self.tokens else 0.0,
            "fertility": round(self.tokens / self.words, 4) if self.words else 0.0,
        }


@dataclass
class _Tally:
    """All that is learned while documents pass."""

    seen: Counts
    total: _Sum = field(default_factory=_Sum)
    languages: dict[str, _Sum] = field(default_factory=dict)
    domains: dict[str, _Sum] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    restored: _Sum = field(default_factory=_Sum)

    def add(
        self,
        tokenizer: Tokenizer,
        document: Sampled,
        ids: npt.NDArray[np.uint32],
        names: NamePlaces | None,
    ) -> int:
        """Count one document; returns its bytes."""
        np.add.at(self.seen, ids, 1)
        data = document.text.encode()
        counts = len(data), len(ids), document.words
        sums = [self.total, self.languages.setdefault(document.language, _Sum())]
        if host := urlsplit(document.url).hostname:
            sums.append(self.domains.setdefault(host, _Sum()))
        known = ids.tolist()
        decoded = tokenizer.decode_bytes(known)
        if decoded == data:
            sums.append(self.restored)
        if names is not None:
            names.add(decoded.decode(errors="replace"), [len(tokenizer.items[i]) for i in known])
        for entry in sums:
            entry.add(*counts)
        if document.language not in self.examples and document.text:
            start = tokenizer.encode(document.text[:_EXAMPLE_CHARACTERS])
            self.examples[document.language] = [_text(tokenizer.items[i]) for i in start]
        return len(data)

    def report(self, tokenizer: Tokenizer, reserved: int) -> dict[str, Any]:
        """As `measure`."""
        several = _several(tokenizer.items)
        seen = self.seen[reserved:]
        tokens = self.total.tokens
        return {
            **self.total.row(),
            "languages": dict(sorted(_rows(self.languages, len(self.languages)).items())),
            "unused_items": int(np.count_nonzero(seen == 0)),
            "rare_items": int(np.count_nonzero((seen > 0) & (seen <= _RARE))),
            "multiword_items": len(several),
            "multiword_tokens": round(int(self.seen[several].sum()) / tokens, 4) if tokens else 0.0,
            "round_trip": {"documents": self.restored.documents, "bytes": self.restored.bytes},
        }


def _tallied(
    tokenizer: Tokenizer,
    documents: Iterable[Sampled],
    advance: Callable[[float], None] = lambda n: None,
    names: NamePlaces | None = None,
) -> _Tally:
    tally = _Tally(np.zeros(tokenizer.vocab_size, np.int64))
    stream = iter(documents)
    while batch := list(islice(stream, _BATCH)):
        encoded = split(tokenizer.encode_flat([d.text for d in batch]))
        for document, ids in zip(batch, encoded, strict=True):
            advance(tally.add(tokenizer, document, ids, names))
    return tally


def _rows(sums: Mapping[str, _Sum], most: int) -> dict[str, dict[str, Any]]:
    """Rows of the largest, in order of their bytes."""
    ordered = sorted(sums, key=lambda name: (-sums[name].bytes, name))
    return {name: sums[name].row() for name in ordered[:most]}


def _several(items: Sequence[bytes]) -> list[int]:
    """The ids of the items of several words."""
    return [
        i
        for i, item in enumerate(items)
        if len(item.split()) > 1 and _SEVERAL.search(item.decode(errors="replace"))
    ]


def _longest(items: Sequence[bytes], reserved: int) -> list[str]:
    order = sorted(range(reserved, len(items)), key=lambda i: (-len(items[i]), i))
    return [_text(items[i]) for i in order[:_LISTED]]


def _text(item: bytes) -> str:
    """To be read; bytes that are part of a character as \\xNN."""
    return item.decode(errors="backslashreplace")
