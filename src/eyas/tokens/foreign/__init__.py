"""Data that others wrote, as documents: MosaicML MDS, Megatron .bin/.idx, Hugging Face files."""

from __future__ import annotations

from collections.abc import Iterator

from . import hugging_face, mds, megatron
from .records import Piece, Place, Records, Skip, check_unchanged, locate

__all__ = ["KINDS", "Piece", "Place", "Records", "Skip", "foreign_kind", "pieces_of", "read_piece"]

KINDS = {"mds": mds, "megatron": megatron, "hf": hugging_face}


def foreign_kind(url: str) -> str:
    """ "mds", "megatron" or "hf" where a source's `from` begins with that; else empty."""
    kind, colon, _ = url.partition(":")
    return kind if colon and kind in KINDS else ""


def pieces_of(key: str, url: str) -> tuple[Place, list[Piece]]:
    """Where a foreign source lies, and its work in pieces. `key` names the recipe's key in errors.
    Raises UsageError for a place with nothing to read, EyasError naming a file that is broken."""
    kind, _, rest = url.partition(":")
    place = locate(key, rest)
    return place, KINDS[kind].pieces(key, place)


def read_piece(kind: str, place: Place, piece: Piece, skip: Skip) -> Iterator[Records]:
    """The documents of a piece, in order. Raises StoreError if its file changed since it was
    listed, EyasError naming a file that is damaged."""
    check_unchanged(place, piece)
    return KINDS[kind].read(place, piece, skip)
