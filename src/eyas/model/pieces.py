"""Tensors under other names, both ways: a list of pieces, each one of theirs and ours in it.

In: a mapping as `Piece`s and tensors of one side. Out: the tensors of the other. A piece is a
renamed tensor, a transposed one, or one that fuses several of ours. Nothing is computed, so what
comes back is bit for bit what went in, and all of it runs on the meta device as well: a caller that
gives `meta` tensors for all but a few has every name and size checked and only those few converted.
A renamed tensor is handed on as it is; one that is cut or fused owns its memory, so that writing
one file of it does not drag the whole along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eyas.recipe import UsageError
from eyas.shape import ModelShape, parameter_table

from .switches import listed

__all__ = ["Naming", "Piece", "own", "renamed", "tensors_from", "tensors_to", "transposed"]

HEAD = "lm_head.weight"
"""The output projection, in every family."""


@dataclass(frozen=True)
class Piece:
    """`theirs`, of `size`, holds `ours`: `join` makes it of them, `split` takes it apart."""

    theirs: str
    size: tuple[int, ...]
    ours: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Naming:
    """What a family's files may do: leave `prefix` away (saved without the language model's head),
    carry buffers of older versions (`ignored`, a pattern on the name without prefix), and hold the
    head beside the `embedding` that it is tied to."""

    family: str
    prefix: str
    embedding: str
    ignored: str


def renamed(theirs: str, ours: str, size: tuple[int, ...]) -> Piece:
    """The same tensor."""

    def same(tensor: Tensor) -> Tensor:
        return tensor.contiguous()

    return Piece(theirs, size, (ours,), lambda parts: same(parts[0]), lambda it: [same(it)])


def transposed(theirs: str, ours: str, size: tuple[int, ...]) -> Piece:
    """A matrix, `size` being ours; GPT-2 keeps its weights input by output."""

    def turned(tensor: Tensor) -> Tensor:
        return own(tensor.t())

    return Piece(
        theirs, size[::-1], (ours,), lambda parts: turned(parts[0]), lambda it: [turned(it)]
    )


def own(view: Tensor) -> Tensor:
    """The values of a view, row by row in memory of their own."""
    return view.clone(memory_format=torch.contiguous_format)


def tensors_to(
    shape: ModelShape, tensors: Mapping[str, Tensor], pieces: Sequence[Piece]
) -> dict[str, Tensor]:
    """Ours to theirs; dtypes are kept. Raises UsageError naming a tensor that is missing, unknown,
    of a wrong shape, or of another dtype than those it is fused with."""
    _check(tensors, parameter_table(shape), "the model")
    state = {}
    for piece in pieces:
        parts = [tensors[name] for name in piece.ours]
        if len({part.dtype for part in parts}) > 1:
            kinds = ", ".join(f"{n} is {tensors[n].dtype}" for n in piece.ours)
            raise UsageError(f"{piece.theirs} holds several tensors, but {kinds}")
        state[piece.theirs] = piece.join(parts)
    return state


def tensors_from(
    shape: ModelShape, state: Mapping[str, Tensor], pieces: Sequence[Piece], naming: Naming
) -> dict[str, Tensor]:
    """Theirs to ours, in the order of the network; dtypes are kept.

    A head beside a tied embedding must equal it (compared where both have data, else only its
    shape). Raises UsageError naming a tensor that is missing, unknown or of a wrong shape.
    """
    state = _present_names(state, naming)
    wanted = {piece.theirs: piece.size for piece in pieces}
    if shape.tied and HEAD in state:
        wanted[HEAD] = (shape.vocab_size, shape.d_model)
    _check(state, wanted, f"the {naming.family} checkpoint")
    if shape.tied and HEAD in state:
        _check_tied(state, naming)
    tensors: dict[str, Tensor] = {}
    for piece in pieces:
        tensors |= zip(piece.ours, piece.split(state[piece.theirs]), strict=True)
    return {name: tensors[name] for name in parameter_table(shape)}


def _present_names(state: Mapping[str, Tensor], naming: Naming) -> dict[str, Tensor]:
    """With the prefix everywhere, without the buffers of older versions."""
    named: dict[str, Tensor] = {}
    for name, tensor in state.items():
        bare = name.removeprefix(naming.prefix)
        if re.fullmatch(naming.ignored, bare):
            continue
        full = name if name == HEAD else naming.prefix + bare
        if full in named:
            raise UsageError(f"{bare} is there twice, with and without {naming.prefix}")
        named[full] = tensor
    return named


def _check_tied(state: Mapping[str, Tensor], naming: Naming) -> None:
    head, embedding = state[HEAD], state[naming.embedding]
    if not (head.is_meta or embedding.is_meta or torch.equal(head, embedding)):
        raise UsageError(
            f"{HEAD} differs from {naming.embedding} although tie_word_embeddings is true; "
            "set it to false in config.json if the head is its own"
        )


def _check(tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Every tensor there, none more, each of its shape; the first few problems are named."""
    problems = [f"{name} is missing" for name in wanted if name not in tensors]
    problems += [f"{name} is not known" for name in tensors if name not in wanted]
    problems += [
        f"{name} is {tuple(tensors[name].shape)} instead of {tuple(size)}"
        for name, size in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(size)
    ]
    if problems:
        raise UsageError(f"{what} does not fit its shape: {listed(problems)}")
