"""Small networks of every family, their weights and a tokenizer, for the tests of this room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from eyas.checkpoint import Commit, Slice, save, take_attempt
from eyas.model import initial_weights
from eyas.shape import ModelShape
from eyas.store import Manifest, Store, commit_manifest, put_object
from eyas.tokens import Tokenizer

__all__ = ["SHAPES", "make_tokenizer", "put_tokenizer", "save_model", "weights"]

SHAPES = {
    "falcon-7b": ModelShape("tiny", 2, 32, 4, 1, 8, 128, 300, 64),
    "falcon-40b": ModelShape("tiny", 3, 32, 4, 2, 8, 64, 300, 64, n_norms=2, tied=False),
    "falcon-rw": ModelShape(
        "tiny",
        *(2, 32, 4, 4, 8, 128, 300, 64),
        n_norms=2,
        block="sequential",
        positions="alibi",
        bias=True,
    ),
    "llama": ModelShape(
        "tiny",
        *(2, 32, 4, 2, 8, 64, 300, 64),
        n_norms=2,
        tied=False,
        block="sequential",
        norm="rmsnorm",
        activation="swiglu",
    ),
    "gpt2": ModelShape(
        "tiny",
        *(2, 32, 4, 4, 8, 128, 300, 64),
        n_norms=2,
        block="sequential",
        positions="learned",
        activation="gelu_tanh",
        bias=True,
    ),
}


def make_tokenizer() -> Tokenizer:
    """300 items, as many as the networks have; the first is the end of text."""
    made = HuggingFaceTokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "a young falcon taken from the nest to be trained for hunting is called an eyas"
    made.train_from_iterator([text] * 9, trainer)
    return Tokenizer(made.to_str().encode())


def put_tokenizer(store: Store, tokenizer: Tokenizer, name: str = "0123456789ab") -> None:
    reference = put_object(store, f"tokenizer/{name}-tokenizer.json", tokenizer.json)
    facts = {"digest": tokenizer.digest}
    commit_manifest(store, Manifest("tokenizer", name, objects=(reference,), facts=facts))


def weights(shape: ModelShape, seed: int = 1) -> dict[str, torch.Tensor]:
    """Larger than at the start of training, so that a wrong order of rows shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in initial_weights(shape, seed).items()
    }


def save_model(
    store: Store,
    shape: ModelShape,
    tokenizer: Tokenizer | None,
    step: int = 5,
    seed: int = 1,
    facts: Mapping[str, Any] | None = None,
) -> Commit:
    """A commit as training makes it, with `facts` besides the usual ones."""
    attempt = take_attempt(store, {})
    slices = [Slice.whole(f"model.{n}", t) for n, t in weights(shape, seed).items()]
    moments = [
        Slice.whole(f"optim.{n}.exp_avg", torch.zeros_like(t))
        for n, t in weights(shape, seed).items()
    ]
    usual = {
        "shape": shape.to_dict(),
        "tokenizer": tokenizer.digest if tokenizer else None,
        "tokens": 1234,
        "recipe": "ab",
    }
    return save(store, attempt, step, slices + moments, {**usual, **(facts or {})})
