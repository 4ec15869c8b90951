"""Which of their tensors is made of which of ours, so that one at a time can be converted.

`eyas.model` translates whole state dicts, and gives `meta` tensors, which have a shape and no data,
back as such. So each tensor is translated alone: real where its values are, `meta` everywhere else.
Every name and size is checked on the way, and memory holds one tensor, not a model. What comes from
what is asked of the same translation: each of theirs gets a number, and in a few rounds, one a bit
of it, those whose bit is set have another dtype; dtypes are kept, so each of ours spells the number
of its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from eyas.model import from_hugging_face, to_hugging_face
from eyas.shape import ModelShape, parameter_table

__all__ = ["Link", "Links", "link_export", "link_import"]

_BIT = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Link:
    """`theirs` holds `ours`, in this order; `renamed` if it is the same tensor under another name,
    row for row."""

    theirs: str
    ours: tuple[str, ...]
    renamed: bool


@dataclass(frozen=True, eq=False)
class Links:
    """A network by our names and by theirs: `config` as Hugging Face has it, `links` in the order
    of the network, meta tensors of both sides."""

    shape: ModelShape
    config: Mapping[str, Any]
    links: tuple[Link, ...]
    ours: Mapping[str, torch.Tensor]
    theirs: Mapping[str, torch.Tensor]

    def to_ours(self, link: Link, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        """Ours of one of theirs."""
        _, ours = from_hugging_face(self.config, {**self.theirs, link.theirs: tensor})
        return {name: ours[name] for name in link.ours}

    def to_theirs(self, link: Link, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """One of theirs of ours."""
        _, theirs = to_hugging_face(self.shape, {**self.ours, **tensors})
        return theirs[link.theirs]


def link_import(config: Mapping[str, Any], theirs: Mapping[str, torch.Tensor]) -> Links:
    """Of a configuration and meta tensors by their names. Raises UsageError naming a switch or a
    tensor that does not fit."""
    shape, ours = from_hugging_face(config, theirs)
    return Links(shape, config, _links(config, theirs), ours, theirs)


def link_export(shape: ModelShape, dtypes: Mapping[str, torch.dtype]) -> Links:
    """Of a shape, each of our tensors being written in its dtype. Raises UsageError for a shape
    that no family of Hugging Face has."""
    ours = {
        name: torch.empty(size, dtype=dtypes[name], device="meta")
        for name, size in parameter_table(shape).items()
    }
    config, theirs = to_hugging_face(shape, ours)
    return Links(shape, config, _links(config, theirs), ours, theirs)


def _links(config: Mapping[str, Any], theirs: Mapping[str, torch.Tensor]) -> tuple[Link, ...]:
    """In the order of our network. A tensor of theirs that makes none of ours (a head beside the
    embedding that it is tied to) has no link."""
    names = list(theirs)
    numbers: dict[str, int] = {}
    plain: dict[str, torch.Tensor] = {}
    for bit in range(len(names).bit_length()):
        marked = {
            name: torch.empty(theirs[name].shape, dtype=_BIT[number >> bit & 1], device="meta")
            for number, name in enumerate(names)
        }
        _, plain = from_hugging_face(config, marked)
        for name, tensor in plain.items():
            numbers[name] = numbers.get(name, 0) | (tensor.dtype == _BIT[1]) << bit
    sources: dict[str, list[str]] = {}
    for name, number in numbers.items():
        sources.setdefault(names[number], []).append(name)
    return tuple(
        Link(their, tuple(ours), len(ours) == 1 and plain[ours[0]] is marked[their])
        for their, ours in sources.items()
    )
