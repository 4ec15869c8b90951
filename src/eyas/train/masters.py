"""Master weights, gradients and AdamW's moments of one rank, each one long vector.

The network's parameters and their gradients are views into these vectors, so summing gradients
over ranks, taking their norm, clearing and updating them are each a call or two on contiguous
memory, and backward accumulates where it is needed. Parameters stand in ranges: those with
weight decay (matrices), by how many tensor ranks hold the same slice, then those without.

AdamW is PyTorch's own fused kernel, the one behind `torch.optim.AdamW(fused=True)`, called
directly: the class would only add parameter groups, and two seconds of imports to every start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eyas.checkpoint import Slice
from eyas.model import Network, accumulate_into
from eyas.recipe import Train
from eyas.shape import ModelShape, parameter_table, slice_holders, tensor_slices

__all__ = ["Masters"]

_ALIGN = 16  # numbers: 64 bytes in float32, a cache line
_NORM_CHUNK = 2**16
_EPSILON = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, order=True)
class _Kind:
    """Parameters that are treated alike. `holders`: tensor ranks that hold the same slice."""

    undecayed: bool
    partial: bool
    holders: int


@dataclass(frozen=True)
class _Place:
    """Where a parameter's slice stands in the vectors, and in the global tensor."""

    start: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    global_shape: tuple[int, ...]

    def of(self, vector: Tensor) -> Tensor:
        """The view of it in a vector."""
        return vector[self.start : self.start + math.prod(self.shape)].view(self.shape)


class Masters:
    """The state that training changes. `initial(name, offset, shape)` gives the first weights."""

    def __init__(
        self,
        shape: ModelShape,
        tensor: int,
        tensor_rank: int,
        keys: Train,
        initial: Callable[[str, tuple[int, ...], tuple[int, ...]], Tensor],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        slices = tensor_slices(shape, tensor, tensor_rank)
        self._keys = keys
        holders = slice_holders(shape, tensor)
        kinds = {name: _kind(name, len(size), holders[name]) for name, (_, size) in slices.items()}
        self._places, self._ranges = _lay_out(kinds, slices, parameter_table(shape))
        size = max(last for _, last in self._ranges.values())
        self.weights, self.gradients = (
            torch.zeros(size, dtype=dtype, device=device) for _ in range(2)
        )
        self._moments = {kind: torch.zeros_like(self.weights) for kind in MOMENTS}
        for name, place in self._places.items():
            place.of(self.weights).copy_(initial(name, place.offset, place.shape))
        split = max((e for k, (_, e) in self._ranges.items() if not k.undecayed), default=0)
        self._parts = (slice(0, split), slice(split, None))
        self._updates = torch.zeros((), dtype=torch.float32, device=device)

    def install(self, network: Network) -> None:
        """Make the network's parameters views of the vectors."""
        for name, place in self._places.items():
            module, _, leaf = name.rpartition(".")
            parameter = nn.Parameter(place.of(self.weights))
            accumulate_into(parameter, place.of(self.gradients))
            setattr(network.get_submodule(module), leaf, parameter)

    def partials(self) -> list[Tensor]:
        """Gradients that are partial sums on this rank: of key and value projections, and of their
        biases, that some tensor ranks share. Empty where no rank shares any."""
        ranges = [places for kind, places in self._ranges.items() if kind.partial]
        return [self.gradients[first:last] for first, last in ranges]

    def squared_norm(self) -> float:
        """This rank's share of the squared global gradient norm: a slice held by n tensor ranks
        counts 1/n on each."""
        return sum(
            _squares(self.gradients[first:last]) / kind.holders
            for kind, (first, last) in self._ranges.items()
        )

    def update(self, lr: float, scale: float) -> None:
        """One step of AdamW on gradients times `scale`."""
        keys = self._keys
        self.gradients.mul_(scale)
        self._updates += 1
        for part, decay in zip(self._parts, (keys.weight_decay, 0.0), strict=True):
            torch._fused_adamw_(
                [self.weights[part]],
                [self.gradients[part]],
                [self._moments["exp_avg"][part]],
                [self._moments["exp_avg_sq"][part]],
                [],
                [self._updates],
                lr=lr,
                beta1=keys.beta1,
                beta2=keys.beta2,
                weight_decay=decay,
                eps=_EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def clear(self) -> None:
        """Gradients to zero."""
        self.gradients.zero_()

    def wanted(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Checkpoint tensor to (offset, shape) of all that this rank needs to go on."""
        return {
            stored: (place.offset, place.shape)
            for name, place in self._places.items()
            for stored, _ in self._stored(name)
        }

    def adopt(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Go on from a checkpoint's tensors, after `step` updates."""
        for name, place in self._places.items():
            for stored, vector in self._stored(name):
                place.of(vector).copy_(tensors[stored])
        self._updates.fill_(float(step))

    def slices(self, names: list[str]) -> list[Slice]:
        """Views of weights and moments, for the checkpoint."""
        return [
            Slice(stored, place.offset, place.of(vector), place.global_shape)
            for name, place in self._places.items()
            if name in names
            for stored, vector in self._stored(name)
        ]

    def _stored(self, name: str) -> Iterator[tuple[str, Tensor]]:
        yield f"model.{name}", self.weights
        for kind in MOMENTS:
            yield f"optim.{name}.{kind}", self._moments[kind]


def _kind(name: str, dimensions: int, holders: int) -> _Kind:
    served = ".attention.key." in name or ".attention.value." in name
    return _Kind(dimensions == 1, served and holders > 1, holders)


def _lay_out(
    kinds: Mapping[str, _Kind],
    slices: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    table: Mapping[str, tuple[int, ...]],
) -> tuple[dict[str, _Place], dict[_Kind, tuple[int, int]]]:
    """Places of all parameters, aligned, and the range of each kind; kinds follow one another."""
    places: dict[str, _Place] = {}
    ranges: dict[_Kind, tuple[int, int]] = {}
    end = 0
    for kind in sorted(set(kinds.values())):
        start = end
        for name in (n for n, k in kinds.items() if k == kind):
            offset, size = slices[name]
            places[name] = _Place(end, offset, size, table[name])
            end += -(-math.prod(size) // _ALIGN) * _ALIGN
        ranges[kind] = (start, end)
    return places, ranges


def _squares(vector: Tensor) -> float:
    """The sum of squares, each chunk summed in its own precision, the chunks in float64."""
    chunks = vector.split(_NORM_CHUNK)
    return float(torch.stack([torch.dot(c, c) for c in chunks]).double().sum())
