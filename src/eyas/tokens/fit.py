"""Texts in, the bytes of a `tokenizer.json` out: byte-level BPE by Hugging Face `tokenizers`.

The text is cut into words (`pattern.py`) and merges are learned inside words. Nothing is normalised
unless asked, so nothing is lost: tatweel, diacritics, presentation forms and control characters are
bytes like any others. The trainer orders merges by count and then by ids, so the same bag of texts
gives the same file, byte for byte, in any order and with any number of threads.

With multi-word items a second stage (`multiword.py`) learns merges between whole words over the
ids of the first, for at most its share of the vocabulary; the first has the rest, and what the
second cannot fill. BPE is greedy, so a first stage trained to the full size once serves for every
share: its first merges are what a smaller one would be.

Ids: 0 is `<|endoftext|>`, 1 to reserved-1 are `<|reserved_i|>` (for later stages to name), then the
256 bytes, then merges in the order learned.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import xxhash
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from eyas.recipe import EyasError

from .multiword import SAMPLE_BYTES, Multiword, MultiwordMerges, learn_multiword
from .pattern import multiword_pattern, stage_one_pattern, word_pattern
from .tokenizer import END_OF_TEXT, byte_characters

__all__ = ["PATTERN", "Multiword", "Trained", "train"]

PATTERN = word_pattern()
"""How text is cut by default: words, digits by three."""

File = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """The file, and of a multi-word one how many items are names (given and found) and how many of
    those were found in the text."""

    json: bytes
    multiword_items: int = 0
    entity_items: int = 0
    entities_found: int = 0


def train(
    texts: Iterable[str],
    vocab_size: int,
    reserved: int,
    digits: str = "triples",
    normalisation: str = "",
    multiword: Multiword | None = None,
) -> Trained:
    """Train on `texts`. `digits` "triples", "single" or "free"; `normalisation` "", "NFC", "NFKC".

    Raises EyasError if the texts have too few repeated pairs to reach `vocab_size`.
    """
    sample = _Sample(SAMPLE_BYTES if multiword else 0)
    pattern = stage_one_pattern(digits) if multiword else word_pattern(digits)
    inner = _tokenizer(pattern, normalisation)
    inner.train_from_iterator(sample.through(texts), _trainer(vocab_size, reserved))
    reached = inner.get_vocab_size(with_added_tokens=True)
    if multiword is None:
        _check(reached, vocab_size)
        return Trained(inner.to_str().encode())
    file = json.loads(inner.to_str())
    del inner
    most = min(int(multiword.share * vocab_size), vocab_size - reserved - 256)
    kept = min(vocab_size - most, reached)
    first = _shortened(file, kept, reserved)
    learned = learn_multiword(sample.texts(), first, _bytes(first, reserved), multiword, most)
    _check(_reachable(reached, len(learned.merges), most, multiword.share), vocab_size)
    size = vocab_size - len(learned.merges)
    whole = _extended(_shortened(file, size, reserved), learned, kept)
    whole["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = multiword_pattern(digits)
    return Trained(
        json.dumps(whole, ensure_ascii=False, indent=1).encode(),
        len(learned.merges),
        learned.entities,
        learned.mined,
    )


class _Sample:
    """What the second stage will look at: texts by ascending hash as long as they fit into a bound
    of bytes, whatever order they come in. Once one was dropped, none after it can be in."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._limit = 1 << 64
        self._heap: list[tuple[int, str]] = []

    def through(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts, some kept."""
        for text in texts:
            if self._most:
                self._keep(text)
            yield text

    def texts(self) -> list[str]:
        """Those kept, by hash."""
        return [text for _, text in sorted(self._heap, reverse=True)]

    def _keep(self, text: str) -> None:
        data = text.encode()
        key = xxhash.xxh3_64_intdigest(data)
        if key >= self._limit:
            return
        heapq.heappush(self._heap, (-key, text))
        self._held += len(data)
        while self._held > self._most and len(self._heap) > 1:
            dropped, gone = heapq.heappop(self._heap)
            self._limit = -dropped
            self._held -= len(gone.encode())


def _tokenizer(pattern: str, normalisation: str) -> HuggingFaceTokenizer:
    inner = HuggingFaceTokenizer(models.BPE())
    if normalisation:
        inner.normalizer = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}[normalisation]()
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    return inner


def _trainer(vocab_size: int, reserved: int) -> trainers.BpeTrainer:
    names = [END_OF_TEXT, *(f"<|reserved_{i}|>" for i in range(1, reserved))]
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in names],
        initial_alphabet=byte_characters(),
    )


def _check(reached: int, vocab_size: int) -> None:
    if reached < vocab_size:
        raise EyasError(
            f"the sample gives {reached} items, tokenizer.vocab_size asks for {vocab_size}: set it "
            f"to about {reached} or less, or train on more text (tokenizer.sample_bytes, "
            "corpus.sources)"
        )


def _reachable(reached: int, learned: int, most: int, share: float) -> int:
    """The largest vocabulary that the stages can fill: of a smaller one the second has its share
    only, so one that took all of the `most` it was allowed does not make up for the first."""
    return (
        reached + learned if learned < most else min(reached + learned, int(reached / (1 - share)))
    )


def _shortened(file: File, size: int, reserved: int) -> File:
    """The file of a smaller training: the first `size` items and the merges that make them."""
    vocab = {item: i for item, i in file["model"]["vocab"].items() if i < size}
    merges = file["model"]["merges"][: size - reserved - 256]
    return file | {"model": file["model"] | {"vocab": vocab, "merges": merges}}


def _extended(file: File, learned: MultiwordMerges, kept: int) -> File:
    """With the second stage's merges. They were learned over the first `kept` items and name their
    own after those; here they stand after all items of `file`."""
    vocab = dict(file["model"]["vocab"])
    items = [item for item, i in sorted(vocab.items(), key=lambda entry: entry[1]) if i < kept]
    merges = list(file["model"]["merges"])
    for a, b in learned.merges:
        items.append(items[a] + items[b])
        vocab[items[-1]] = len(vocab)
        merges.append([items[a], items[b]])
    return file | {"model": file["model"] | {"vocab": vocab, "merges": merges}}


def _bytes(file: File, reserved: int) -> list[bytes]:
    """The bytes of each item, none for reserved ones."""
    stand_ins = {character: byte for byte, character in enumerate(byte_characters())}
    items = sorted(file["model"]["vocab"].items(), key=lambda entry: entry[1])
    return [b"" if i < reserved else bytes(stand_ins[c] for c in item) for item, i in items]
