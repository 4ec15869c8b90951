"""The tokenizer as the rest of the house uses it: text to ids and back, without loss.

In comes a `tokenizer.json` of Hugging Face `tokenizers`, byte-level BPE; every tool of that family
reads the same file. Two things are ours. User text never gives a special id: `<|endoftext|>` typed
by a person is plain text (special tokens are looked for by default in `tokenizers`, which lets a
document end itself). And decoding goes through the bytes of each item, so that
`decode(encode(x)) == x` for every text and a stream of ids can be decoded byte by byte.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as HuggingFaceTokenizer

from eyas.recipe import EyasError, UsageError
from eyas.store import Manifest, Store, read_manifest, read_object

__all__ = ["END_OF_TEXT", "Tokenizer", "load_tokenizer"]

END_OF_TEXT = "<|endoftext|>"


class Tokenizer:
    """Byte-level BPE. Immutable, safe to share between threads, pickles as its file."""

    def __init__(self, data: bytes) -> None:
        """From the bytes of a `tokenizer.json`. Raises EyasError if they are not one, or if it has
        no `<|endoftext|>`."""
        try:
            self._inner = HuggingFaceTokenizer.from_str(data.decode())
        except Exception as error:
            raise EyasError(f"this is not a tokenizer.json that can be read: {error}") from error
        self._inner.encode_special_tokens = True
        self.json = data
        end = self._inner.token_to_id(END_OF_TEXT)
        if end is None:
            raise EyasError(f"this tokenizer.json has no {END_OF_TEXT}; add it as a special token")
        self.end_of_text: int = end

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.json,)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the file: what token shards and checkpoints name."""
        return hashlib.sha256(self.json).hexdigest()

    @functools.cached_property
    def vocab_size(self) -> int:
        """Number of ids, reserved ones included."""
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, never a special one. Raises UsageError for a lone surrogate, which
        Python strings may hold and Unicode text may not."""
        try:
            ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise _surrogate([text], error) from None
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode` for many texts, on the threads that `RAYON_NUM_THREADS` allows."""
        try:
            found = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError as error:
            raise _surrogate(texts, error) from None
        return [encoding.ids for encoding in found]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; bytes that are no whole character become U+FFFD, a special id its
        name. Raises UsageError for an id outside the vocabulary."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The UTF-8 bytes of `ids`, which may begin or end inside a character."""
        table = self._bytes
        try:
            return b"".join([table[i] for i in ids])
        except KeyError as error:
            raise UsageError(
                f"id {error.args[0]} is not in the vocabulary of {self.vocab_size} items"
            ) from error

    @functools.cached_property
    def _bytes(self) -> dict[int, bytes]:
        """Id to bytes. Items are written in the 256 printable stand-ins of GPT-2; added ones as
        they are."""
        stand_ins = {char: bytes([byte]) for byte, char in enumerate(byte_characters())}
        added = {i: t.content for i, t in self._inner.get_added_tokens_decoder().items()}
        table = {}
        for item, i in self._inner.get_vocab(with_added_tokens=True).items():
            if i in added:
                table[i] = added[i].encode()
            else:
                table[i] = b"".join(stand_ins.get(c) or c.encode() for c in item)
        return table


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table): itself if
    printable Latin-1, else the next free one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    free = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(free)) for b in range(256)]


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


def _surrogate(texts: Sequence[str], error: TypeError) -> Exception:
    """What `tokenizers` meant by a TypeError: the first lone surrogate, if that is what it was."""
    for text in texts:
        for place, character in enumerate(text):
            if 0xD800 <= ord(character) < 0xE000:
                return UsageError(
                    f"the text holds a lone surrogate (U+{ord(character):04X} at character "
                    f"{place}), which is not Unicode text; replace it before encoding"
                )
    return error
