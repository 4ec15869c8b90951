"""Which held-out text is judged.

In comes the corpus manifest; out come, by language, the documents of its validation split in the
order of their ids until `max_bytes` are reached, the last one cut to fit at a character boundary.
Ids are hashes of where a page was found, so the choice is a fair sample that depends neither on
the number of shards nor on their order. The first pass reads only ids and sizes, the second the
texts chosen: memory is bounded by what is judged, not by the corpus.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eyas.corpus import read_documents
from eyas.recipe import UsageError
from eyas.store import Manifest, Store

__all__ = ["SMALL", "HeldOut", "choose", "group_small", "held_out"]

OTHER = "other"
SMALL = 2048


@dataclass(frozen=True)
class HeldOut:
    """One document as it is judged: `text` may be cut."""

    id: str
    text: str

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""
        return len(self.text.encode())


def held_out(
    store: Store, manifest: Manifest, max_bytes: int, languages: Sequence[str] | None = None
) -> dict[str, list[HeldOut]]:
    """Held-out documents by language, languages and documents in order.

    Raises UsageError if `languages` names one that the split does not have.
    """
    sizes = _sizes(store, manifest, max_bytes)
    if languages is not None:
        missing = sorted(set(languages) - set(sizes))
        if missing:
            raise UsageError(
                f"no held-out document in {', '.join(missing)}; there are "
                f"{', '.join(sorted(sizes)) or 'none at all'}"
            )
        sizes = {language: sizes[language] for language in languages}
    chosen = {language: choose(found, max_bytes) for language, found in sizes.items()}
    return _texts(store, manifest, chosen)


def choose(sizes: Sequence[tuple[str, int]], max_bytes: int) -> dict[str, int]:
    """From (id, bytes) in any order: the bytes to take of each chosen document, by ascending id,
    `max_bytes` in all or everything there is."""
    taken: dict[str, int] = {}
    left = max_bytes
    for name, size in sorted(sizes):
        if left <= 0:
            break
        if size > 0:
            taken[name] = min(size, left)
            left -= taken[name]
    return taken


def group_small(
    documents: Mapping[str, list[HeldOut]], least: int = SMALL
) -> dict[str, list[HeldOut]]:
    """Languages with fewer than `least` bytes together as "other", last: a figure from a sentence
    or two says nothing about a language. One small language alone stays under its own name."""
    small = [n for n, found in documents.items() if sum(d.bytes for d in found) < least]
    if len(small) < 2:
        return {name: documents[name] for name in sorted(documents)}
    grouped = {name: documents[name] for name in sorted(documents) if name not in small}
    grouped[OTHER] = [d for name in sorted(small) for d in documents[name]]
    return grouped


def _sizes(store: Store, manifest: Manifest, max_bytes: int) -> dict[str, list[tuple[str, int]]]:
    """(id, bytes) of the lowest ids of every language, no more than `choose` can want."""
    found: dict[str, list[tuple[str, int]]] = {}
    totals: dict[str, int] = {}
    for language, name, value in _rows(store, manifest, "bytes"):
        kept, size = found.setdefault(language, []), int(value)
        total = totals.get(language, 0)
        if total >= max_bytes and name > kept[-1][0]:
            continue
        bisect.insort(kept, (name, size))
        total += size
        while total - kept[-1][1] >= max_bytes:
            total -= kept.pop()[1]
        totals[language] = total
    return found


def _texts(
    store: Store, manifest: Manifest, chosen: Mapping[str, Mapping[str, int]]
) -> dict[str, list[HeldOut]]:
    found: dict[str, dict[str, HeldOut]] = {language: {} for language in chosen}
    for language, name, text in _rows(store, manifest, "text"):
        size = chosen.get(language, {}).get(name)
        if size is not None:
            cut = text.encode()[:size].decode("utf-8", "ignore")
            found[language][name] = HeldOut(name, cut)
    return {
        language: [found[language][name] for name in sorted(found[language])]
        for language in sorted(found)
        if found[language]
    }


def _rows(store: Store, manifest: Manifest, column: str) -> Iterator[tuple[str, str, str]]:
    names = ["language", "id", column]
    for table in read_documents(store, manifest, split="validation", columns=names):
        columns = [table.column(name).to_pylist() for name in names]
        yield from zip(*columns, strict=True)
