"""Names that become items: a list that is shipped or given, and names found in the text.

A name is found by normalised pointwise mutual information over its words (Bouma 2009, extended to
n words): 0 if they stand together as often as chance would have it, 1 if never apart. In scripts
with capitals it is words that begin with one, with small words such as "of" or "bin" between them.
Arabic has none; there it is words that all carry the article, or words of which the first is a
name's particle (عبد, أبو, a title) or the second means "son of" or "daughter of". Of two nested
names the longer is taken, and the shorter only if it stands alone as often again.

Only names whose words are one item each are taken. A name is a chain of merges, so its beginnings
are items too.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np

from eyas.recipe import EyasError

from .pairs import Flags, Integers, Merge, Sequences

__all__ = ["EntityKeys", "name_merges", "read_names"]

LEAST_INFORMATION = 0.5
LEAST_COUNT = 5
MINED_SHARE = 0.1
"""Most of the multi-word items that found names may be."""

_SMALL = frozenset("of de del da di la le du van von der den bin ibn bint al el and the".split())
_PARTICLES = frozenset(
    "عبد عبيد بن ابن بنت أبو أبي أبا أم آل الإمام الشيخ السيد الملك الأمير الرئيس".split()
)
_LINKS = frozenset("بن ابن بنت".split())

Name = tuple[int, ...]


@dataclass(frozen=True)
class EntityKeys:
    """Names of at most `words` words, found ones in `documents` documents; `names` are given;
    `most` multi-word items in all."""

    words: int
    documents: int
    names: tuple[str, ...]
    most: int


def read_names(source: str) -> tuple[str, ...]:
    """ "builtin", "" (none) or the path of a UTF-8 file with a name a line; # begins a comment.

    Raises EyasError for a file that cannot be read, or with the line that is not UTF-8 or holds a
    control character.
    """
    if not source:
        return ()
    if source == "builtin":
        folder = resources.files("eyas") / "presets" / "entities"
        texts = [f.read_text("utf-8") for f in sorted(folder.iterdir(), key=lambda f: f.name)]
    else:
        texts = [_given_list(source)]
    lines = (line.partition("#")[0].split() for text in texts for line in text.splitlines())
    return tuple(dict.fromkeys(" ".join(words) for words in lines if words))


def _given_list(source: str) -> str:
    """The text of a list, every line looked at."""
    legal = 'name a file with one name a line, "builtin", or "" for none'
    try:
        lines = Path(source).read_bytes().splitlines()
    except OSError as error:
        raise EyasError(f"tokenizer.entities: {source} cannot be read: {error}; {legal}") from error
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise EyasError(
                f"tokenizer.entities: line {number} of {source} is not UTF-8 ({error}); {legal}"
            ) from error
        if any(unicodedata.category(c) == "Cc" and c != "\t" for c in found[-1]):
            raise EyasError(
                f"tokenizer.entities: line {number} of {source} holds a control character, so it "
                f"is no name; {legal}"
            )
    return "\n".join(found)


def name_merges(
    sequences: Sequences, texts: Sequence[str | None], keys: EntityKeys
) -> tuple[list[Merge], int]:
    """Chains of merges for the names given and found, and how many were found. The k-th merge makes
    item len(texts) + k."""
    numbers = {text: i for i, text in enumerate(texts) if text}
    given = [
        name
        for name in (tuple(numbers.get(f" {w}", -1) for w in n.split()) for n in keys.names)
        if 1 < len(name) <= keys.words and -1 not in name
    ]
    found = _outer(_found(sequences, _Words.of(texts), keys), given)
    room = int(keys.most * MINED_SHARE)
    chosen = (given + [name for name in found if name not in set(given)])[: max(room, 0)]
    merges = _chains(chosen, len(texts))
    while len(whole := [n for n in chosen if _is_one(n, merges, len(texts))]) < len(chosen):
        chosen = whole
        merges = _chains(chosen, len(texts))
    return list(merges), len(set(chosen) - set(given))


def _is_one(name: Name, merges: Mapping[Merge, int], first: int) -> bool:
    """Whether an encoder makes one item of the name: another name may take words out of it."""
    parts = list(name)
    while len(parts) > 1:
        ranks = [merges.get(pair, len(merges)) for pair in pairwise(parts)]
        rank = min(ranks)
        if rank == len(merges):
            return False
        at = ranks.index(rank)
        parts[at : at + 2] = [first + rank]
    return True


def _chains(names: Sequence[Name], first: int) -> dict[Merge, int]:
    """Merges by rank: of all first two words, then of the third to those, and so on."""
    known: dict[Name, int] = {}
    merges: dict[Merge, int] = {}
    for length in range(2, max((len(n) for n in names), default=1) + 1):
        for name in names:
            head = name[:length]
            if len(name) < length or head in known:
                continue
            known[head] = first + len(merges)
            merges[known.get(head[:-1], head[0]), head[-1]] = len(merges)
    return merges


@dataclass(frozen=True)
class _Words:
    """By item [items]: `capital`, `small` (may stand between such), `arabic`, `definite` (has
    the article), `particle`, `link` (also a particle)."""

    capital: Flags
    small: Flags
    arabic: Flags
    definite: Flags
    particle: Flags
    link: Flags

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> _Words:
        rows = np.array([_kind(text) for text in texts], bool).reshape(-1, 6)
        return cls(*(np.ascontiguousarray(column) for column in rows.T))


def _kind(text: str | None) -> tuple[bool, bool, bool, bool, bool, bool]:
    word = text[1:] if text and text[0] == " " else ""
    if not word or not word[0].isalpha():
        return False, False, False, False, False, False
    arabic = "\u0620" <= word[0] <= "\u06d3"
    if not arabic:
        return word[0].isupper() and len(word) > 1, word in _SMALL, False, False, False, False
    bare = "".join(c for c in word if unicodedata.category(c) not in ("Mn", "Lm"))
    definite = bare.startswith("ال") and len(bare) > 3
    return False, False, True, definite, bare in _PARTICLES, bare in _LINKS


def _found(sequences: Sequences, words: _Words, keys: EntityKeys) -> dict[Name, int]:
    """Names in the text with their counts."""
    ids, total = sequences.ids, max(len(sequences.ids), 2)
    single = np.log(np.maximum(np.bincount(ids, minlength=len(words.capital)), 1) / total)
    found: dict[Name, int] = {}
    for length in range(2, keys.words + 1):
        places = _places(sequences, words, length)
        if not len(places):
            continue
        grams = np.stack([ids[places + k] for k in range(length)], axis=1)
        order = np.lexsort((sequences.documents[places], *grams.T))
        grams, documents = grams[order], sequences.documents[places][order]
        new = np.ones(len(grams), bool)
        new[1:] = (grams[1:] != grams[:-1]).any(axis=1)
        starts = np.flatnonzero(new)
        counts = np.diff(starts, append=len(grams))
        fresh = new.astype(np.int64)
        fresh[1:] |= documents[1:] != documents[:-1]
        together = np.log(counts / total)
        apart = single[grams[starts]].sum(axis=1)
        information = (apart / together - 1) / (length - 1)
        good = (information >= LEAST_INFORMATION) & (counts >= LEAST_COUNT)
        good &= np.add.reduceat(fresh, starts) >= keys.documents
        for row, count in zip(grams[starts[good]].tolist(), counts[good].tolist(), strict=True):
            found[tuple(row)] = count
    return found


def _places(sequences: Sequences, words: _Words, length: int) -> Integers:
    """Where a run of `length` joined items has the form of a name."""
    ids, n = sequences.ids, len(sequences.ids) - length + 1
    if n < 1:
        return np.zeros(0, np.int64)
    at = [ids[k : n + k] for k in range(length)]
    whole = np.ones(n, bool)
    for k in range(length - 1):
        whole &= sequences.joined[k : n + k]
    capital = words.capital[at[0]] & words.capital[at[-1]]
    definite, arabic = words.definite[at[0]], words.arabic[at[0]]
    for ids_k in at[1:]:
        definite = definite & words.definite[ids_k]
        arabic = arabic & words.arabic[ids_k]
    for ids_k in at[1:-1]:
        capital = capital & (words.capital[ids_k] | words.small[ids_k])
    particle = words.particle[at[0]]
    if length > 2:
        particle = particle | words.link[at[1]]
    arabic = arabic & particle & ~words.particle[at[-1]]
    return np.flatnonzero(whole & (capital | definite | arabic))


def _outer(found: dict[Name, int], given: Sequence[Name]) -> list[Name]:
    """Commonest first, without those that mostly stand inside a longer one."""
    longer: dict[Name, int] = {}
    for name, count in [*((n, math.inf) for n in given), *found.items()]:
        for size in range(2, len(name)):
            for start in range(len(name) - size + 1):
                part = name[start : start + size]
                longer[part] = max(longer.get(part, 0), int(min(count, 2**62)))
    return sorted(
        (name for name, count in found.items() if count >= 2 * longer.get(name, 0)),
        key=lambda name: (-found[name], name),
    )
