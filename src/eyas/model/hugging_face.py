"""Our networks in Hugging Face's form, both ways: which family a shape belongs to, and its mapping.

In: a shape and tensors by our names (or a `config.json` and tensors by theirs). Out: the other; no
files. What is one network here are three classes of `transformers`: Falcon (LayerNorm, GELU, rotary
or ALiBi), Llama (RMSNorm, SwiGLU, rotary) and GPT-2 (LayerNorm, GELU, learned positions; for
Jurassic shapes). No shape fits two of them. Every mapping is bit for bit, keeps dtypes, and works
on meta tensors, or on meta tensors but for the few that are to be converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from eyas.recipe import UsageError
from eyas.shape import ModelShape

from . import falcon_names, gpt2_names, llama_names

__all__ = ["Family", "family_of", "from_hugging_face", "to_hugging_face"]

Family = Literal["falcon", "llama", "gpt2"]

To = Callable[[ModelShape, Mapping[str, Tensor]], tuple[dict[str, Any], dict[str, Tensor]]]
From = Callable[[Mapping[str, Any], Mapping[str, Tensor]], tuple[ModelShape, dict[str, Tensor]]]


@dataclass(frozen=True)
class _Mapping:
    model_types: tuple[str, ...]
    why_not: Callable[[ModelShape], list[str]]
    to_theirs: To
    to_ours: From


_FAMILIES: Mapping[Family, _Mapping] = {
    "falcon": _Mapping(
        falcon_names.MODEL_TYPES,
        falcon_names.why_not_falcon,
        falcon_names.to_falcon,
        falcon_names.from_falcon,
    ),
    "llama": _Mapping(
        llama_names.MODEL_TYPES,
        llama_names.why_not_llama,
        llama_names.to_llama,
        llama_names.from_llama,
    ),
    "gpt2": _Mapping(
        gpt2_names.MODEL_TYPES,
        gpt2_names.why_not_gpt2,
        gpt2_names.to_gpt2,
        gpt2_names.from_gpt2,
    ),
}


def family_of(shape: ModelShape) -> Family:
    """The family of `transformers` that computes what this shape does. Raises UsageError saying
    what each lacks if there is none."""
    reasons = {name: family.why_not(shape) for name, family in _FAMILIES.items()}
    for name, why_not in reasons.items():
        if not why_not:
            return name
    listed = "; ".join(f"{name}: {', '.join(why_not)}" for name, why_not in reasons.items())
    raise UsageError(
        f"model {shape.name} is in no family of transformers, so it has no Hugging Face form "
        f"({listed})"
    )


def to_hugging_face(
    shape: ModelShape, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our tensors as a configuration and a state dict of the shape's family; dtypes are kept.

    The configuration has no token ids, dtype or version: whoever writes the folder adds them. A
    tied output projection is left out of the state. Raises UsageError for a shape of no family, and
    naming a tensor that is missing, unknown or of a wrong shape.
    """
    return _FAMILIES[family_of(shape)].to_theirs(shape, tensors)


def from_hugging_face(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[ModelShape, dict[str, Tensor]]:
    """A configuration and state dict as our shape (named after the family) and tensors, in the
    order of the network; dtypes are kept.

    Names may lack the prefix of the base model. An `lm_head.weight` beside a tied embedding must
    equal it; where one of the two is a meta tensor only its shape is looked at. Raises UsageError
    naming the `model_type` that is none of ours, a switch that is unknown or that we do not have,
    and a tensor that is missing, unknown or of a wrong shape.
    """
    model_type = config.get("model_type")
    for family in _FAMILIES.values():
        if model_type in family.model_types:
            return family.to_ours(config, state)
    legal = ", ".join(name for family in _FAMILIES.values() for name in family.model_types)
    given = "is missing" if model_type is None else f"is {model_type!r}"
    raise UsageError(f"model_type {given} in the configuration; we have {legal}")
