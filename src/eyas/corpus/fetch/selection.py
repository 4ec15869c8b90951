"""Which pages of which packages make the slice: pure, from the paths and a seed.

A budget of pages is shared equally over packages, then within a package over languages (a folder
such as `ar-MA` or `zh_CN`, or a part of the file name such as `.fr.html`); what a small group
cannot use goes to the larger ones. Within a language, pages come in the order of a hash of the seed
and of the page's name *without* its language, so that the same page of several languages comes
along: small languages stay in, and untranslated copies meet each other.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["choose", "fair_shares", "is_language", "language_of", "page_name"]

_CODES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu "
    "cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi "
    "ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks "
    "ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl "
    "nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl "
    "sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve "
    "vi vo wa wo xh yi yo za zh zu".split()
)
_TAG = re.compile(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?")


def is_language(part: str) -> bool:
    """Whether it is a tag such as `ar`, `pt-br` or `zh_CN`, of an ISO 639-1 language."""
    match = _TAG.fullmatch(part)
    return match is not None and match[1] in _CODES


def language_of(path: str) -> str:
    """The language that a path claims: the last folder that is a language tag, or else the last
    such part of the file name; "" where none does. A hint for sharing, never a label."""
    *folders, name = path.split("/")
    for part in (*reversed(folders), *reversed(name.split(".")[1:])):
        if is_language(part):
            return part.replace("_", "-")
    return ""


def page_name(path: str) -> str:
    """`path` without its language tags: the same for a page and its translations."""
    *folders, name = path.split("/")
    first, *rest = name.split(".")
    kept = [part for part in folders if not is_language(part)]
    return "/".join([*kept, ".".join([first, *(part for part in rest if not is_language(part))])])


def fair_shares(sizes: Sequence[int], budget: int) -> list[int]:
    """As equal shares of `budget` as the sizes allow; they add up to min(budget, all)."""
    shares = [0] * len(sizes)
    ascending = sorted(range(len(sizes)), key=lambda group: sizes[group])
    for position, group in enumerate(ascending):
        shares[group] = min(sizes[group], budget // (len(sizes) - position))
        budget -= shares[group]
    return shares


def choose(packages: Sequence[Iterable[str]], budget: int, seed: int) -> list[frozenset[str]]:
    """The chosen paths of each package, `budget` in all; a budget of 0 takes everything."""
    every = [frozenset(paths) for paths in packages]
    if budget == 0:
        return every
    shares = fair_shares([len(paths) for paths in every], budget)
    slices = zip(every, shares, strict=True)
    return [frozenset(_slice(paths, share, seed)) for paths, share in slices]


def _slice(paths: Iterable[str], budget: int, seed: int) -> Iterator[str]:
    languages: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths, key=lambda path: (language_of(path), path)):
        languages[language_of(path)].append(path)
    shares = fair_shares([len(found) for found in languages.values()], budget)
    for found, share in zip(languages.values(), shares, strict=True):
        yield from sorted(found, key=lambda path: _order(path, seed))[:share]


def _order(path: str, seed: int) -> tuple[bytes, str]:
    name = page_name(path).encode(errors="surrogateescape")
    return hashlib.sha256(b"%d\n%b" % (seed, name)).digest(), path
