"""Bits per byte: how well a model predicts held-out text, comparable across tokenizers.

The sum of -log2 p over a document's tokens is the size in bits that the model would compress it
to; divided by the UTF-8 bytes of its text it does not depend on how the tokenizer cuts (a per-token
perplexity does). Documents are encoded whole, after one end-of-text token that is not scored, and
scored in windows (`windows.py`). Beside it stands `xz -9e` on the very same bytes: a compressor
knows nothing before it starts, so it is the plain man's bar for "has learnt anything at all".
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from eyas.recipe import EyasError

from .heldout import HeldOut
from .windows import Window, windows

__all__ = ["DocumentScore", "JudgeError", "Judged", "score_documents", "xz_bytes"]

_LOGITS_A_BATCH = 2**24  # float32 values: 64 MiB


class JudgeError(EyasError):
    """The model could not be judged."""


class JudgedShape(Protocol):
    """What is read of a shape."""

    @property
    def max_sequence(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


class JudgedTokenizer(Protocol):
    """What is asked of a tokenizer."""

    @property
    def end_of_text(self) -> int: ...
    def encode(self, text: str, /) -> list[int]: ...


class Judged(Protocol):
    """What is asked of a model; `eyas.model.Model` is one."""

    @property
    def shape(self) -> JudgedShape: ...
    @property
    def tokenizer(self) -> JudgedTokenizer: ...
    def logits(self, ids_BT: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class DocumentScore:
    """`bits` is the sum of -log2 p over `tokens` tokens of a text of `bytes` UTF-8 bytes."""

    id: str
    bytes: int
    tokens: int
    bits: float


@dataclass(frozen=True)
class _Piece:
    """A window of one document: its inputs, its targets, how many targets are not scored."""

    document: int
    inputs: list[int]
    targets: list[int]
    skip: int


def score_documents(
    model: Judged,
    documents: Sequence[HeldOut],
    context: int,
    advance: Callable[[float], None] = lambda n: None,
) -> list[DocumentScore]:
    """Score every document, in order. `advance` is called with bytes done.

    Windows are batched by length and padded at the right, which a causal model does not see.
    Raises JudgeError naming the document where the model answers no number.
    """
    bits = [0.0] * len(documents)
    tokens = [0] * len(documents)
    pieces: list[_Piece] = []
    for number, document in enumerate(documents):
        ids = [model.tokenizer.end_of_text, *model.tokenizer.encode(document.text)]
        tokens[number] = len(ids) - 1
        pieces.extend(_piece(number, ids, w) for w in windows(len(ids) - 1, context))
    share = [d.bytes / max(1, t) for d, t in zip(documents, tokens, strict=True)]
    for batch in _batches(pieces, model.shape.vocab_size):
        for piece, value in zip(batch, _batch_bits(model, batch), strict=True):
            if not math.isfinite(value):
                name = documents[piece.document].id
                raise JudgeError(
                    f"the model gives no finite probability in document {name}: its weights "
                    "are damaged or have diverged; judge an earlier checkpoint"
                )
            bits[piece.document] += value
            advance(share[piece.document] * (len(piece.targets) - piece.skip))
    return [
        DocumentScore(d.id, d.bytes, t, b) for d, t, b in zip(documents, tokens, bits, strict=True)
    ]


def xz_bytes(texts: Sequence[str]) -> int:
    """Size of the texts, one after the other, as `xz -9e` leaves them, container included."""
    data = "".join(texts).encode()
    return len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def _piece(document: int, ids: list[int], w: Window) -> _Piece:
    return _Piece(
        document, ids[w.start : w.stop], ids[w.start + 1 : w.stop + 1], w.first - w.start - 1
    )


def _batches(pieces: Sequence[_Piece], vocab_size: int) -> Iterator[list[_Piece]]:
    """Longest first, so that a batch holds windows of near the same length."""
    batch: list[_Piece] = []
    for piece in sorted(pieces, key=lambda p: -len(p.inputs)):
        length = len(batch[0].inputs) if batch else 0
        if batch and (len(batch) + 1) * length * vocab_size > _LOGITS_A_BATCH:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def _batch_bits(model: Judged, batch: Sequence[_Piece]) -> list[float]:
    """Bits of the scored targets of every window."""
    length = max(len(p.inputs) for p in batch)
    pad = model.tokenizer.end_of_text
    rows = [p.inputs + [pad] * (length - len(p.inputs)) for p in batch]
    with torch.inference_mode():
        logits_BTV = model.logits(torch.tensor(rows, dtype=torch.int64))
        values = []
        for row, piece in enumerate(batch):
            end = len(piece.targets)
            log_p_TV = torch.log_softmax(logits_BTV[row, piece.skip : end].float(), dim=-1)
            targets = torch.tensor(piece.targets[piece.skip :], device=log_p_TV.device)
            picked_T = log_p_TV.gather(1, targets[:, None])
            values.append(-float(picked_T.double().sum()) / math.log(2))
    return values
