"""From token ids to text that may be shown: whole characters, and nothing of a stop string.

A byte-level token may end inside a character, and a stop string may be spread over several tokens.
`TextStream` holds back exactly what could still become something else: one unfinished character,
and the longest end of the text that is the beginning of a stop string (the faults of other servers:
a fixed-length hold delays text, none at all leaks half a stop string or U+FFFD).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["TextStream"]

_REPLACEMENT = "\ufffd"
_MOST_PARTS = 4  # bytes of a character, so at most as many tokens


class TextStream:
    """Feed ids with `add`; each call returns text that is final. `stop` is the stop string that was
    reached, after which nothing more may be added. `finish` returns what was held back.

    `decode` must decode a run of ids alone as it does inside a text, as byte-level BPE does.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._decode = decode
        self._stops = [s for s in stops if s]
        self._ids: list[int] = []  # ids since the last whole character
        self._given = 0  # characters of their text that were handed on
        self._held = ""  # whole characters that may begin a stop string
        self.stop: str | None = None

    def add(self, token: int) -> str:
        """Text that is final now; often one token's, sometimes none, sometimes several tokens'."""
        self._ids.append(token)
        text = self._decode(self._ids)
        whole = text[:-1] if text.endswith(_REPLACEMENT) else text
        new, self._given = whole[self._given :], len(whole)
        if whole == text:
            self._ids, self._given = [], 0
        elif len(self._ids) > 2 * _MOST_PARTS:
            # Bytes that never become text must not make the run grow: what is unfinished is in the
            # last few tokens.
            self._ids = self._ids[-_MOST_PARTS:]
            self._given = len(self._decode(self._ids)) - 1
        return self._release(new)

    def finish(self) -> str:
        """What is left when no more tokens come: unfinished bytes as U+FFFD."""
        if self.stop is not None:
            return ""
        text = self._decode(self._ids)[self._given :] if self._ids else ""
        self._ids, self._given = [], 0
        out = self._release(text)
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
