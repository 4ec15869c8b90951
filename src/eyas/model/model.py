"""A model that answers: shape, network and tokenizer together.

In: text or token ids. Out: logits, or text with the reason why it ended. Decoding keeps the keys
and values of the tokens so far (`Cache`), so a token costs one pass over one position. Sampling is
pure in (prompt, settings, seed). Prompt and answer together never pass `shape.max_sequence`:
generation ends there with the reason "length".

The network is only read and every call has its own cache, so one model may be used from several
threads; they share the same cores, so a server gains by taking requests in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eyas.recipe import UsageError
from eyas.shape import ModelShape

from .network import Cache, Network
from .text import TextStream

__all__ = ["Completion", "Model", "Piece", "TextTokenizer", "TokenLogprob"]


class TextTokenizer(Protocol):
    """What a model asks of its tokenizer: lossless byte-level BPE (`eyas.tokens.Tokenizer`)."""

    @property
    def end_of_text(self) -> int: ...
    def encode(self, text: str, /) -> list[int]: ...
    def decode(self, ids: Sequence[int], /) -> str: ...
    def decode_bytes(self, ids: Sequence[int], /) -> bytes: ...
    def heal(self, ids: Sequence[int], /) -> tuple[list[int], bytes]: ...
    def allowed(self, tail: bytes, /) -> npt.NDArray[np.int32]: ...


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log of a token's probability at temperature 1, and the most likely ones beside it."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Piece:
    """A step of generation: text that is final now (may be empty) and the ids behind it. The last
    piece has `finish_reason`: "stop" (end of text, or `stop`, the string that was reached) or
    "length"."""

    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None
    stop: str | None = None


@dataclass(frozen=True)
class Completion:
    """A whole answer. `text` ends before the stop string, `ids` are all tokens that were made,
    without end-of-text and without those that only tell the end of a healed prompt again.
    `finish_reason` and `stop` as in `Piece`; `logprobs` None if not asked."""

    text: str
    ids: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


class Model:
    """`shape`, `network`, `tokenizer`; the tokenizer may be None for a model asked only in ids."""

    def __init__(
        self, shape: ModelShape, network: Network, tokenizer: TextTokenizer | None = None
    ) -> None:
        self.shape = shape
        self.network = network.eval()
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> TextTokenizer:
        """Raises UsageError where the model came without one."""
        if self._tokenizer is None:
            raise UsageError("this model came without a tokenizer; ask it in token ids")
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.embedding.weight.device

    def logits(self, ids_BT: Tensor | Sequence[Sequence[int]]) -> Tensor:
        """Logits B x T x V, float32, for a batch of rows of equal length. Raises UsageError for ids
        outside the vocabulary or rows longer than `max_sequence`."""
        ids = torch.as_tensor(ids_BT, dtype=torch.int64, device=self.device)
        if ids.dim() != 2 or not ids.shape[1]:
            raise UsageError(f"logits want a batch of rows (B x T), not {tuple(ids.shape)}")
        self._check(ids)
        with torch.inference_mode():
            return self.network(ids)

    def generate(
        self,
        text: str,
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        top_p: float = 1.0,
        *,
        heal: bool = False,
    ) -> str:
        """The continuation of `text`, without it. Temperature 0 takes the likeliest token. `heal`:
        see `pieces`."""
        return self.complete(text, max_tokens, temperature, seed, stop, top_p, heal=heal).text

    def stream(
        self,
        text: str | Sequence[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        top_p: float = 1.0,
        *,
        heal: bool = False,
    ) -> Iterator[str]:
        """As `generate`, in pieces as they become final: whole characters, nothing of a stop."""
        for piece in self.pieces(text, max_tokens, temperature, seed, stop, top_p, heal=heal):
            if piece.text:
                yield piece.text

    def complete(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        top_p: float = 1.0,
        logprobs: int | None = None,
        *,
        heal: bool = False,
    ) -> Completion:
        """The whole answer. `logprobs` n: each token's, with the n likeliest beside it. `heal`: see
        `pieces`."""
        ids = self._prompt(prompt)
        settings = (max_tokens, temperature, seed, stop, top_p, logprobs)
        made = list(self.pieces(ids, *settings, heal=heal))
        last = made[-1]
        assert last.finish_reason is not None
        return Completion(
            text="".join(piece.text for piece in made),
            ids=tuple(token for piece in made for token in piece.ids),
            finish_reason=last.finish_reason,
            prompt_tokens=len(ids),
            stop=last.stop,
            logprobs=None if logprobs is None else tuple(p for m in made for p in m.logprobs),
        )

    def pieces(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        top_p: float = 1.0,
        logprobs: int | None = None,
        *,
        heal: bool = False,
    ) -> Iterator[Piece]:
        """Generation a token at a time; the last piece, and only it, has a `finish_reason`.

        An empty prompt begins a new document. `heal`: the last tokens of the prompt may be made
        anew, so that the answer does not depend on where the tokenizer cut; what they tell again is
        in no piece and does not count. Raises UsageError, before anything is made, for a prompt
        longer than `max_sequence`, ids outside the vocabulary, or settings out of range.
        """
        ids, tail = self._prompt(prompt), b""
        _check_settings(max_tokens, temperature, top_p, logprobs)
        self._check(torch.tensor([ids], dtype=torch.int64))
        if heal:
            ids, tail = self.tokenizer.heal(ids)
        stops = [stop] if isinstance(stop, str) else stop
        return self._pieces(ids, tail, max_tokens, temperature, seed, stops, top_p, logprobs)

    def _pieces(
        self,
        ids: list[int],
        tail: bytes,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop: Sequence[str],
        top_p: float,
        logprobs: int | None,
    ) -> Iterator[Piece]:
        tokenizer = self.tokenizer
        fed = ids or [tokenizer.end_of_text]
        room = self.shape.max_sequence - len(fed)
        cache = Cache(len(fed) + max(0, min(max_tokens + len(tail), room)))
        text = TextStream(stop)
        generator = torch.Generator().manual_seed(seed)
        while max_tokens > 0 and room > 0:
            logits_V = self._next(fed, cache)
            if tail:
                logits_V = _only(logits_V, tokenizer.allowed(tail))
            token = _choose(logits_V, temperature, top_p, generator)
            if token == tokenizer.end_of_text:
                yield Piece(text.finish(), finish_reason="stop", stop=text.stop)
                return
            fed, room = [token], room - 1
            data = tokenizer.decode_bytes(fed)
            new, tail = data[len(tail) :], tail[len(data) :]
            if data and not new:
                continue
            max_tokens -= 1
            found = () if logprobs is None else (_logprob(logits_V, token, logprobs),)
            piece = text.add(new)
            if text.stop is not None:
                yield Piece(piece, (token,), found, "stop", text.stop)
                return
            yield Piece(piece, (token,), found)
        rest = text.finish()
        yield Piece(rest, finish_reason="length" if text.stop is None else "stop", stop=text.stop)

    def _next(self, ids: list[int], cache: Cache) -> Tensor:
        """Logits V, float32 on the CPU, after `ids`; only the last position is projected."""
        with torch.inference_mode():
            ids_BT = torch.tensor([ids], device=self.device)
            x_BTD = self.network.features(ids_BT, cache)
            return (x_BTD[0, -1] @ self.network.head_weight_VD.T).float().cpu()

    def _prompt(self, prompt: str | Sequence[int]) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _check(self, ids: Tensor) -> None:
        if ids.shape[1] > self.shape.max_sequence:
            raise UsageError(
                f"{ids.shape[1]} tokens are more than the {self.shape.max_sequence} that this "
                "model can read at once; shorten the text"
            )
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.shape.vocab_size):
            raise UsageError(
                f"token ids {int(ids.min())}..{int(ids.max())} are not all in the vocabulary, "
                f"0..{self.shape.vocab_size - 1}"
            )


def _check_settings(
    max_tokens: int, temperature: float, top_p: float, logprobs: int | None
) -> None:
    if max_tokens < 0:
        raise UsageError(f"max_tokens is {max_tokens}; at least 0")
    if not 0 <= temperature < float("inf"):
        raise UsageError(f"temperature is {temperature}; at least 0, where 0 takes the likeliest")
    if not 0 < top_p <= 1:
        raise UsageError(f"top_p is {top_p}; more than 0, at most 1")
    if logprobs is not None and logprobs < 0:
        raise UsageError(f"logprobs is {logprobs}; at least 0")


def _choose(logits_V: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> int:
    """The likeliest token, or one drawn from the smallest set of likeliest ones whose probability
    reaches `top_p` (Holtzman et al. 2020, nucleus sampling)."""
    if temperature == 0:
        return int(logits_V.argmax())
    logits_V = logits_V.double() - logits_V.max()
    p_V = torch.softmax(logits_V / temperature, dim=0)
    if top_p < 1:
        sorted_V, order_V = p_V.sort(descending=True, stable=True)
        before_V = sorted_V.cumsum(0) - sorted_V
        p_V = torch.zeros_like(p_V).scatter(0, order_V, sorted_V.where(before_V < top_p, 0.0))
    return int(torch.multinomial(p_V, 1, generator=generator))


def _only(logits_V: Tensor, allowed: npt.NDArray[np.int32]) -> Tensor:
    """The logits, those of other tokens than `allowed` at minus infinity."""
    kept_V = torch.full_like(logits_V, -torch.inf)
    index = torch.from_numpy(allowed.astype(np.int64))
    kept_V[index] = logits_V[index]
    return kept_V


def _logprob(logits_V: Tensor, token: int, top: int) -> TokenLogprob:
    log_p_V = torch.log_softmax(logits_V, dim=0)
    best = log_p_V.topk(min(top, len(log_p_V)))
    pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprob(token, float(log_p_V[token]), pairs)
