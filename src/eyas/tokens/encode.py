"""Stage `tokens.encode`: one corpus object, or one piece of a foreign source, in; token shards out.

Share-nothing. Text is held a batch at a time, tokens a shard at a time (`shard_writer.py`). Text is
encoded; ids that a source brings are taken as they are, if they are in the vocabulary, cut into
documents where an end of text stands. The same input and tokenizer give the same bytes, so a killed
shard that runs again overwrites what it left with the same.

A foreign source has no validation split of its own, unless its folders say so: documents are held
out by the hash of their text or ids, so exact duplicates are on one side.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from eyas.corpus import read_documents
from eyas.recipe import EyasError
from eyas.store import Manifest, ObjectRef, Store, read_object
from eyas.work import Shard, ShardResult, Stage

from .foreign import Piece, Place, Records, read_piece
from .shard_writer import EncodedDocuments, ShardWriter
from .token_arrays import cut_documents, end_documents
from .token_objects import SPLITS, token_dtype
from .tokenizer import Tokenizer

__all__ = ["UNKNOWN_LANGUAGE", "held_out", "run_shard", "taker"]

UNKNOWN_LANGUAGE = "und"
_BATCH_BYTES = 2**20
_SHOWN = 5
_COLUMNS = ["id", "url", "language", "split", "text"]
_log = logging.getLogger("eyas.tokens")

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


def run_shard(store: Store, stage: Stage, shard: Shard) -> ShardResult:
    """Encode `shard.inputs` = (corpus object, tokenizer.json) for `params` `sources` (name and
    languages of each), or, with the tokenizer alone as input, the `piece` of a foreign `source`
    (`kind`, `home`, `validation_share`). `params`: `identity` of the token shards, `number` of the
    one in its source. Settings: `block_bytes`, `shard_bytes`.

    Counters: `documents_<split>`, `tokens_<split>`, `bytes` of text; `left_out`, documents that no
    source takes; `broken`, records that could not be read. Facts: `highest_id` (-1 without any
    token), `sources`: documents, tokens and bytes by source, split and language. Raises EyasError
    for an id that is not in the vocabulary, or a file that is damaged.
    """
    tokenizer = Tokenizer(read_object(store, shard.inputs[-1]))
    origin = shard.inputs[0].key if "sources" in shard.params else shard.name
    writer = ShardWriter(
        store,
        shard.params["identity"],
        shard.params["number"],
        origin,
        token_dtype(tokenizer.vocab_size),
        tokenizer.end_of_text,
        stage.settings["block_bytes"],
        stage.settings["shard_bytes"],
    )
    counters: dict[str, float] = {"left_out": 0, "broken": 0}
    if "sources" in shard.params:
        _encode_corpus(store, tokenizer, shard, writer, counters)
    else:
        _encode_piece(tokenizer, shard, writer, counters)
    objects = writer.finish()
    counters |= _sums(writer.tally)
    return ShardResult(objects, counters, {"highest_id": writer.highest, "sources": writer.tally})


def taker(sources: Sequence[Mapping[str, Any]], language: str) -> str:
    """The first source that takes documents of a language; empty if none does."""
    return next(
        (s["name"] for s in sources if not s["languages"] or language in s["languages"]), ""
    )


def held_out(data: bytes, share: float) -> bool:
    """Whether a document of a foreign source is for validation: by the hash of its text in UTF-8,
    or of its ids as little-endian uint32."""
    return xxhash.xxh3_64_intdigest(data) < share * 2.0**64


def _encode_corpus(
    store: Store,
    tokenizer: Tokenizer,
    shard: Shard,
    writer: ShardWriter,
    counters: dict[str, float],
) -> None:
    sources = shard.params["sources"]
    for records in _corpus_records(store, shard.inputs[0]):
        takers = [taker(sources, language) for language in records.languages]
        rows = [row for row, name in enumerate(takers) if name]
        counters["left_out"] += len(takers) - len(rows)
        if rows:
            texts = [records.texts[row] for row in rows]
            tokens, lengths = _encoded(tokenizer, texts)
            writer.add(
                EncodedDocuments(
                    tokens,
                    lengths,
                    [records.names[row] for row in rows],
                    [records.urls[row] for row in rows],
                    [records.languages[row] for row in rows],
                    [len(text.encode()) for text in texts],
                    [takers[row] for row in rows],
                    [records.splits[row] for row in rows],
                )
            )


def _corpus_records(store: Store, reference: ObjectRef) -> Iterator[Records]:
    """The documents of one corpus object, about `_BATCH_BYTES` of text at a time."""
    part = Manifest("corpus", "", objects=(reference,))
    for table in read_documents(store, part, columns=_COLUMNS):
        sizes = pc.binary_length(table.column("text").cast(pa.large_binary())).to_numpy()
        for low, high in _cuts(np.cumsum(sizes)):
            rows = table.slice(low, high - low)
            names, urls, languages, splits, texts = (rows.column(c).to_pylist() for c in _COLUMNS)
            yield Records(
                range(low, high),
                texts,
                names=names,
                urls=urls,
                languages=languages,
                splits=splits,
            )


def _cuts(ends: Integers) -> Iterator[tuple[int, int]]:
    """Runs of rows whose sizes, of which `ends` are the running sums, make up about a batch."""
    low = done = 0
    while low < len(ends):
        high = int(np.searchsorted(ends, done + _BATCH_BYTES, side="left")) + 1
        yield low, min(high, len(ends))
        low, done = high, int(ends[min(high, len(ends)) - 1])


def _encode_piece(
    tokenizer: Tokenizer, shard: Shard, writer: ShardWriter, counters: dict[str, float]
) -> None:
    params = shard.params
    place, piece = Place(params["home"], ""), Piece(**params["piece"])
    skip = _Skipped(f"{place.home}/{piece.key}")
    about = _About(params["source"], place, piece, params["validation_share"])
    for records in read_piece(params["kind"], place, piece, skip):
        if records.ids is None:
            writer.add(_encode_texts(tokenizer, records, about))
        else:
            writer.add(_encode_ids(tokenizer, records.ids, records, about, skip))
    counters["broken"] = skip.count
    skip.say()


@dataclass(frozen=True)
class _About:
    """What all documents of a piece share."""

    source: str
    place: Place
    piece: Piece
    share: float

    def documents(
        self, records: Records, tokens: Array, lengths: Integers, rows: Sequence[int],
        content: Sequence[bytes], sizes: Sequence[int],
    ) -> EncodedDocuments:  # fmt: skip
        """With the names of things; `rows` tells the record of each document, `content` what
        decides its split."""
        url = f"{self.place.home}/{self.piece.key}"
        held_out_ = [held_out(data, self.share) for data in content]
        split = self.piece.params.get("split")
        return EncodedDocuments(
            tokens,
            lengths,
            names=self.names(records, rows),
            urls=[_at(records.urls, row) or f"{url}#{records.rows[row]}" for row in rows],
            languages=[_at(records.languages, row) or UNKNOWN_LANGUAGE for row in rows],
            sizes=sizes,
            sources=[self.source] * len(rows),
            splits=[split or ("validation" if held else "train") for held in held_out_],
        )

    def names(self, records: Records, rows: Sequence[int]) -> list[str]:
        """`<source>:<its own id>`, or `<source>:<file>:<row>`; further documents that were cut from
        one record are `.1`, `.2` and so on."""
        names: list[str] = []
        last, cut = -1, 0
        for row in rows:
            cut = cut + 1 if row == last else 0
            own = _at(records.names, row) or f"{self.piece.key}:{records.rows[row]}"
            names.append(f"{self.source}:{own}" + (f".{cut}" if cut else ""))
            last = row
        return names


def _at(values: Sequence[str], row: int) -> str:
    return values[row] if values else ""


def _encode_texts(tokenizer: Tokenizer, records: Records, about: _About) -> EncodedDocuments:
    tokens, lengths = _encoded(tokenizer, records.texts)
    content = [text.encode() for text in records.texts]
    rows = range(len(content))
    return about.documents(records, tokens, lengths, rows, content, [len(c) for c in content])


def _encode_ids(
    tokenizer: Tokenizer, raw: Array, records: Records, about: _About, skip: _Skipped
) -> EncodedDocuments:
    _check_ids(tokenizer, raw, records, about)
    ids, lengths, of = cut_documents(raw, records.offsets, tokenizer.end_of_text)
    for row in np.setdiff1d(np.arange(len(records.rows)), of).tolist():
        skip(records.rows[row], "it has no token but ends of text")
    tokens, ended = end_documents(
        ids, lengths, tokenizer.end_of_text, token_dtype(tokenizer.vocab_size)
    )
    words, ends = ids.astype("<u4"), np.cumsum(lengths)
    content = [words[end - n : end].tobytes() for n, end in zip(lengths, ends, strict=True)]
    return about.documents(records, tokens, ended, of.tolist(), content, [0] * len(lengths))


def _check_ids(tokenizer: Tokenizer, ids: Array, records: Records, about: _About) -> None:
    """Raises EyasError for an id that the tokenizer does not have."""
    wrong = np.flatnonzero((ids < 0) | (ids >= tokenizer.vocab_size))
    if len(wrong):
        document = int(np.searchsorted(records.offsets, wrong[0], side="right")) - 1
        (name,) = about.names(records, [document])
        raise EyasError(
            f'source "{about.source}": document {name} has id {ids[wrong[0]]}, the '
            f"tokenizer has {tokenizer.vocab_size} items: these ids were made by another one; set "
            "tokenizer.from to a store that has it, or read the text instead"
        )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Array, Integers]:
    """Tokens of texts, end of text after each, and how many of each."""
    ids, offsets = tokenizer.encode_flat(texts)
    return end_documents(
        ids, np.diff(offsets), tokenizer.end_of_text, token_dtype(tokenizer.vocab_size)
    )


class _Skipped:
    """Counts records that cannot be read; the first few are said one by one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._word = "line" if ".jsonl" in posixpath.basename(name).lower() else "row"
        self.count = 0

    def __call__(self, row: int, why: str) -> None:
        self.count += 1
        if self.count <= _SHOWN:
            _log.warning("%s, %s %d is left out: %s", self._name, self._word, row, why)

    def say(self) -> None:
        if self.count > _SHOWN:
            _log.warning("%s: %d records in all are left out", self._name, self.count)


def _sums(tally: Mapping[str, Mapping[str, Mapping[str, Sequence[int]]]]) -> dict[str, float]:
    """Over all sources and languages."""
    counters: dict[str, float] = {"bytes": 0}
    for split in SPLITS:
        counters[f"documents_{split}"] = counters[f"tokens_{split}"] = 0
        for splits in tally.values():
            for documents, tokens, size in splits.get(split, {}).values():
                counters[f"documents_{split}"] += documents
                counters[f"tokens_{split}"] += tokens
                counters["bytes"] += size
    return counters
