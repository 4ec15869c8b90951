"""From the bytes of tokens to text that may be shown: whole characters, nothing of a stop string.

A byte-level token may end inside a character, and a stop string may be spread over several tokens.
`TextStream` holds back exactly what could still become something else: one unfinished character,
and the longest end of the text that is the beginning of a stop string (the faults of other servers:
a fixed-length hold delays text, none at all leaks half a stop string or U+FFFD).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

__all__ = ["TextStream"]


class TextStream:
    """Feed the bytes of tokens with `add`; each call returns text that is final. `stop` is the stop
    string that was reached, after which nothing more may be added. `finish` returns what was held
    back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [s for s in stops if s]
        self._held = ""  # whole characters that may begin a stop string
        self.stop: str | None = None

    def add(self, data: bytes) -> str:
        """Text that is final now; often one token's, sometimes none, sometimes several tokens'."""
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """What is left when no more tokens come: unfinished bytes as U+FFFD."""
        if self.stop is not None:
            return ""
        out = self._release(self._decoder.decode(b"", final=True))
        if self.stop is None:
            out, self._held = out + self._held, ""
        return out

    def _release(self, text: str) -> str:
        self._held += text
        found = [(at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            at, self.stop = min(found, key=lambda pair: pair[0])
            out, self._held = self._held[:at], ""
            return out
        keep = max((_overlap(self._held, s) for s in self._stops), default=0)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper beginning of `stop` that `text` ends with."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
