"""Data that others wrote, as documents: MosaicML MDS, Megatron .bin/.idx, Hugging Face files."""

from __future__ import annotations

from collections.abc import Iterator

from eyas.recipe import UsageError

from . import hugging_face, mds, megatron
from .records import Piece, Place, Records, Skip, check_unchanged, home, locate

__all__ = [
    "KINDS",
    "Piece",
    "Place",
    "Records",
    "Skip",
    "check_place",
    "foreign_kind",
    "pieces_of",
    "read_piece",
    "text_pieces_of",
]

KINDS = {"mds": mds, "megatron": megatron, "hf": hugging_face}


def foreign_kind(url: str) -> str:
    """ "mds", "megatron" or "hf" where a source's `from` begins with that; else empty."""
    kind, colon, _ = url.partition(":")
    return kind if colon and kind in KINDS else ""


def check_place(key: str, url: str) -> None:
    """Raises UsageError if nothing at all lies where a foreign source is said to."""
    place = locate(key, url.partition(":")[2])
    if next(iter(home(place.home).list(place.name)), None) is None:
        raise UsageError(f"{key}: there is nothing at {place.home}/{place.name}")


def pieces_of(key: str, url: str) -> tuple[Place, list[Piece]]:
    """Where a foreign source lies, and its work in pieces. `key` names the recipe's key in errors.
    Raises UsageError for a place with nothing to read, EyasError naming a file that is broken."""
    kind, _, rest = url.partition(":")
    place = locate(key, rest)
    return place, KINDS[kind].pieces(key, place)


def text_pieces_of(key: str, url: str) -> tuple[Place, list[Piece]]:
    """As `pieces_of`, but only pieces that hold text: none where there are ids alone, which are not
    even looked for in a kind of file that never has text."""
    kind, _, rest = url.partition(":")
    if kind == "megatron":
        return locate(key, rest), []
    place, pieces = pieces_of(key, url)
    return place, [p for p in pieces if kind != "mds" or mds.holds_text(p)]


def read_piece(kind: str, place: Place, piece: Piece, skip: Skip) -> Iterator[Records]:
    """The documents of a piece, in order. Raises StoreError if its file changed since it was
    listed, EyasError naming a file that is damaged."""
    check_unchanged(place, piece)
    return KINDS[kind].read(place, piece, skip)
