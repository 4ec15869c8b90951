"""Ids of many documents as flat arrays: ended, cut, gathered. Pure, and nothing a token in Python.

Documents lie one behind the other; `offsets` [documents + 1] are where they begin and the last
ends, `lengths` [documents] count their tokens with the end of text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["cut_documents", "end_documents", "gather"]

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


def gather(flat: Array, starts: Integers, lengths: Integers) -> Array:
    """Pieces of `flat`, `lengths` from `starts`, one behind the other."""
    shift = starts - (np.cumsum(lengths) - lengths)
    return flat[np.arange(int(lengths.sum())) + np.repeat(shift, lengths)]


def end_documents(
    ids: Array, lengths: Integers, end_of_text: int, dtype: np.dtype[Any]
) -> tuple[Array, Integers]:
    """The documents, `lengths` of `ids` each, with an end of text after each; and their lengths
    then."""
    tokens = np.full(len(ids) + len(lengths), end_of_text, dtype)
    inside = np.ones(len(tokens), np.bool_)
    inside[np.cumsum(lengths + 1) - 1] = False
    tokens[inside] = ids
    return tokens, lengths + 1


def cut_documents(
    ids: Array, offsets: Integers, end_of_text: int
) -> tuple[Array, Integers, Integers]:
    """Documents that may hold ends of text: cut there, so that none is inside one. The ids without
    any end of text; the lengths of the pieces that are not empty; the document of each piece."""
    kept = ids != end_of_text
    begins = np.zeros(len(ids), np.bool_)
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    begins[1:] |= ~kept[:-1]
    first = np.flatnonzero(begins & kept)
    at = np.cumsum(kept)[first] - 1
    lengths = np.diff(np.append(at, np.count_nonzero(kept)))
    return ids[kept], lengths, np.searchsorted(offsets, first, side="right") - 1
