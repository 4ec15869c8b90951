"""The tokenizer as the rest of the house uses it: text to ids and back, without loss.

In comes a `tokenizer.json` of Hugging Face `tokenizers`, byte-level BPE; every tool of that family
reads the same file. Two things are ours. User text never gives a special id: `<|endoftext|>` typed
by a person is plain text (special tokens are looked for by default in `tokenizers`, which lets a
document end itself). And decoding goes through the bytes of each item, so that
`decode(encode(x)) == x` for every text and a stream of ids can be decoded byte by byte.

What decoding needs is read from the file itself; the encoding libraries (`encoder.py`), which take
seconds to load a large vocabulary, only when there is something to encode. All tokenizers of one
process that have the same file share what was loaded.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eyas.recipe import EyasError, UsageError
from eyas.store import Manifest, Store, read_manifest, read_object

from .encoder import Encoder, Flat, Proof, split
from .healing import Items

__all__ = ["END_OF_TEXT", "Tokenizer", "byte_characters", "load_tokenizer"]

END_OF_TEXT = "<|endoftext|>"
_SHARED = 4
_ESCAPED = re.compile(r"[\udc80-\udcff]")


class Tokenizer:
    """Byte-level BPE. Immutable, safe to share between threads, pickles as its file."""

    def __init__(self, data: bytes) -> None:
        """From the bytes of a `tokenizer.json`. Raises EyasError if they are not one, or if it has
        no `<|endoftext|>`."""
        self.json = data
        self._file = _read(data)
        self._encoder = self._file.encoder
        self.end_of_text: int = self._file.end_of_text

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.json,)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the file: what token shards and checkpoints name."""
        return hashlib.sha256(self.json).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of ids, reserved ones included."""
        return len(self._file.items)

    @property
    def items(self) -> Sequence[bytes]:
        """The bytes of every item by id; of a special one, its name."""
        return self._file.items

    @property
    def proof(self) -> Proof:
        """How the texts of `encode_flat` and `encode_batch` were encoded so far in this process."""
        return self._encoder.proof

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, never a special one. Raises UsageError for a lone surrogate, which
        Python strings may hold and Unicode text may not."""
        return self._encoder.one(text)

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """As `encode` for many texts, in bulk: `(ids uint32, offsets int64)`, text i being
        `ids[offsets[i]:offsets[i + 1]]`. On the threads that `RAYON_NUM_THREADS` allows."""
        return self._encoder.flat(texts)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode` for many texts, in bulk."""
        return [ids.tolist() for ids in split(self._encoder.flat(texts))]

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes: what is UTF-8 as `encode` gives them, every other byte as the item
        of that single byte. `decode_bytes` gives the bytes back, but for what a normaliser that
        was asked for changes in the text between them."""
        text = data.decode("utf-8", "surrogateescape")
        ids: list[int] = []
        at = 0
        for match in _ESCAPED.finditer(text):
            ids += self.encode(text[at : match.start()]) if match.start() > at else []
            ids.append(self._file.singles[ord(match.group()) - 0xDC00])
            at = match.end()
        return ids + self.encode(text[at:])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; bytes that are no whole character become U+FFFD, a special id its
        name. Raises UsageError for an id outside the vocabulary."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The UTF-8 bytes of `ids`, which may begin or end inside a character."""
        items, size = self._file.items, len(self._file.items)
        ids = list(ids)
        for i in ids:
            if not 0 <= i < size:
                raise UsageError(f"id {i} is not in the vocabulary of {size} items")
        return b"".join([items[i] for i in ids])

    def heal(self, ids: Sequence[int]) -> tuple[list[int], bytes]:
        """The beginning of a prompt to keep, and the bytes of the rest, to be made anew: see
        `healing.py`."""
        return self._file.index.heal(ids)

    def allowed(self, tail: bytes) -> npt.NDArray[np.int32]:
        """The ids, ascending, of the items that begin with `tail`, or that it begins with."""
        return self._file.index.allowed(tail)


@dataclass(frozen=True)
class _File:
    """What stands in a tokenizer.json, and what is loaded from it once it is needed."""

    items: list[bytes]
    special: frozenset[int]
    end_of_text: int
    encoder: Encoder

    @functools.cached_property
    def singles(self) -> list[int]:
        """The id of the item of each single byte."""
        ids = {item: i for i, item in enumerate(self.items) if i not in self.special}
        missing = [byte for byte in range(256) if bytes([byte]) not in ids]
        if missing:
            raise EyasError(
                f"this tokenizer.json has no item for byte 0x{missing[0]:02X}; it cannot encode "
                "bytes that are no text"
            )
        return [ids[bytes([byte])] for byte in range(256)]

    @functools.cached_property
    def index(self) -> Items:
        """For token healing."""
        return Items(self.items, self.special)


@functools.lru_cache(maxsize=_SHARED)
def _read(data: bytes) -> _File:
    """Parse and check. Byte-level items are written in the 256 printable stand-ins of GPT-2, added
    ones as they are."""
    try:
        raw = json.loads(data)
        vocabulary: dict[str, int] = raw["model"]["vocab"]
        added: dict[int, str] = {t["id"]: t["content"] for t in raw["added_tokens"]}
        special = frozenset(t["id"] for t in raw["added_tokens"] if t["special"])
        size = 1 + max([*vocabulary.values(), *added])
        items = [b""] * size
        for item, i in vocabulary.items():
            items[i] = _bytes(item)
        for i, content in added.items():
            items[i] = content.encode()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise EyasError(f"this is not a tokenizer.json that can be read: {error!r}") from error
    end = next((i for i, content in added.items() if content == END_OF_TEXT), None)
    if end is None:
        end = vocabulary.get(END_OF_TEXT)
    if end is None:
        raise EyasError(f"this tokenizer.json has no {END_OF_TEXT}; add it as a special token")
    return _File(items, special, end, Encoder(data, size))


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table): itself if
    printable Latin-1, else the next free one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    free = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(free)) for b in range(256)]


_STAND_INS: dict[str, Any] = {char: bytes([byte]) for byte, char in enumerate(byte_characters())}
_TO_LATIN = str.maketrans({char: chr(byte) for byte, char in enumerate(byte_characters())})


def _bytes(item: str) -> bytes:
    """The bytes of a byte-level item; a character that stands for none is itself."""
    try:
        return item.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(_STAND_INS.get(c) or c.encode() for c in item)


def load_tokenizer(store: Store, manifest: Manifest | None = None) -> Tokenizer:
    """The tokenizer of `manifest` (room "tokenizer", or a "tokens" manifest, which names the one it
    was encoded with), or the store's current one, verified. Raises EyasError if there is none."""
    manifest = manifest or read_manifest(store, "tokenizer")
    if manifest is None:
        raise EyasError(f"{store.url} holds no tokenizer; make one with `eyas tokenize RECIPE`")
    for reference in (*manifest.objects, *manifest.inputs):
        if reference.key.endswith("-tokenizer.json"):
            return Tokenizer(read_object(store, reference))
    raise EyasError(
        f"{store.url}: version {manifest.version} of room {manifest.room} names no tokenizer.json"
    )
