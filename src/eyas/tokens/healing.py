"""Token healing and joint encoding: where a prompt ends, a token need not.

A text is encoded as it is most often written. Cut it, and its last token is one that stands there
because the text ends: after "in the" a model has nearly always seen " United" as a part of the item
" in the United", so it hardly ever continues " in the" by " United". The longer the items, the
more it matters. Healing takes the last tokens away and lets the model make them anew, with only
such items allowed as agree with the text that was taken (Lundberg, "The art of prompt design:
prompt boundaries and token healing", 2023).

For the same reason the likelihood of a continuation is asked of the encoding of the whole text, not
of two encodings side by side: `encode_joint`.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Items", "encode_joint"]

MOST = 4
"""tokens that are taken away at most"""


class _Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    @property
    def items(self) -> Sequence[bytes]: ...
    def encode(self, text: str, /) -> list[int]: ...


class Items:
    """The items of a vocabulary in the order of their bytes: 4 bytes an item besides the items."""

    def __init__(self, items: Sequence[bytes], special: Collection[int]) -> None:
        self._items = items
        self._special = special
        ids = [i for i, item in enumerate(items) if item and i not in special]
        self._ids = np.array(sorted(ids, key=items.__getitem__), np.int32)

    def heal(self, ids: Sequence[int]) -> tuple[list[int], bytes]:
        """`(kept, tail)`: `kept` is a beginning of `ids`, `tail` the bytes of the rest, which is
        the longest of up to `MOST` tokens that some item goes on from; often nothing."""
        best = 0
        for n in range(1, min(MOST, len(ids)) + 1):
            if ids[-n] in self._special:
                break
            if self._goes_on(b"".join(self._items[i] for i in ids[-n:])):
                best = n
        kept = list(ids[: len(ids) - best])
        return kept, b"".join(self._items[i] for i in ids[len(kept) :])

    def allowed(self, tail: bytes) -> npt.NDArray[np.int32]:
        """The ids, ascending, of the items that begin with `tail`, or that it begins with."""
        low, high = self._range(tail)
        shorter = (self._exactly(tail[:n]) for n in range(1, len(tail)))
        return np.sort(np.concatenate((self._ids[low:high], *shorter)))

    def _goes_on(self, start: bytes) -> bool:
        """Whether an item begins with `start` and is longer."""
        low, high = self._range(start)
        return high > low and len(self._items[self._ids[high - 1]]) > len(start)

    def _range(self, start: bytes) -> tuple[int, int]:
        """Where the items that begin with `start` stand."""
        low = self._place(start)
        after = start.rstrip(b"\xff")
        if not after:
            return low, len(self._ids)
        return low, self._place(after[:-1] + bytes([after[-1] + 1]))

    def _exactly(self, item: bytes) -> npt.NDArray[np.int32]:
        """The ids whose bytes are just these, mostly one or none."""
        low = self._place(item)
        return self._ids[low : self._place(item + b"\x00")]

    def _place(self, item: bytes) -> int:
        return bisect.bisect_left(self._ids, item, key=self._items.__getitem__)


def encode_joint(tokenizer: _Tokenizer, context: str, continuation: str) -> tuple[list[int], int]:
    """`(ids, first)`: the ids of the whole text and the place of the first that reaches into
    `continuation`; it may begin inside `context`. Without a continuation `first` is `len(ids)`."""
    ids = tokenizer.encode(context + continuation)
    # Not the bytes of `context`: a tokenizer may have been asked to normalise.
    end = sum(len(tokenizer.items[i]) for i in tokenizer.encode(context))
    reached = 0
    for place, i in enumerate(ids):
        reached += len(tokenizer.items[i])
        if reached > end:
            return ids, place
    return ids, len(ids)
