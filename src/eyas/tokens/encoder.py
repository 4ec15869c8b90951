"""Text to ids by the fastest library that gives the reference's ids, proved while it works.

The reference is `tokenizers`, whose file a `tokenizer.json` is. `fastokens` reads the same file and
encodes some 20 times as fast, into flat buffers without a Python object a token; but another
regular-expression engine cuts the words there, and another implementation merges them. So it is
never believed: the first texts that it encodes, and then a seeded one in `ONE_IN`, are encoded by
the reference too. A difference is an error in the log, the reference's ids are what is returned,
and the fast library is not used again in this process. What it cannot do (a normaliser that it
lacks, a run of words on which its regex engine gives up) the reference does.

Both are loaded when first needed. Loading a large vocabulary takes `fastokens` four times as long,
which is worth it only for bulk: texts of at least `BULK` bytes an item of the vocabulary, in all.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import EyasError, UsageError

__all__ = ["Encoder", "Flat", "Proof"]

FIRST = 32
ONE_IN = 256
BULK = 16
_SHOWN = 60
_log = logging.getLogger("eyas.tokens")

Flat = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
"""All ids one after another, and where texts lie: text i is `ids[offsets[i]:offsets[i + 1]]`."""


@dataclass(frozen=True)
class Proof:
    """How texts were encoded so far: by the `fast` library (else by the reference), how many texts
    and UTF-8 bytes of them, how many of the texts the reference encoded too (`compared`), and how
    many it did not agree on."""

    fast: bool = False
    texts: int = 0
    bytes: int = 0
    compared: int = 0
    differences: int = 0


class Encoder:
    """Encodes with one `tokenizer.json`, special items never being looked for in texts. Safe to
    share between threads."""

    _distrusted = False  # in this process, for every tokenizer

    def __init__(self, data: bytes, vocab_size: int) -> None:
        self._data = data
        self._bulk = BULK * vocab_size
        self._lock = threading.RLock()
        self._loaded_reference: Any = None
        self._loaded_fast: Any = None
        self._unable = False
        self._asked = 0
        self._draw = random.Random(vocab_size)  # noqa: S311 a sample, no secret
        self._proof = Proof()

    @property
    def proof(self) -> Proof:
        """What is known of the texts encoded by `flat`."""
        return self._proof

    def reference(self) -> Any:
        """The `tokenizers` object. Raises EyasError for a file that it cannot read."""
        with self._lock:
            if self._loaded_reference is None:
                from tokenizers import Tokenizer

                try:
                    inner = Tokenizer.from_str(self._data.decode())
                except Exception as error:
                    raise EyasError(
                        f"tokenizers cannot read this tokenizer.json: {error}"
                    ) from error
                inner.encode_special_tokens = True
                self._loaded_reference = inner
            return self._loaded_reference

    def one(self, text: str) -> list[int]:
        """The ids of one text, by the reference, which is ready sooner."""
        try:
            ids: list[int] = self.reference().encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise _surrogate([text], error) from None
        return ids

    def flat(self, texts: Sequence[str]) -> Flat:
        """The ids of many texts. Raises UsageError for a lone surrogate."""
        try:
            size = sum(len(text.encode()) for text in texts)
        except UnicodeEncodeError as error:
            raise _surrogate(texts, error) from None
        with self._lock:
            self._asked += size
        fast = self._fast()
        if fast is None:
            found = self._by_reference(texts)
            self._count(fast=False, texts=len(texts), size=size)
            return found
        found = self._by_fast(fast, texts)
        compared = self._chosen(len(texts))
        wrong = [i for i in compared if not np.array_equal(_part(found, i), self.one(texts[i]))]
        if wrong:
            self._distrust([texts[i] for i in wrong])
            found = self._by_reference(texts)
        self._count(not wrong, len(texts), size, len(compared), len(wrong))
        return found

    def _by_reference(self, texts: Sequence[str]) -> Flat:
        found = self.reference().encode_batch_fast(list(texts), add_special_tokens=False)
        return joined([np.array(encoding.ids, np.uint32) for encoding in found])

    def _by_fast(self, fast: Any, texts: Sequence[str]) -> Flat:
        try:
            ids, offsets = fast.encode_batch_flat(list(texts), split_special_tokens=True)
        except ValueError:  # one text at least is beyond its regex engine
            return joined([self._one_by_fast(fast, text) for text in texts])
        return np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64)

    def _one_by_fast(self, fast: Any, text: str) -> npt.NDArray[np.uint32]:
        try:
            ids, _ = fast.encode_batch_flat([text], split_special_tokens=True)
        except ValueError:
            return np.array(self.one(text), np.uint32)
        return np.frombuffer(ids, "<u4")

    def _fast(self) -> Any:
        """The fast library's object, or None where it cannot, may not or need not be used."""
        with self._lock:
            if Encoder._distrusted or self._unable or self._asked < self._bulk:
                return None
            if self._loaded_fast is None:
                from fastokens import Tokenizer

                try:
                    self._loaded_fast = Tokenizer.from_json_str(self._data.decode())
                except ValueError as error:
                    self._unable = True
                    _log.warning(
                        "encoding slowly, by tokenizers: fastokens cannot read this file: %s", error
                    )
            return self._loaded_fast

    def _chosen(self, count: int) -> list[int]:
        """Which of the next `count` texts the reference encodes too."""
        with self._lock:
            first = max(0, min(count, FIRST - self._proof.compared))
            rest = [i for i in range(first, count) if self._draw.randrange(ONE_IN) == 0]
        return [*range(first), *rest]

    def _distrust(self, texts: Sequence[str]) -> None:
        with self._lock:
            Encoder._distrusted = True
            self._loaded_fast = None
        for text in texts:
            _log.error(
                "fastokens and tokenizers differ on the text that begins %r: the ids of tokenizers "
                "are used, here and for the rest of this process; report it with the text",
                text[:_SHOWN],
            )

    def _count(
        self, fast: bool, texts: int, size: int, compared: int = 0, differences: int = 0
    ) -> None:
        with self._lock:
            p = self._proof
            self._proof = Proof(
                fast,
                p.texts + texts,
                p.bytes + size,
                p.compared + compared,
                p.differences + differences,
            )


def joined(parts: Sequence[npt.NDArray[np.uint32]]) -> Flat:
    """Texts encoded one by one, as one."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    ids = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    return ids, offsets


def split(flat: Flat) -> Iterator[npt.NDArray[np.uint32]]:
    """The ids of each text."""
    for i in range(len(flat[1]) - 1):
        yield _part(flat, i)


def _part(flat: Flat, i: int) -> npt.NDArray[np.uint32]:
    ids, offsets = flat
    return ids[offsets[i] : offsets[i + 1]]


def _surrogate(texts: Sequence[str], error: Exception) -> Exception:
    """What a library meant by its error: the first lone surrogate, if that is what it was."""
    for text in texts:
        for place, character in enumerate(text):
            if 0xD800 <= ord(character) < 0xE000:
                return UsageError(
                    f"the text holds a lone surrogate (U+{ord(character):04X} at character "
                    f"{place}), which is not Unicode text; replace it before encoding"
                )
    return error
