"""The one value that describes a network: `ModelShape`, which network, checkpoint and planner read.

In: sizes and switches. Out: a frozen value that is possible, or an error that names every problem
and what is legal. One decoder covers the published families by its switches:

Falcon    parallel block, rotary or ALiBi, LayerNorm, exact GELU (Almazrouei et al. 2023)
Jurassic  sequential block, learned positions, LayerNorm, GELU, biases (Lieber et al. 2021)
Llama     sequential block, rotary, RMSNorm, SwiGLU (Touvron et al. 2023; Grattafiori et al. 2024)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from eyas.recipe import UsageError

__all__ = [
    "Activation",
    "BlockKind",
    "ModelShape",
    "NormKind",
    "Positions",
    "RopeScaling",
    "divisors",
]

BlockKind = Literal["parallel", "sequential"]
Positions = Literal["rotary", "alibi", "learned"]
NormKind = Literal["layernorm", "rmsnorm"]
Activation = Literal["gelu", "gelu_tanh", "swiglu"]
RopeScaling = Literal["none", "linear", "llama3"]

_COUNTS = (
    "n_layers",
    "d_model",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "d_ff",
    "vocab_size",
    "max_sequence",
)
_WORDS = {
    "block": BlockKind,
    "positions": Positions,
    "norm": NormKind,
    "activation": Activation,
    "rope_scaling": RopeScaling,
}
_SCALING_NUMBERS = {
    "none": (),
    "linear": ("rope_factor",),
    "llama3": ("rope_factor", "rope_low", "rope_high", "rope_original"),
}


@dataclass(frozen=True)
class ModelShape:
    """What a network looks like. Raises UsageError, naming the legal values, when impossible.

    `block`: "parallel" adds attention and MLP of the same residual together, "sequential" lets the
    MLP read what attention wrote. `n_norms`: 1 (a parallel block whose attention and MLP read one
    norm) or 2 (each its own; every sequential block). `bias`: on every linear layer of a block,
    never on the output projection. `tied`: the output projection is the embedding.
    `max_sequence`: positions the model may be asked for, and the rows of the table of learned ones.

    `rope_scaling` stretches rotary positions: "linear" divides every frequency by `rope_factor`;
    "llama3" divides those of wavelengths over `rope_original / rope_low` tokens, keeps those under
    `rope_original / rope_high`, and passes smoothly between the two.
    """

    name: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab_size: int
    max_sequence: int
    n_norms: int = 1
    tied: bool = True
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    block: BlockKind = "parallel"
    positions: Positions = "rotary"
    norm: NormKind = "layernorm"
    activation: Activation = "gelu"
    bias: bool = False
    rope_scaling: RopeScaling = "none"
    rope_factor: float = 1.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_original: int = 0

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise UsageError(f"model {self.name}: " + "; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives the equal shape back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelShape:
        """The shape that `to_dict` wrote. Keys that a newer version added have defaults; a key that
        this version does not know raises UsageError, since the network would be another one."""
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UsageError(
                f"the model shape has keys that this version does not know: {', '.join(unknown)}; "
                "use the version of eyas that wrote it, or a newer one"
            )
        missing = sorted(
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.name not in values
        )
        if missing:
            raise UsageError(f"the model shape lacks {', '.join(missing)}")
        return cls(**values)


def _problems(shape: ModelShape) -> list[str]:
    out = [
        f"{name} is {getattr(shape, name)}; at least 1"
        for name in _COUNTS
        if getattr(shape, name) < 1
    ]
    out += [
        f'{name} is "{getattr(shape, name)}"; legal are {", ".join(get_args(words))}'
        for name, words in _WORDS.items()
        if getattr(shape, name) not in get_args(words)
    ]
    if out:
        return out
    out = _head_problems(shape) + _norm_problems(shape) + _scaling_problems(shape)
    if not shape.rope_theta > 0:
        out.append(f"rope_theta is {shape.rope_theta}; more than 0")
    return out


def divisors(n: int) -> list[int]:
    """Of n of at least 1, in order."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def _head_problems(shape: ModelShape) -> list[str]:
    out = []
    heads, kv_heads, width = shape.n_heads, shape.n_kv_heads, shape.head_dim
    if shape.positions == "rotary" and width % 2:
        even = [str(c) for c in divisors(shape.d_model) if c % 2 == 0]
        out.append(
            f"head_dim {width} is odd; rotary positions need an even one that divides d_model "
            f"{shape.d_model}: {', '.join(even) or 'there is none, d_model must be even'}"
        )
    if heads * width != shape.d_model:
        legal = (
            f"n_heads {shape.d_model // width}"
            if shape.d_model % width == 0
            else f"a head_dim that divides {shape.d_model}"
        )
        out.append(
            f"n_heads {heads} x head_dim {width} is {heads * width}, not d_model {shape.d_model}; "
            f"legal is {legal}"
        )
    if heads % kv_heads:
        out.append(
            f"n_kv_heads {kv_heads} does not divide n_heads {heads}; "
            f"legal are {', '.join(map(str, divisors(heads)))}"
        )
    return out


def _norm_problems(shape: ModelShape) -> list[str]:
    out = []
    if shape.block == "sequential" and shape.n_norms != 2:
        out.append(f"n_norms is {shape.n_norms}; legal in a sequential block is 2")
    elif shape.n_norms not in (1, 2):
        out.append(f"n_norms is {shape.n_norms}; legal are 1, 2")
    if not shape.norm_eps > 0:
        out.append(f"norm_eps is {shape.norm_eps}; more than 0")
    return out


def _scaling_problems(shape: ModelShape) -> list[str]:
    kind = shape.rope_scaling
    if kind != "none" and shape.positions != "rotary":
        return [
            f'rope_scaling is "{kind}" but positions are "{shape.positions}"; '
            "legal is none, or rotary positions"
        ]
    out = []
    for field in dataclasses.fields(shape):
        value = getattr(shape, field.name)
        if (
            field.name in _SCALING_NUMBERS["llama3"]
            and field.name not in _SCALING_NUMBERS[kind]
            and value != field.default
        ):
            legal = [k for k, numbers in _SCALING_NUMBERS.items() if field.name in numbers]
            out.append(
                f'{field.name} is {value} but rope_scaling is "{kind}"; '
                f"legal with {' or '.join(legal)}"
            )
    if not shape.rope_factor >= 1:
        out.append(f"rope_factor is {shape.rope_factor}; at least 1")
    if kind == "llama3":
        if shape.rope_original < 1:
            out.append(f"rope_original is {shape.rope_original}; at least 1")
        if not 0 < shape.rope_low < shape.rope_high:
            out.append(
                f"rope_low {shape.rope_low} and rope_high {shape.rope_high}; "
                "legal are 0 < rope_low < rope_high"
            )
    return out
