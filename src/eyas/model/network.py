"""The network: one readable decoder-only transformer for every shape that `ModelShape` describes.

In: token ids. Out: float32 logits. It knows nothing of parallelism, devices or training: heads are
counted from the width of the projections, so that a tensor-parallel slice of the weights runs in
the same code, and `train` puts its collectives around the modules from outside.

Attention and MLP read the same residual and add to it together (Wang & Komatsuzaki 2021, GPT-J;
Almazrouei et al. 2023, Falcon), or one after the other (Radford et al. 2019, GPT-2; Touvron et al.
2023, Llama). Positions are rotary in the half-split form of GPT-NeoX (Su et al. 2021), ALiBi (Press
et al. 2022) or learned. Several query heads may share a key and value head (Shazeer 2019; Ainslie
et al. 2023).

Shape suffixes: B batch, T time (new tokens), S time so far (cached and new), D d_model, H query
heads, K kv heads, C head dim, F feed-forward, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyas.shape import ModelShape

from .accumulate import Embedding, Linear

__all__ = ["Cache", "Network", "network_from"]


class Cache:
    """Keys and values of the tokens so far, for decoding: per layer B x K x S x C, allocated once
    for `capacity` tokens. `length` tokens are filled. Not for training."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def append(self, layer: int, key_BKTC: Tensor, value_BKTC: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new tokens of one layer after the `length` known ones; all S so far come back.
        The network moves `length` on once every layer has done so."""
        B, K, T, C = key_BKTC.shape
        if layer not in self._layers:
            size = (B, K, self.capacity, C)
            self._layers[layer] = key_BKTC.new_empty(size), value_BKTC.new_empty(size)
        end = self.length + T
        keys, values = self._layers[layer]
        keys[:, :, self.length : end] = key_BKTC
        values[:, :, self.length : end] = value_BKTC
        return keys[:, :, :end], values[:, :, :end]


class Attention(nn.Module):
    """Causal attention over the heads that the projections hold: those of the shape, or in a
    tensor-parallel slice fewer, of which `first_head` is the first one's number in the model."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.first_head = 0
        queries, keys = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
        self.query = Linear(shape.d_model, queries, bias=shape.bias)
        self.key = Linear(shape.d_model, keys, bias=shape.bias)
        self.value = Linear(shape.d_model, keys, bias=shape.bias)
        self.out = Linear(queries, shape.d_model, bias=shape.bias)

    @property
    def query_heads(self) -> range:
        """Numbers, in the model, of the query heads here."""
        own = self.query.weight.shape[0] // self.head_dim
        return range(self.first_head, self.first_head + own)

    def forward(
        self,
        x_BTD: Tensor,
        rotary: Rotary | None,
        mask: Tensor | None,
        cache: Cache | None,
        layer: int,
    ) -> Tensor:
        q_BHTC = self._heads(self.query(x_BTD))
        k_BKSC = self._heads(self.key(x_BTD))
        v_BKSC = self._heads(self.value(x_BTD))
        if rotary is not None:
            q_BHTC, k_BKSC = _rotate(q_BHTC, rotary), _rotate(k_BKSC, rotary)
        if cache is not None:
            k_BKSC, v_BKSC = cache.append(layer, k_BKSC, v_BKSC)
        y_BHTC = F.scaled_dot_product_attention(
            q_BHTC,
            k_BKSC,
            v_BKSC,
            attn_mask=mask,
            is_causal=mask is None and q_BHTC.shape[2] > 1,
            enable_gqa=k_BKSC.shape[1] != q_BHTC.shape[1],
        )
        return self.out(y_BHTC.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        """B x T x (heads x C) to B x heads x T x C, however many heads this slice has."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class MLP(nn.Module):
    """Two matrices around GELU, exact (erf) or in its tanh form; or SwiGLU, where a third matrix
    gates the width (Shazeer 2020)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.activation = shape.activation
        if shape.activation == "swiglu":
            self.gate = Linear(shape.d_model, shape.d_ff, bias=shape.bias)
        self.up = Linear(shape.d_model, shape.d_ff, bias=shape.bias)
        self.down = Linear(shape.d_ff, shape.d_model, bias=shape.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTF = self.up(x_BTD)
        if self.activation == "swiglu":
            x_BTF = F.silu(self.gate(x_BTD)) * x_BTF
        else:
            x_BTF = F.gelu(x_BTF, approximate="tanh" if self.activation == "gelu_tanh" else "none")
        return self.down(x_BTF)


class RMSNorm(nn.Module):
    """x / rms(x) * weight (Zhang & Sennrich 2019), rounded as Llama does: the quotient in float32
    or wider, brought back to the arithmetic of x, then times the weight. (`torch.nn.RMSNorm`
    multiplies before it rounds: other bits in bfloat16.)"""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(d_model))

    def forward(self, x_BTD: Tensor) -> Tensor:
        wide_BTD = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        variance_BT1 = wide_BTD.square().mean(-1, keepdim=True)
        return self.weight * (wide_BTD * torch.rsqrt(variance_BT1 + self.eps)).to(x_BTD.dtype)


class Block(nn.Module):
    """Parallel: x + attention(norm(x)) + mlp(norm(x)), one norm for both, or one each. Sequential:
    y = x + attention(norm(x)), then y + mlp(norm(y))."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.mlp = MLP(shape)
        self.sequential = shape.block == "sequential"
        self.n_norms = shape.n_norms
        if shape.n_norms == 1:
            self.norm = _norm(shape)
        else:
            self.attention_norm = _norm(shape)
            self.mlp_norm = _norm(shape)

    def forward(
        self,
        x_BTD: Tensor,
        rotary: Rotary | None,
        mask: Tensor | None,
        cache: Cache | None,
        layer: int,
    ) -> Tensor:
        if self.sequential:
            a_BTD = self.attention_norm(x_BTD)
            x_BTD = x_BTD + self.attention(a_BTD, rotary, mask, cache, layer)
            return x_BTD + self.mlp(self.mlp_norm(x_BTD))
        if self.n_norms == 1:
            a_BTD = m_BTD = self.norm(x_BTD)
        else:
            a_BTD, m_BTD = self.attention_norm(x_BTD), self.mlp_norm(x_BTD)
        return x_BTD + self.attention(a_BTD, rotary, mask, cache, layer) + self.mlp(m_BTD)


class Network(nn.Module):
    """The whole decoder. Its parameters are exactly `eyas.shape.parameter_table(shape)`; it has no
    buffers. Built under `torch.device("meta")` it costs nothing."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = _look_up(shape.vocab_size, shape.d_model)
        if shape.positions == "learned":
            self.positions = _look_up(shape.max_sequence, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = _norm(shape)
        if not shape.tied:
            self.head = Linear(shape.d_model, shape.vocab_size, bias=False)

    @property
    def head_weight_VD(self) -> Tensor:
        """The output projection: the embedding where it is tied."""
        return self.embedding.weight if self.shape.tied else self.head.weight

    def forward(
        self, ids_BT: Tensor, cache: Cache | None = None, document_ids: Tensor | None = None
    ) -> Tensor:
        """Logits B x T x V, float32, of the token after each. See `features` for the arguments."""
        x_BTD = self.features(ids_BT, cache, document_ids)
        return F.linear(x_BTD, self.head_weight_VD).float()

    def features(
        self, ids_BT: Tensor, cache: Cache | None = None, document_ids: Tensor | None = None
    ) -> Tensor:
        """What the output projection reads, B x T x D: for `projected_loss`, which never holds all
        logits at once.

        `document_ids` B x T, equal in each run of tokens that is a document: attention stays inside
        it, and ALiBi and learned positions count from its beginning (of rotary ones only the
        distance matters). `cache`: `ids_BT` continue what it holds, and are added to it. Raises
        ValueError for both together, past its capacity, or past the last learned position.
        """
        start = cache.length if cache is not None else 0
        end = start + ids_BT.shape[1]
        if cache is not None:
            if document_ids is not None:
                raise ValueError("document_ids are for training; a cache holds one document a row")
            if end > cache.capacity:
                raise ValueError(f"{end} tokens in a cache of {cache.capacity}")
        x_BTD = self.embedding(ids_BT)
        rotary, mask = None, _mask(start, end, document_ids, x_BTD)
        if self.shape.positions == "rotary":
            rotary = _rotary(self.shape, start, end, x_BTD)
        elif self.shape.positions == "alibi":
            heads = cast(Block, self.blocks[0]).attention.query_heads  # every block has the same
            mask = _alibi(self.shape, heads, start, end, document_ids, x_BTD)
        else:
            if end > self.shape.max_sequence:
                raise ValueError(f"{end} tokens with {self.shape.max_sequence} learned positions")
            position_BT = _positions(start, end, document_ids, ids_BT.device)
            x_BTD = x_BTD + self.positions(position_BT)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, rotary, mask, cache, layer)
        if cache is not None:
            cache.length = end
        return self.norm(x_BTD)


def network_from(shape: ModelShape, tensors: Mapping[str, Tensor]) -> Network:
    """A network that holds these very tensors (not copies), by the names of `parameter_table`.
    Raises RuntimeError naming what is missing, unknown or of a wrong shape."""
    with torch.device("meta"):
        network = Network(shape)
    network.load_state_dict(dict(tensors), assign=True)
    return network


Rotary = tuple[Tensor, Tensor]
"""Cosine and sine, T x C, both halves alike."""


def _look_up(rows: int, width: int) -> Embedding:
    """Given a weight, it draws none: on the meta device that would import the compiler (2 s)."""
    return Embedding(rows, width, _weight=torch.empty(rows, width))


def _norm(shape: ModelShape) -> nn.Module:
    kind = RMSNorm if shape.norm == "rmsnorm" else nn.LayerNorm
    return kind(shape.d_model, shape.norm_eps)


def _rotary(shape: ModelShape, start: int, end: int, like: Tensor) -> Rotary:
    """Angles in float32, handed out in the arithmetic of the network."""
    position_T = torch.arange(start, end, dtype=torch.float32, device=like.device)
    angle_TC = torch.outer(position_T, _frequencies(shape, like.device)).repeat(1, 2)
    return angle_TC.cos().to(like.dtype), angle_TC.sin().to(like.dtype)


def _frequencies(shape: ModelShape, device: torch.device) -> Tensor:
    """Radians a token of each pair, C / 2, float32. The scaled ones are bit for bit those of
    `modeling_rope_utils` of transformers (Llama 3.1's rule: Grattafiori et al. 2024)."""
    even_C = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device)
    plain = 1.0 / shape.rope_theta ** (even_C / shape.head_dim)
    if shape.rope_scaling == "none":
        return plain
    stretched = plain / shape.rope_factor
    if shape.rope_scaling == "linear":
        return stretched
    low, high = shape.rope_low, shape.rope_high
    wavelength = 2 * math.pi / plain
    keep = (shape.rope_original / wavelength - low) / (high - low)
    between = (1 - keep) * plain / shape.rope_factor + keep * plain
    between = torch.where(wavelength > shape.rope_original / low, stretched, between)
    return torch.where(wavelength < shape.rope_original / high, plain, between)


def _rotate(x_BHTC: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair (c, c + C/2) by its angle."""
    cos_TC, sin_TC = rotary
    left, right = x_BHTC.chunk(2, dim=-1)
    return x_BHTC * cos_TC + torch.cat((-right, left), dim=-1) * sin_TC


def _alibi(
    shape: ModelShape, heads: range, start: int, end: int, document_ids: Tensor | None, like: Tensor
) -> Tensor:
    """1 or B x H x T x S, to be added to scores: slope times the key's position, which differs from
    minus the distance to it by a constant a row, and -inf where attention may not look.

    Slope, position and product are rounded to bfloat16, and the product is scaled as the scores
    are: so Falcon-RW was trained, and so transformers computes it.
    """
    slope_H11 = _alibi_slopes(shape.n_heads, like.device)[heads.start : heads.stop, None, None]
    position_B11S = _positions(0, end, document_ids, like.device)[:, None, None]
    bias_BH1S = (slope_H11.bfloat16() * position_B11S.bfloat16()).to(like.dtype)
    looks = _looks(start, end, document_ids, like.device)
    return _added(bias_BH1S / math.sqrt(shape.head_dim), looks)


def _alibi_slopes(n_heads: int, device: torch.device) -> Tensor:
    """H, float32: powers of 2^(-8/n) for n heads; where n is no power of two, those of the power
    below it, then every other one of twice that (the code of Press et al. 2022)."""
    below = 2 ** math.floor(math.log2(n_heads))
    power_H = torch.arange(1, 1 + below, device=device)
    more_H = torch.arange(1, 1 + 2 * (n_heads - below), 2, device=device)
    base, finer = (
        torch.full((), 2 ** (-8 / n), dtype=torch.float32, device=device)
        for n in (below, 2 * below)
    )
    return torch.cat((base.pow(power_H), finer.pow(more_H)))


def _positions(start: int, end: int, document_ids: Tensor | None, device: torch.device) -> Tensor:
    """1 or B x T: how many tokens of its document stand before each token `start` .. `end`."""
    position_1T = torch.arange(start, end, device=device).unsqueeze(0)
    if document_ids is None:
        return position_1T
    begins_BT = torch.ones_like(document_ids, dtype=torch.bool)
    begins_BT[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return position_1T - torch.where(begins_BT, position_1T, 0).cummax(1).values


def _mask(start: int, end: int, document_ids: Tensor | None, like: Tensor) -> Tensor | None:
    """`_looks` as numbers to be added, or None where plain causality (or a single new token, which
    sees everything) says it all."""
    if document_ids is None and (start == 0 or end - start == 1):
        return None
    looks = _looks(start, end, document_ids, like.device)
    return _added(like.new_zeros(()), looks)


def _added(bias: Tensor, looks: Tensor) -> Tensor:
    """`bias`, -inf where attention may not look, in the arithmetic of attention: made once, where
    a mask of another dtype would be converted, and kept for backward, in every layer."""
    kind = bias.device.type
    autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    if autocast and bias.dtype != torch.float64:
        bias = bias.to(torch.get_autocast_dtype(kind))
    return bias.masked_fill(~looks, -math.inf)


def _looks(start: int, end: int, document_ids: Tensor | None, device: torch.device) -> Tensor:
    """True where attention may look, T x S or B x 1 x T x S."""
    query_T1 = torch.arange(start, end, device=device).unsqueeze(1)
    causal_TS = torch.arange(end, device=device) <= query_T1
    if document_ids is None:
        return causal_TS
    same_BTT = document_ids.unsqueeze(2) == document_ids.unsqueeze(1)
    return (same_BTT & causal_TS).unsqueeze(1)
