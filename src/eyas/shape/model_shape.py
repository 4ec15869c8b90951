"""From a model recipe to the one value that describes a network: `ModelShape`.

In: a preset (a small TOML file in `eyas/presets/models/`) and the recipe's overrides. Out: a frozen
shape that the network, the checkpoint and the planner all read. Two numbers may be left out of a
preset and then follow from the others: `head_dim` is d_model / n_heads, `d_ff` is 4 d_model
(Vaswani et al. 2017, kept by Falcon), so that overriding `d_model` alone gives a sensible network.
What is fixed today, for every shape: rotary positions in half-split form (GPT-NeoX), LayerNorm with
bias, exact GELU, attention and MLP in parallel, no bias in a linear layer (Almazrouei et al. 2023,
"The Falcon Series of Open Language Models").
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from eyas.recipe import Recipe, UsageError

__all__ = ["ModelShape", "model_shape", "preset_names", "preset_shape"]

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


@dataclass(frozen=True)
class ModelShape:
    """What a network looks like. Raises UsageError, naming the legal values, when impossible.

    `n_norms` 1: attention and MLP read one LayerNorm; 2: each its own. `tied`: the output
    projection is the embedding. `max_sequence`: positions the model may be asked for (rotary has
    no parameters).
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


def model_shape(recipe: Recipe, vocab_size: int | None = None) -> ModelShape:
    """The shape that `recipe.model` asks for.

    The vocabulary is `model.vocab_size`, else `vocab_size` (the tokenizer's), else the preset's.
    `max_sequence` is the preset's, or `data.sequence` where that is longer. Raises UsageError for
    an unknown preset, an impossible shape, or a `model.vocab_size` that is not the tokenizer's.
    """
    keys = recipe.model
    if keys.vocab_size is not None and vocab_size not in (None, keys.vocab_size):
        raise UsageError(
            f"model.vocab_size is {keys.vocab_size} but the tokenizer has {vocab_size} items; "
            f"leave model.vocab_size out, or write {vocab_size}"
        )
    values = _preset(keys.preset)
    if vocab_size is not None:
        values["vocab_size"] = vocab_size
    for item in dataclasses.fields(keys):
        given = getattr(keys, item.name)
        if item.name != "preset" and given is not None:
            values[item.name] = given
    values["max_sequence"] = max(values["max_sequence"], recipe.data.sequence)
    return _complete(keys.preset, values)


def preset_names() -> list[str]:
    """The presets in the package, sorted."""
    folder = resources.files("eyas") / "presets" / "models"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def preset_shape(name: str) -> ModelShape:
    """A preset as published, without a recipe."""
    return _complete(name, _preset(name))


def _preset(name: str) -> dict[str, Any]:
    if name not in preset_names():
        raise UsageError(f'model.preset: no preset "{name}"; legal are {", ".join(preset_names())}')
    file = resources.files("eyas") / "presets" / "models" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _complete(name: str, values: dict[str, Any]) -> ModelShape:
    """Fill in what follows from the rest."""
    d_model, n_heads = values["d_model"], values["n_heads"]
    values.setdefault("d_ff", 4 * d_model)
    if "head_dim" not in values:
        if d_model % n_heads:
            raise UsageError(
                f"model {name}: n_heads {n_heads} does not divide d_model {d_model}; "
                f"legal n_heads are {_listed(_head_counts(d_model))}"
            )
        values["head_dim"] = d_model // n_heads
    return ModelShape(name=name, **values)


def _problems(shape: ModelShape) -> list[str]:
    out = [
        f"{name} is {getattr(shape, name)}; at least 1"
        for name in _COUNTS
        if getattr(shape, name) < 1
    ]
    if out:
        return out
    heads, kv_heads, width = shape.n_heads, shape.n_kv_heads, shape.head_dim
    if width % 2:
        out.append(f"head_dim {width} is odd; rotary positions need an even one")
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
        divisors = [k for k in range(1, heads + 1) if heads % k == 0]
        out.append(
            f"n_kv_heads {kv_heads} does not divide n_heads {heads}; legal are {_listed(divisors)}"
        )
    if shape.n_norms not in (1, 2):
        out.append(f"n_norms is {shape.n_norms}; legal are 1, 2")
    if not shape.rope_theta > 0:
        out.append(f"rope_theta is {shape.rope_theta}; more than 0")
    if not shape.norm_eps > 0:
        out.append(f"norm_eps is {shape.norm_eps}; more than 0")
    return out


def _head_counts(d_model: int) -> list[int]:
    """Head counts that give an even width of at least 8 (or any even one, in a tiny model)."""
    counts = [h for h in range(1, d_model // 2 + 1) if d_model % h == 0 and d_model // h % 2 == 0]
    return [h for h in counts if d_model // h >= 8] or counts


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values)) if values else "none"
