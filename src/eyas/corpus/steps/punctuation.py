"""Which characters end a sentence, and which alone do not make a word.

Both sets are those that the published thresholds were measured with (datatrove 0.10). Sentences end
at Unicode's Sentence_Terminal characters, as the published limits of the rules list them. What is
not a word is made of these, the ASCII signs, control characters and a list of signs that web texts
show often. That list is uneven (a full-width 1 is in it, a bullet and the Arabic comma are not),
but another one would count other words than the thresholds mean.
"""

from __future__ import annotations

import string
import tomllib
from importlib import resources

__all__ = ["SIGNS", "TERMINALS"]


def _published_terminals() -> frozenset[str]:
    file = resources.files("eyas") / "presets" / "corpus" / "published.toml"
    return frozenset(tomllib.loads(file.read_text(encoding="utf-8"))["punctuation"]["terminal"])


TERMINALS = _published_terminals()

SIGNS = (
    TERMINALS
    | frozenset(string.punctuation)
    | frozenset("«´»–—’“”„…∶━►、。〈〉《》「」【】！％（），．１：；？～")
    | frozenset(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
)
