"""One split of one source of a plan, opened: its objects, and where its samples lie.

Everything here is arithmetic on the manifest's object sizes, kept a few at a time; tokens are read
by `blocks`, documents by `documents`.
"""

from __future__ import annotations

import numpy as np

from .blocks import BlockReader
from .grid import Grid
from .order import FixedOrder, Order, ShuffledOrder
from .plan_sources import SourceTokens
from .token_objects import block_tokens, token_objects
from .trace import DocumentTable

__all__ = ["OpenSource"]


class OpenSource:
    """`first_document` is the number of its first document. Safe for several threads."""

    def __init__(self, name: str, tokens: SourceTokens, split: str, first_document: int) -> None:
        self.name = name
        facts = tokens.manifest.facts
        self.objects = token_objects(tokens.manifest, tokens.part, split)
        self.block_tokens = block_tokens(facts["dtype"], facts["block_bytes"])
        self.highest_id = int(facts["highest_id"])
        self.end_of_text = int(facts["end_of_text"])
        numbers = np.cumsum([first_document, *(o.documents.rows for o in self.objects)])
        self.stop_document = int(numbers[-1])
        self.blocks = BlockReader(tokens.store, self.objects, facts, numbers[:-1])
        self.documents = DocumentTable(tokens.store, self.objects)
        self._grids: dict[int, Grid] = {}
        self._orders: dict[tuple[int, int], Order] = {}

    def grid(self, sequence: int) -> Grid:
        """How its tokens are cut into samples."""
        if sequence not in self._grids:
            sizes = [o.tokens.rows for o in self.objects]
            self._grids[sequence] = Grid.cut(sizes, self.block_tokens, sequence)
        return self._grids[sequence]

    def shuffled(self, sequence: int, seed: int, window: int) -> Order:
        """The order of training."""
        if (sequence, seed) not in self._orders:
            self._orders[sequence, seed] = ShuffledOrder(self.grid(sequence), seed, window)
        return self._orders[sequence, seed]

    def fixed(self, sequence: int) -> Order:
        """As its samples lie."""
        return FixedOrder(self.grid(sequence))
