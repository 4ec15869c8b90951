"""The network: one readable decoder-only transformer, in the shape of Falcon.

In: token ids. Out: float32 logits. It knows nothing of parallelism, devices or training: heads are
counted from the width of the projections, so that a tensor-parallel slice of the weights runs in
the same code, and `train` puts its collectives around the modules from outside. Attention and MLP
read the same residual and add to it together (Wang & Komatsuzaki 2021, GPT-J; Almazrouei et al.
2023, Falcon); positions are rotary in the half-split form of GPT-NeoX (Su et al. 2021); several
query heads share a key and value head (Shazeer 2019; Ainslie et al. 2023).

Shape suffixes: B batch, T time (new tokens), S time so far (cached and new), D d_model, H query
heads, K kv heads, C head dim, F feed-forward, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyas.shape import ModelShape

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
    """Causal attention with rotary positions; `head_dim` C is the only size it must be told."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.query = nn.Linear(shape.d_model, shape.n_heads * shape.head_dim, bias=False)
        self.key = nn.Linear(shape.d_model, shape.n_kv_heads * shape.head_dim, bias=False)
        self.value = nn.Linear(shape.d_model, shape.n_kv_heads * shape.head_dim, bias=False)
        self.out = nn.Linear(shape.n_heads * shape.head_dim, shape.d_model, bias=False)

    def forward(
        self, x_BTD: Tensor, rotary: Rotary, mask: Tensor | None, cache: Cache | None, layer: int
    ) -> Tensor:
        q_BHTC = _rotate(self._heads(self.query(x_BTD)), rotary)
        k_BKSC = _rotate(self._heads(self.key(x_BTD)), rotary)
        v_BKSC = self._heads(self.value(x_BTD))
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
    """Two matrices around the exact (erf) GELU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.d_model, shape.d_ff, bias=False)
        self.down = nn.Linear(shape.d_ff, shape.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))


class Block(nn.Module):
    """x + attention(norm(x)) + mlp(norm(x)): one norm for both, or one each."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.mlp = MLP(shape)
        self.n_norms = shape.n_norms
        if shape.n_norms == 1:
            self.norm = nn.LayerNorm(shape.d_model, shape.norm_eps)
        else:
            self.attention_norm = nn.LayerNorm(shape.d_model, shape.norm_eps)
            self.mlp_norm = nn.LayerNorm(shape.d_model, shape.norm_eps)

    def forward(
        self, x_BTD: Tensor, rotary: Rotary, mask: Tensor | None, cache: Cache | None, layer: int
    ) -> Tensor:
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
        # Given a weight, it draws none: on the meta device that would import the compiler (2 s).
        weight = torch.empty(shape.vocab_size, shape.d_model)
        self.embedding = nn.Embedding(shape.vocab_size, shape.d_model, _weight=weight)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = nn.LayerNorm(shape.d_model, shape.norm_eps)
        if not shape.tied:
            self.head = nn.Linear(shape.d_model, shape.vocab_size, bias=False)

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

        `document_ids` B x T: attention stays inside a document. `cache`: `ids_BT` continue what it
        holds, and are added to it. Raises ValueError for both together, or past its capacity.
        """
        start = cache.length if cache is not None else 0
        T = ids_BT.shape[1]
        if cache is not None:
            if document_ids is not None:
                raise ValueError("document_ids are for training; a cache holds one document a row")
            if start + T > cache.capacity:
                raise ValueError(f"{start + T} tokens in a cache of {cache.capacity}")
        x_BTD = self.embedding(ids_BT)
        rotary = _rotary(self.shape, start, T, x_BTD)
        mask = _mask(start, T, document_ids, ids_BT.device)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, rotary, mask, cache, layer)
        if cache is not None:
            cache.length += T
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


def _rotary(shape: ModelShape, start: int, T: int, like: Tensor) -> Rotary:
    """Angles in float32, handed out in the arithmetic of the network."""
    even_C = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=like.device)
    frequency = 1.0 / shape.rope_theta ** (even_C / shape.head_dim)
    position_T = torch.arange(start, start + T, dtype=torch.float32, device=like.device)
    angle_TC = torch.outer(position_T, frequency).repeat(1, 2)
    return angle_TC.cos().to(like.dtype), angle_TC.sin().to(like.dtype)


def _rotate(x_BHTC: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair (c, c + C/2) by its angle."""
    cos_TC, sin_TC = rotary
    left, right = x_BHTC.chunk(2, dim=-1)
    return x_BHTC * cos_TC + torch.cat((-right, left), dim=-1) * sin_TC


def _mask(start: int, T: int, document_ids: Tensor | None, device: torch.device) -> Tensor | None:
    """True where attention may look, or None where plain causality (or a single new token, which
    sees everything) says it all."""
    if document_ids is None and (start == 0 or T == 1):
        return None
    query_T1 = torch.arange(start, start + T, device=device).unsqueeze(1)
    causal_TS = torch.arange(start + T, device=device) <= query_T1
    if document_ids is None:
        return causal_TS
    same_BTT = document_ids.unsqueeze(2) == document_ids.unsqueeze(1)
    return (same_BTT & causal_TS).unsqueeze(1)
