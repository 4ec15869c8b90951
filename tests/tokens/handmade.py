"""Tokenizers made by hand: a test says itself what the items are and where words are cut."""

from __future__ import annotations

import json
from collections.abc import Iterable

from eyas.tokens.pattern import multiword_pattern, word_pattern
from eyas.tokens.tokenizer import byte_characters

__all__ = ["SEAMS", "handmade", "of_words"]

_LOW, _LEAD = range(0x80, 0xC0), range(0xC2, 0xF5)
_PAIRS = [
    *((x, ord("c")) for x in _LOW),
    *((ord("b"), y) for y in (*_LEAD, *_LOW)),
    *((ord("1"), y) for y in _LEAD),
    *((x, ord(y)) for x in _LOW for y in "2 "),
    *((x, y) for x in _LOW for y in _LEAD),
    *((x, y) for x in range(0x7E, 0x20, -1) for y in range(0x20, 0x7F)),
    *((ord(" "), y) for y in (*_LEAD, *_LOW, *range(0x20, 0x7F))),
]
SEAMS = [(bytes([a]), bytes([b])) for a, b in _PAIRS]
"""Merges across seams between characters, a space rather to what is before it: with them ids show
where a text was cut."""


def handmade(
    merges: Iterable[tuple[bytes, bytes]], pattern: str = word_pattern(), normaliser: str = ""
) -> bytes:
    """A tokenizer.json: `<|endoftext|>`, `<|reserved_1|>`, the bytes, then the merges in order."""
    characters = byte_characters()
    special = ["<|endoftext|>", "<|reserved_1|>"]
    vocabulary = {item: i for i, item in enumerate([*special, *characters])}
    written = []
    for pair in merges:
        left, right = ("".join(characters[b] for b in part) for part in pair)
        if left + right not in vocabulary:
            written.append([left, right])
            vocabulary[left + right] = len(vocabulary)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    raw = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": content, "special": True, **plain}
            for i, content in enumerate(special)
        ],
        "normalizer": {"type": normaliser} if normaliser else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split | {"invert": False}, byte_level | {"use_regex": False}],
        },
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": written},
    }
    return json.dumps(raw, ensure_ascii=False).encode()


def of_words(*items: str) -> bytes:
    """Words are merged from left to right, then with the space before them; then words with words,
    from left to right."""
    words = [word for item in items for word in _words(item)]
    merges = [pair for word in words for pair in _chain(_letters(word.lstrip(b" ")))]
    merges += [(b" ", word[1:]) for word in words if word.startswith(b" ")]
    merges += [pair for item in items for pair in _chain(_words(item))]
    return handmade(merges, multiword_pattern())


def _chain(parts: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [(b"".join(parts[:n]), parts[n]) for n in range(1, len(parts))]


def _words(item: str) -> list[bytes]:
    first, *others = item.encode().split(b" ")
    return [*([first] if first else []), *(b" " + word for word in others)]


def _letters(word: bytes) -> list[bytes]:
    return [word[i : i + 1] for i in range(len(word))]
