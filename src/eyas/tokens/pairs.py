"""Byte-pair encoding over sequences of ids, on counts: numpy, by batches, within bounded memory.

In come items in reading order, which of them may join the next, and the document of each; out come
merges in the order learned. Plain BPE takes the commonest pair, replaces it and counts again: one
pass a merge. Here a round takes all pairs whose count is near the round's highest. Where two of
them overlap the one of lower rank wins, exactly as an encoder would decide; a pair that overlaps
leave with too few places waits for a later round. Counting is one sort of 64-bit words that hold
pair and document, so occurrences and distinct documents come out of the same pass.

What is too rare stays too rare: a place of a longer item is a place of each pair inside it, so the
count of a pair bounds all that may grow over it. Such places are closed for ever and forgotten, and
the arrays shrink from round to round.

Everything is decided by counts and ids: the same items give the same merges, in any order of
documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Bounds", "Merge", "Sequences", "apply_merges", "learn_merges"]

NEAR = 0.7
"""A round takes pairs down to this share of the highest count."""
_PRUNE_EVERY = 8

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Merge = tuple[int, int]


@dataclass(frozen=True)
class Sequences:
    """Items in reading order. `ids` [n]; `joined` [n]: item i may merge with i + 1; `documents`
    [n]: the document of each."""

    ids: Integers
    joined: Flags
    documents: Integers

    def only(self, joined: Flags) -> Sequences:
        """With these joints, and without items that are left with none."""
        alive = joined.copy()
        alive[1:] |= joined[:-1]
        return Sequences(self.ids[alive], joined[alive], self.documents[alive])

    def merged(self, places: Integers, new: Integers) -> Sequences:
        """Items `places` and their successors replaced by `new`."""
        ids, joined = self.ids.copy(), self.joined.copy()
        ids[places] = new
        joined[places] = joined[places + 1]
        keep = np.ones(len(ids), bool)
        keep[places + 1] = False
        return Sequences(ids[keep], joined[keep], self.documents[keep])


@dataclass(frozen=True)
class Bounds:
    """`most` merges; a pair counts with `count` places in `documents` documents or more, and never
    makes an item of more than `words` words."""

    most: int
    count: int
    documents: int
    words: int


@dataclass(frozen=True)
class _Pairs:
    """Pairs by packed key, ascending, and how often they occur."""

    keys: Integers
    counts: Integers


def learn_merges(
    sequences: Sequences, words: Integers, bounds: Bounds
) -> tuple[list[Merge], list[int]]:
    """Merges and their counts. `words` [items]: words in each item known so far; the new item of
    merge k is number len(words) + k."""
    first = len(words)
    words = np.concatenate((words, np.zeros(bounds.most, np.int64)))
    bits = len(words).bit_length()
    merges: list[Merge] = []
    counts: list[int] = []
    turn = 0
    while len(merges) < bounds.most:
        sequences = sequences.only(_within(sequences, words, bounds.words))
        pairs = _count(sequences, bits, bounds)
        if not len(pairs.keys):
            break
        if turn % _PRUNE_EVERY == 0:
            sequences = _prune(sequences, pairs, bits)
        turn += 1
        least = max(bounds.count, math.ceil(NEAR * int(pairs.counts.max())))
        batch = _ranked(pairs, least)
        left = bounds.most - len(merges)
        places, ranks, taken = _take(sequences, batch, bits, least, left)
        numbers = np.cumsum(taken) - 1 + first + len(merges)
        a, b = batch.keys[taken] >> bits, batch.keys[taken] & ((1 << bits) - 1)
        words[first + len(merges) : first + len(merges) + len(a)] = words[a] + words[b]
        merges += zip(a.tolist(), b.tolist(), strict=True)
        counts += batch.counts[taken].tolist()
        sequences = sequences.merged(places, numbers[ranks])
    return merges, counts


def apply_merges(sequences: Sequences, merges: Sequence[Merge], first: int) -> Sequences:
    """As an encoder would: lowest rank first, left before right. Merge k makes item first + k.

    Merges are taken in blocks of which none needs another's item, so that no pair of a block can
    arise while the block is applied.
    """
    bits = (first + len(merges)).bit_length()
    start = 0
    while start < len(merges):
        stop = start
        while stop < len(merges) and max(merges[stop]) < first + start:
            stop += 1
        keys = np.array([(a << bits) | b for a, b in merges[start:stop]], np.int64)
        order = np.argsort(keys)
        places, ranks = _known(sequences, keys[order], order, bits)
        chosen = _greedy(places, ranks)
        sequences = sequences.merged(places[chosen], first + start + ranks[chosen])
        start = stop
    return sequences


def _within(sequences: Sequences, words: Integers, most: int) -> Flags:
    """Joints whose pair is not too long."""
    size = words[sequences.ids]
    fits = np.zeros(len(size), bool)
    fits[:-1] = size[:-1] + size[1:] <= most
    return sequences.joined & fits


def _keys(sequences: Sequences, places: Integers, bits: int) -> Integers:
    return (sequences.ids[places] << bits) | sequences.ids[places + 1]


def _count(sequences: Sequences, bits: int, bounds: Bounds) -> _Pairs:
    """The pairs that are common enough. A document takes what the pair leaves of 64 bits; with more
    documents than that two may pass for one, which can only make a pair seem rarer."""
    places = np.flatnonzero(sequences.joined)
    spare = 64 - 2 * bits
    words = _keys(sequences, places, bits).astype(np.uint64) << np.uint64(spare)
    words |= sequences.documents[places].astype(np.uint64) & np.uint64((1 << spare) - 1)
    words.sort()
    keys = (words >> np.uint64(spare)).astype(np.int64)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not len(starts):
        return _Pairs(keys, keys)
    fresh = np.ones(len(words), np.int64)
    fresh[1:] = words[1:] != words[:-1]
    counts = np.diff(starts, append=len(keys))
    enough = (counts >= bounds.count) & (np.add.reduceat(fresh, starts) >= bounds.documents)
    return _Pairs(keys[starts[enough]], counts[enough])


def _prune(sequences: Sequences, pairs: _Pairs, bits: int) -> Sequences:
    """Without the joints of rare pairs."""
    places = np.flatnonzero(sequences.joined)
    keys = _keys(sequences, places, bits)
    joined = sequences.joined.copy()
    joined[places[~_found(pairs.keys, keys)[1]]] = False
    return sequences.only(joined)


def _ranked(pairs: _Pairs, least: int) -> _Pairs:
    """Those of at least `least` places, commonest first, then by ids."""
    near = pairs.counts >= least
    keys, counts = pairs.keys[near], pairs.counts[near]
    order = np.lexsort((keys, -counts))
    return _Pairs(keys[order], counts[order])


def _take(
    sequences: Sequences, batch: _Pairs, bits: int, least: int, most: int
) -> tuple[Integers, Integers, Flags]:
    """Places and ranks of what is merged in this round, and which pairs of the batch were taken:
    those that keep nearly `least` places where they overlap with others."""
    order = np.argsort(batch.keys)
    places, ranks = _known(sequences, batch.keys[order], order, bits)
    kept = np.bincount(ranks[_greedy(places, ranks)], minlength=len(batch.keys))
    taken = kept >= 0.9 * least
    taken[0] = True
    taken &= np.cumsum(taken) <= most
    still = taken[ranks]
    places, ranks = places[still], ranks[still]
    chosen = _greedy(places, ranks)
    return places[chosen], ranks[chosen], taken


def _known(
    sequences: Sequences, keys: Integers, order: Integers, bits: int
) -> tuple[Integers, Integers]:
    """Places whose pair is among `keys` (ascending), and `order` of the key found."""
    left, right = np.zeros(1 << bits, bool), np.zeros(1 << bits, bool)
    left[keys >> bits] = True
    right[keys & ((1 << bits) - 1)] = True
    ids = sequences.ids
    possible = sequences.joined[:-1] & left[ids[:-1]] & right[ids[1:]]
    places = np.flatnonzero(possible)
    at, hit = _found(keys, _keys(sequences, places, bits))
    return places[hit], order[at[hit]]


def _found(known: Integers, keys: Integers) -> tuple[Integers, Flags]:
    """Where each key stands in `known` (ascending), and whether it is there."""
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return at, known[at] == keys


def _winners(places: Integers, ranks: Integers) -> Flags:
    """Places whose rank is lower than that of every place they overlap; left wins a tie."""
    loses = np.zeros(len(places), bool)
    beside = np.flatnonzero(np.diff(places) == 1)
    left_wins = ranks[beside] <= ranks[beside + 1]
    loses[beside + 1] = left_wins
    loses[beside] |= ~left_wins
    return ~loses


def _greedy(places: Integers, ranks: Integers) -> Flags:
    """The places that are left if the lowest rank is taken first and what overlaps it dropped."""
    chosen = np.zeros(len(places), bool)
    open_ = np.arange(len(places))
    while len(open_):
        wins = _winners(places[open_], ranks[open_])
        chosen[open_[wins]] = True
        beside = np.flatnonzero(np.diff(places[open_]) == 1)
        gone = wins.copy()
        gone[beside + 1] |= wins[beside]
        gone[beside] |= wins[beside + 1]
        open_ = open_[~gone]
    return chosen
