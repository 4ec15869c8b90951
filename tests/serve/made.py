"""Models to serve: a real one with random weights, and one that says what a test tells it to, when
the test lets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from eyas.model import Model, Piece, initial_weights, network_from
from eyas.shape import ModelShape

torch.set_num_threads(1)

__all__ = ["Bytes", "Script", "random_model"]

SHAPE = ModelShape(
    name="bytes",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=64,
    vocab_size=257,
    max_sequence=128,
)


class Bytes:
    """Id 0 ends a text; 1 + b is byte b."""

    end_of_text = 0
    vocab_size = 257

    def encode(self, text: str) -> list[int]:
        return [1 + b for b in text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        return bytes(i - 1 for i in ids)


def random_model(seed: int = 2) -> Model:
    weights = initial_weights(SHAPE, seed)
    tensors = {name: t * 8 if t.dim() == 2 else t for name, t in weights.items()}
    return Model(SHAPE, network_from(SHAPE, tensors), Bytes())


@dataclass
class Script:
    """Says `text` a character at a time, over and over up to max_tokens. With `gate`, each token
    waits until the gate is released. `started` and `closed` count answers begun and let go;
    `fail` is raised instead of the third token. `prompts` and `healed` say what was asked."""

    text: str = "abc"
    gate: threading.Semaphore | None = None
    fail: Exception | None = None
    shape: ModelShape = SHAPE
    tokenizer: Bytes = field(default_factory=Bytes)
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    healed: list[bool] = field(default_factory=list)
    tokens: int = 0

    def pieces(
        self, prompt: Sequence[int], *, max_tokens: int, heal: bool, **settings: Any
    ) -> Iterator[Piece]:
        self.prompts.append(tuple(prompt))
        self.healed.append(heal)
        return self._pieces(max_tokens)

    def _pieces(self, max_tokens: int) -> Iterator[Piece]:
        self.started.release()
        try:
            for number in range(max_tokens):
                if self.gate is not None:
                    assert self.gate.acquire(timeout=60)
                if self.fail is not None and number == 2:
                    raise self.fail
                self.tokens += 1
                yield Piece(self.text[number % len(self.text)], (1,))
            yield Piece("", finish_reason="length")
        finally:
            self.closed.release()
