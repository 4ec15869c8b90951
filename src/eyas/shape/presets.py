"""From a model recipe to a `ModelShape`: a preset (a small TOML file in `eyas/presets/models/`) and
the recipe's overrides.

Three numbers may be left out of a preset and then follow from the others, so that overriding
`d_model` alone gives a sensible network: `head_dim` is d_model / n_heads; `d_ff` is 4 d_model
(Vaswani et al. 2017), or with SwiGLU, which has three matrices instead of two, 8/3 d_model rounded
up to a multiple of 64 (Shazeer 2020); `n_norms` is 1 in a parallel block, 2 in a sequential one.
"""

from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources
from typing import Any

from eyas.recipe import Recipe, UsageError

from .model_shape import ModelShape, divisors

__all__ = ["model_shape", "preset_names", "preset_shape"]

_NOT_THE_NETWORKS = ("preset", "licence")
_NEEDED_FOR_SCALING = {"linear": ("rope_factor",), "llama3": ("rope_factor", "rope_original")}


def model_shape(recipe: Recipe, vocab_size: int | None = None) -> ModelShape:
    """The shape that `recipe.model` asks for.

    The vocabulary is `model.vocab_size`, else `vocab_size` (the tokenizer's), else the preset's.
    `max_sequence` is the recipe's or the preset's, or the longest sequence of the data where that
    is longer. Raises UsageError for an unknown preset, an impossible shape, a `model.vocab_size`
    that is not the tokenizer's, or learned positions that are fewer than a sequence has.
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
    if keys.block not in (None, values.get("block", "parallel")):
        values.pop("n_norms", None)  # that was of the preset's block
    for item in dataclasses.fields(keys):
        given = getattr(keys, item.name)
        if item.name not in _NOT_THE_NETWORKS and given is not None:
            values[item.name] = given
    _fit_sequence(values, _longest_sequence(recipe))
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


def _longest_sequence(recipe: Recipe) -> int:
    return max([recipe.data.sequence] + [m.sequence for m in recipe.data.milestones])


def _fit_sequence(values: dict[str, Any], sequence: int) -> None:
    """Positions that are computed reach as far as the data; a table of learned ones does not."""
    if sequence <= values["max_sequence"]:
        return
    if values.get("positions") == "learned":
        known = values["max_sequence"]
        raise UsageError(
            f"model.max_sequence is {known}, but data.sequence or a milestone asks for {sequence}, "
            f"and learned positions end there; legal are a model.max_sequence of at least "
            f"{sequence}, or sequences of at most {known}"
        )
    values["max_sequence"] = sequence


def _complete(name: str, values: dict[str, Any]) -> ModelShape:
    """Fill in what follows from the rest."""
    d_model, n_heads = values["d_model"], values["n_heads"]
    if "d_ff" not in values:
        gated = values.get("activation") == "swiglu"
        values["d_ff"] = -(-8 * d_model // (3 * 64)) * 64 if gated else 4 * d_model
    if values.get("block") == "sequential":
        values.setdefault("n_norms", 2)
    if "head_dim" not in values:
        if d_model % n_heads:
            counts = _head_counts(d_model, even=values.get("positions", "rotary") == "rotary")
            raise UsageError(
                f"model {name}: n_heads {n_heads} does not divide d_model {d_model}; "
                + (
                    f"legal n_heads are {', '.join(map(str, counts))}"
                    if counts
                    else "rotary positions need an even d_model"
                )
            )
        values["head_dim"] = d_model // n_heads
    scaling = values.get("rope_scaling", "none")
    missing = [n for n in _NEEDED_FOR_SCALING.get(scaling, ()) if n not in values]
    if missing:
        raise UsageError(
            f'model {name}: rope_scaling "{scaling}" needs {", ".join(missing)}; '
            "write the numbers of the model that it is taken from"
        )
    return ModelShape(name=name, **values)


def _head_counts(d_model: int, even: bool) -> list[int]:
    """Head counts that give a width of at least 8 (or any, in a tiny model), an even one if asked
    for."""
    counts = divisors(d_model)
    if even:
        counts = [h for h in counts if d_model // h % 2 == 0]
    return [h for h in counts if d_model // h >= 8] or counts
