"""The texts that a tokenizer is trained on: those of the recipe's sources that this run encodes.

They are the own corpus, if a source takes from it or if no other has text, and every foreign
source of text; ids of other tools teach a tokenizer nothing. At most `OBJECTS` objects of the
corpus and as many pieces of foreign files are looked at, spread by hash, and of the foreign ones
`FOREIGN_BYTES` of text in all, each piece from its beginning: the cost is bounded for sources of
any size. A document is in the split in which `encode.py` puts it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from eyas.corpus import count_words, read_documents
from eyas.recipe import DataSource, EyasError, Recipe
from eyas.store import Manifest, Store, read_manifest

from .encode import UNKNOWN_LANGUAGE, held_out
from .foreign import Piece, Place, foreign_kind, read_piece, text_pieces_of
from .sample import Sampled, Texts

__all__ = ["CorpusTexts", "ForeignTexts", "RecipeTexts", "recipe_texts"]

OBJECTS = 64
FOREIGN_BYTES = 4 * 2**30


class CorpusTexts:
    """Of a corpus, by the id of each document, verified."""

    def __init__(self, store: Store, corpus: Manifest) -> None:
        self._store = store
        objects = corpus.under("corpus/documents/")
        chosen = tuple(objects[i] for i in _spread(len(objects), OBJECTS))
        self._part = dataclasses.replace(corpus, objects=chosen)

    def sizes(self, split: str) -> Iterator[tuple[str, str, int]]:
        """See `Texts`."""
        return self._rows(split, ["id", "language", "bytes"])

    def documents(self, split: str, chosen: Callable[[str, str], bool]) -> Iterator[Sampled]:
        """See `Texts`."""
        for name, *about in self._rows(split, ["id", "language", "text", "words", "url"]):
            if chosen(name, about[0]):
                yield Sampled(*about)

    def _rows(self, split: str, columns: list[str]) -> Iterator[Any]:
        for table in read_documents(self._store, self._part, split=split, columns=columns):
            yield from zip(*(table.column(name).to_pylist() for name in columns), strict=True)


@dataclass(frozen=True)
class ForeignTexts:
    """Of a foreign source, by file and row: `pieces` with text, and the share of them that is held
    out. `objects` of them are looked at and `most` bytes of text."""

    kind: str
    place: Place
    pieces: Sequence[Piece]
    share: float
    objects: int = OBJECTS
    most: int = FOREIGN_BYTES

    def sizes(self, split: str) -> Iterator[tuple[str, str, int]]:
        """See `Texts`."""
        for name, language, _, _, size in self._rows(split):
            yield name, language, size

    def documents(self, split: str, chosen: Callable[[str, str], bool]) -> Iterator[Sampled]:
        """See `Texts`."""
        for name, language, text, url, _ in self._rows(split):
            if chosen(name, language):
                yield Sampled(language, text, count_words(text), url)

    def _rows(self, split: str) -> Iterator[tuple[str, str, str, str, int]]:
        """Name, language, text, URL and UTF-8 bytes of each document of a split."""
        able = [piece for piece in self.pieces if piece.params.get("split") in (None, "", split)]
        looked_at = [able[i] for i in _spread(len(able), self.objects)]
        for piece in looked_at:
            left = self.most // len(looked_at)
            for row, language, text, url in _documents(self.kind, self.place, piece):
                data = text.encode()
                if (piece.params.get("split") or _split(data, self.share)) == split:
                    yield f"{piece.key}:{row}", language, text, url, len(data)
                left -= len(data)
                if left <= 0:
                    break


def _documents(kind: str, place: Place, piece: Piece) -> Iterator[tuple[int, str, str, str]]:
    """Row, language, text and URL of each; what cannot be read is said when it is encoded."""
    for records in read_piece(kind, place, piece, lambda row, why: None):
        for i, row in enumerate(records.rows):
            language = records.languages[i] or UNKNOWN_LANGUAGE
            yield row, language, records.texts[i], records.urls[i]


def _split(data: bytes, share: float) -> str:
    return "validation" if held_out(data, share) else "train"


def _spread(count: int, most: int) -> list[int]:
    """Positions of `count` objects, or of `most` of them, by hash of the position."""
    order = sorted(range(count), key=lambda i: xxhash.xxh3_64_intdigest(str(i).encode()))
    return sorted(order[:most])


@dataclass(frozen=True)
class RecipeTexts:
    """What a recipe's tokenizer hears: the own corpus, or None, and foreign sources by URL."""

    store: Store
    corpus: Manifest | None
    foreign: dict[str, ForeignTexts]

    @property
    def all(self) -> list[Texts]:
        """One after another."""
        own: list[Texts] = [CorpusTexts(self.store, self.corpus)] if self.corpus else []
        return [*own, *self.foreign.values()]

    @property
    def made_of(self) -> list[Any]:
        """What the identity of a tokenizer is taken of; neither names nor weights of sources."""
        objects = self.corpus.under("corpus/documents/") if self.corpus else ()
        foreign = [[f.kind, f.place.home, f.pieces, f.share] for f in self.foreign.values()]
        return [*(o.crc32c for o in objects), *foreign]

    @property
    def made_of_before_removals(self) -> list[Any]:
        """The same as if no document had ever been taken out of the corpus."""
        foreign = [[f.kind, f.place.home, f.pieces, f.share] for f in self.foreign.values()]
        return [self.corpus.facts.get("before_removals") if self.corpus else None, *foreign]

    @property
    def files(self) -> list[dict[str, Any]]:
        """The files of each foreign source: URL, size and etag."""
        return [
            {
                "from": url,
                "files": [
                    {"url": f"{found.place.home}/{key}", "size": size, "etag": etag}
                    for key, size, etag in dict.fromkeys(
                        (piece.key, piece.size, piece.etag) for piece in found.pieces
                    )
                ],
            }
            for url, found in self.foreign.items()
        ]


def recipe_texts(recipe: Recipe, store: Store) -> RecipeTexts:
    """What to train the recipe's tokenizer on. Raises EyasError if the corpus that a source takes
    from is not there, or there is no text at all; UsageError for a place with nothing to read."""
    sources = recipe.data.sources or (DataSource(name="corpus"),)
    share = recipe.corpus.validation_share
    found: dict[str, ForeignTexts] = {}
    for source in sorted(sources, key=lambda source: source.from_):
        if source.from_ not in found and (kind := foreign_kind(source.from_)):
            place, pieces = text_pieces_of(f'data.sources "{source.name}"', source.from_)
            if pieces:
                found[source.from_] = ForeignTexts(kind, place, pieces, share)
    for url, texts in found.items():
        objects, most = max(OBJECTS // len(found), 1), FOREIGN_BYTES // len(found)
        found[url] = dataclasses.replace(texts, objects=objects, most=most)
    if found and all(source.from_ for source in sources):
        return RecipeTexts(store, None, found)
    corpus = read_manifest(store, "corpus")
    if corpus is None:
        raise EyasError(
            f"{store.url} holds no corpus to train a tokenizer on; make one with `eyas curate "
            "RECIPE`, or take over another store's tokenizer by [tokenizer] from"
        )
    return RecipeTexts(store, corpus, found)
