"""The second stage: texts and the first stage's tokenizer in, merges between whole words out.

Texts are encoded by stage one. Two neighbouring items may join if both are whole. An item is not
if letters meet letters or signs meet signs at one of its ends: then it is part of a word. Digits,
line ends, bare space and signs that end a sentence join nothing; a full stop between letters
(`os.path`) ends no sentence. So no multi-word item is learned that begins or ends inside a word.

Names (`entities.py`) become items first, then the commonest pairs (`pairs.py`), each in at least
some number of documents, so that one site's boilerplate cannot fill the vocabulary. The idea of
merging over spaces only between whole words is BoundlessBPE's (arXiv 2504.00178), of a second stage
SuperBPE's (arXiv 2503.13423).

Memory is bounded by `SAMPLE_BYTES` of text: 0.7 GB at the peak for all of it and 262,144 items, the
text itself not counted, 0.5 GB for 40 MB.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .encoder import Encoder
from .entities import EntityKeys, name_merges
from .pairs import Bounds, Flags, Integers, Merge, Sequences, apply_merges, learn_merges
from .pattern import SENTENCE_END

__all__ = ["SAMPLE_BYTES", "Multiword", "MultiwordMerges", "learn_multiword"]

SAMPLE_BYTES = 64 * 2**20
"""Text that the second stage looks at, at most."""

_LETTER, _SIGN = 1, 2  # bits: an item of unknown kind has both


@dataclass(frozen=True)
class Multiword:
    """How multi-word items are learned: keys `multiword_*` and the list of names."""

    share: float = 0.45
    words: int = 4
    documents: int = 3
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class MultiwordMerges:
    """`merges` of item numbers; merge k makes the item after the first stage's, plus k. The first
    `entities` of them belong to names. `counts`: of each other merge, when it was taken."""

    merges: tuple[Merge, ...]
    entities: int
    mined: int
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """What the first stage's items are made of, by id [items]. `text`: None if it is no whole
    UTF-8; `opens`, `closes`: kind of the first and the last character (`_LETTER` …); `sign`: no
    letter in it; `stop`: a lone sign that ends a sentence; `usable`: may be part of a longer item
    at all."""

    text: tuple[str | None, ...]
    opens: npt.NDArray[np.int8]
    closes: npt.NDArray[np.int8]
    sign: Flags
    stop: Flags
    usable: Flags

    @classmethod
    def of(cls, items: Sequence[bytes]) -> Pieces:
        """From the bytes of each item, b"" for a reserved one."""
        texts = tuple(_text(item) for item in items)
        rows = np.array([_kinds(text) for text in texts], np.int8).reshape(-1, 5)
        opens, closes = rows[:, 0].copy(), rows[:, 1].copy()
        return cls(texts, opens, closes, *(rows[:, k].astype(bool) for k in (2, 3, 4)))


def learn_multiword(
    texts: Sequence[str],
    stage_one: dict[str, Any],
    items: Sequence[bytes],
    keys: Multiword,
    most: int,
) -> MultiwordMerges:
    """At most `most` merges over `items` of the tokenizer.json `stage_one`."""
    pieces = Pieces.of(items)
    sequences = _sequences(texts, stage_one, pieces)
    words = (~pieces.sign).astype(np.int64)
    names = EntityKeys(keys.words, keys.documents, keys.names, most)
    entities, mined = name_merges(sequences, pieces.text, names)
    sequences = apply_merges(sequences, entities, len(items))
    for a, b in entities:
        words = np.append(words, words[a] + words[b])
    bounds = Bounds(most - len(entities), max(keys.documents, 2), keys.documents, keys.words)
    merges, counts = learn_merges(sequences, words, bounds)
    return MultiwordMerges((*entities, *merges), len(entities), mined, tuple(counts))


def _sequences(texts: Sequence[str], stage_one: dict[str, Any], pieces: Pieces) -> Sequences:
    data = json.dumps(stage_one, ensure_ascii=False).encode()
    found, offsets = Encoder(data, len(pieces.text)).flat(texts)
    ids = found.astype(np.int64)
    documents = np.repeat(np.arange(len(texts)), np.diff(offsets))
    return Sequences(ids, np.zeros(0, bool), documents).only(_joints(ids, offsets, pieces))


def _joints(ids: Integers, offsets: Integers, pieces: Pieces) -> Flags:
    """Which item may join the next; see the head of this file."""
    joined = np.zeros(len(ids), bool)
    if len(ids) < 2:
        return joined
    a, b = ids[:-1], ids[1:]
    edge = np.zeros(len(ids), bool)
    edge[(offsets[1:] - 1)[np.diff(offsets) > 0]] = True
    inside = ((pieces.closes[a] & pieces.opens[b]) != 0) & ~edge[:-1]
    usable = pieces.usable[ids].copy()
    usable[:-1] &= ~inside
    usable[1:] &= ~inside
    usable |= _between_letters(ids, pieces, edge)
    joined[:-1] = usable[:-1] & usable[1:] & ~edge[:-1]
    return joined


def _between_letters(ids: Integers, pieces: Pieces, edge: Flags) -> Flags:
    """Lone sentence signs with a letter on both sides, in one document."""
    found = pieces.stop[ids]
    before, after = pieces.closes[ids] == _LETTER, pieces.opens[ids] == _LETTER
    found[1:-1] &= before[:-2] & after[2:] & ~edge[:-2] & ~edge[1:-1]
    found[[0, -1]] = False
    return found


def _text(item: bytes) -> str | None:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return None


def _kinds(text: str | None) -> tuple[int, int, bool, bool, bool]:
    """opens, closes, sign, stop, usable. What is no whole UTF-8 may be part of anything."""
    if text is None:
        return _LETTER | _SIGN, _LETTER | _SIGN, False, False, False
    if not text:
        return 0, 0, True, False, False
    kinds = [_kind(c) for c in text]
    ends = any(c in SENTENCE_END for c in text)
    plain = not (text.isspace() or ends or any(c in "\r\n\t" or c.isnumeric() for c in text))
    return kinds[0], kinds[-1], _LETTER not in kinds, ends and len(text) == 1, plain


def _kind(character: str) -> int:
    """Digits count with letters: `x` is no whole word in `x2`."""
    if unicodedata.category(character)[0] in "LMN" or character in "\u200c\u200d":
        return _LETTER
    return 0 if character.isspace() else _SIGN
