"""Models whose answers are known, and a corpus with held-out documents."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import xxhash
from torch import Tensor

from eyas.model import Model, initial_weights, network_from
from eyas.shape import ModelShape
from eyas.store import Manifest, Store, commit_manifest, put_object

torch.set_num_threads(1)

__all__ = ["SHAPE", "Bytes", "Uniform", "commit_documents", "random_model"]

SHAPE = ModelShape(
    name="bytes",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=64,
    vocab_size=257,
    max_sequence=64,
)


class Bytes:
    """Id 0 ends a text; 1 + b is byte b."""

    end_of_text = 0
    digest = "b7" * 32

    def encode(self, text: str) -> list[int]:
        return [1 + b for b in text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        return bytes(i - 1 for i in ids)


@dataclass
class Uniform:
    """Every token is as likely as any other. Records the rows that it was asked."""

    shape: ModelShape = SHAPE
    tokenizer: Bytes = field(default_factory=Bytes)
    value: float = 1.5
    asked: list[list[int]] = field(default_factory=list)

    def logits(self, ids_BT: Tensor) -> Tensor:
        self.asked.extend(ids_BT.tolist())
        return torch.full((*ids_BT.shape, self.shape.vocab_size), self.value)


def random_model(seed: int = 2) -> Model:
    weights = initial_weights(SHAPE, seed)
    tensors = {name: t * 8 if t.dim() == 2 else t for name, t in weights.items()}
    return Model(SHAPE, network_from(SHAPE, tensors), Bytes())


def commit_documents(
    store: Store, documents: Sequence[tuple[str, str, str]], shards: int = 1
) -> Manifest:
    """A corpus of (language, split, text), dealt to that many objects."""
    rows = [
        {
            "id": xxhash.xxh3_128_hexdigest(text.encode()),
            "url": f"https://{language}.test/{number}",
            "text": text,
            "language": language,
            "language_score": 0.9,
            "source": "made",
            "offset": number,
            "date": "",
            "cluster": "",
            "split": split,
            "words": len(text.split()),
            "bytes": len(text.encode()),
        }
        for number, (language, split, text) in enumerate(documents)
    ]
    objects = []
    size = math.ceil(len(rows) / shards)
    for shard in range(shards):
        sink = io.BytesIO()
        own = rows[shard * size : (shard + 1) * size]
        pq.write_table(pa.Table.from_pylist(own), sink)
        key = f"corpus/documents/{len(rows):04d}{shards:08d}-{shard:05d}.parquet"
        objects.append(put_object(store, key, sink.getvalue(), rows=len(own)))
    return commit_manifest(store, Manifest("corpus", f"{shards:064x}", objects=tuple(objects)))
