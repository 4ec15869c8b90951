"""A Hugging Face `config.json`, read strictly: every switch is one that we honour, or an error.

In: the configuration and what a family says of its switches. Out: plain values under the present
names, absent ones at the default of `transformers` (5.24). A switch that is unknown, or asks for
something that our networks do not do, is refused by name, because a checkpoint read without it
would give other numbers in silence. What cannot change the numbers of a causal language model in
inference (dropout, token ids, generation settings of older versions, labels) is let pass.

Rotary switches are here too, since the families share them (`modeling_rope_utils`): `rope_scaling`,
where it is given, replaces `rope_parameters`; the base is the table's `rope_theta`, else the one
beside it, else 10,000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eyas.recipe import UsageError
from eyas.shape import ModelShape

__all__ = [
    "NEEDED",
    "Switch",
    "Switches",
    "listed",
    "read_switches",
    "refuse",
    "rope_config",
    "rope_shape",
]

NEEDED: Any = object()
"""The default of a switch without one."""

_FIRST = 5
"""Problems that are named; the others are counted."""


@dataclass(frozen=True)
class Switch:
    """A switch that we read. `count`: a whole number of at least 1; `number`: any number; `flag`:
    true or false, null being false as in `transformers`; `word`: a key of `words`, read as its
    value; `table`: an object. Null is the default of the other kinds."""

    kind: Literal["count", "number", "flag", "word", "table"]
    default: Any = NEEDED
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Switches:
    """`fixed`: the only values that mean what our networks do, whatever is absent has one of them;
    `harmless`: no number depends on it; `aliases`: older name to present name."""

    read: Mapping[str, Switch]
    fixed: Mapping[str, Sequence[Any]]
    harmless: frozenset[str]
    aliases: Mapping[str, str] = field(default_factory=dict)


_FIXED: Mapping[str, Sequence[Any]] = {
    "add_cross_attention": (False, None),
    "chunk_size_feed_forward": (0, None),
    "cross_attention_hidden_size": (None,),
    "is_encoder_decoder": (False, None),
    "per_layer_config": (None, {}),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
}

# Bookkeeping, labels and training settings; then the generation settings that older versions of
# transformers wrote into config.json.
_HARMLESS = frozenset(
    """_attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled
    _name_or_path architectures attention_dropout attn_implementation auto_map bos_token_id dtype
    eos_token_id finetuning_task gradient_checkpointing hidden_dropout id2label initializer_range
    is_decoder label2id name_or_path num_labels output_attentions output_hidden_states pad_token_id
    problem_type return_dict sep_token_id task_specific_params tf_legacy_loss tie_encoder_decoder
    tie_last_hidden_states tokenizer_class torch_dtype torchscript transformers_version use_bfloat16
    use_cache

    bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id
    forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences output_scores prefix remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens temperature top_k top_p typical_p""".split()
)

_ROPE: Mapping[str, Switch] = {
    "rope_parameters": Switch("table", None),
    "rope_scaling": Switch("table", None),
    "rope_theta": Switch("number", 10_000.0),
    "original_max_position_embeddings": Switch("count", None),
}

# The keys of the rotary table, beside rope_type (before: type) and rope_theta, and ours for them.
_SCALING: Mapping[str, Mapping[str, tuple[str, Switch]]] = {
    "default": {},
    "linear": {"factor": ("rope_factor", Switch("number"))},
    "llama3": {
        "factor": ("rope_factor", Switch("number")),
        "low_freq_factor": ("rope_low", Switch("number")),
        "high_freq_factor": ("rope_high", Switch("number")),
        "original_max_position_embeddings": ("rope_original", Switch("count")),
    },
}


def read_switches(family: str, config: Mapping[str, Any], switches: Switches) -> dict[str, Any]:
    """The values of every switch of `switches.read` and of the rotary ones, by present names.
    Raises UsageError naming what is missing, unknown, of a wrong kind or not honoured."""
    known = {**_ROPE, **switches.read}
    fixed = {**_FIXED, "partial_rotary_factor": (1, None), **switches.fixed}
    problems = []
    given: dict[str, Any] = {}
    for name, value in config.items():
        present = switches.aliases.get(name, name)
        if present in given and given[present] != value:
            problems.append(f"{name} is {value!r} and {present} is {given[present]!r}")
        given[present] = value
    problems += [f"{name} is missing" for name in known if _is_missing(known[name], name, given)]
    for name, value in given.items():
        if name in known:
            problems += _wrong_kind(name, value, known[name])
        elif name in fixed:
            if value not in fixed[name]:
                problems.append(f"{name} is {value!r}; we have only {fixed[name][0]!r}")
        elif name not in switches.harmless | _HARMLESS:
            problems.append(f"{name} is not a switch that we know")
    refuse(family, problems)
    return {name: _value(switch, name, given) for name, switch in known.items()}


def refuse(family: str, problems: Sequence[str]) -> None:
    """Raise UsageError if there are problems with the configuration."""
    if problems:
        raise UsageError(f"the {family} configuration cannot be read: {listed(problems)}")


def listed(problems: Sequence[str]) -> str:
    """The first five, and how many more."""
    more = len(problems) - _FIRST
    return "; ".join(problems[:_FIRST]) + (f"; and {more} more" if more > 0 else "")


def rope_shape(family: str, values: Mapping[str, Any], rotary: bool) -> dict[str, Any]:
    """The rotary fields of the shape, of values that `read_switches` gave. Without rotary positions
    the scaling says nothing and is not read. Raises UsageError for a kind that we do not have."""
    name = "rope_scaling" if values["rope_scaling"] else "rope_parameters"
    table = dict(values[name] or {})
    theta = table.pop("rope_theta", None) or values["rope_theta"]
    refuse(family, _wrong_kind(f"{name}.rope_theta", theta, Switch("number")))
    if not rotary:
        return {"rope_theta": float(theta)}
    old_kind = table.pop("type", "default")
    kind = table.pop("rope_type", old_kind)
    if kind not in _SCALING:
        refuse(family, [f"{name}.rope_type is {kind!r}; we have only {', '.join(_SCALING)}"])
    keys = _SCALING[kind]
    if "original_max_position_embeddings" in keys:
        outer = values["original_max_position_embeddings"]
        table.setdefault("original_max_position_embeddings", values["max_position_embeddings"])
        table |= {"original_max_position_embeddings": outer} if outer else {}
    if table.get("partial_rotary_factor") in (1, None):
        table.pop("partial_rotary_factor", None)
    problems = [
        f"{name}.{key} is not a switch that we know" for key in sorted(table) if key not in keys
    ]
    problems += [f"{name}.{key} is missing" for key in keys if key not in table]
    for key in [key for key in keys if key in table]:
        problems += _wrong_kind(f"{name}.{key}", table[key], keys[key][1])
    refuse(family, problems)
    fields = {ours: switch_value(switch, table[key]) for key, (ours, switch) in keys.items()}
    scaling = "none" if kind == "default" else kind
    return {"rope_theta": float(theta), "rope_scaling": scaling, **fields}


def rope_config(shape: ModelShape) -> dict[str, Any]:
    """The rotary switches of a shape, in today's form and in that of transformers 4 (`rope_theta`
    and `rope_scaling` beside each other), which knows no `rope_parameters` and would pass it over
    in silence."""
    kind = "default" if shape.rope_scaling == "none" else shape.rope_scaling
    scaling = {key: getattr(shape, ours) for key, (ours, _) in _SCALING[kind].items()}
    old = {"rope_type": kind, "type": kind, **scaling} if scaling else None
    return {
        "rope_theta": shape.rope_theta,
        "rope_scaling": old,
        "rope_parameters": {"rope_type": kind, "rope_theta": shape.rope_theta, **scaling},
    }


def switch_value(switch: Switch, value: Any) -> Any:
    """A number always as float, so that shapes that mean the same are equal."""
    return float(value) if switch.kind == "number" else value


def _is_missing(switch: Switch, name: str, given: Mapping[str, Any]) -> bool:
    return switch.default is NEEDED and given.get(name) is None


def _wrong_kind(name: str, value: Any, switch: Switch) -> list[str]:
    """Null is looked at by who knows the default."""
    kind = switch.kind
    if value is None and switch.default is not NEEDED:
        return []
    if kind == "count" and not (type(value) is int and value >= 1):
        return [f"{name} is {value!r}; a whole number of at least 1 is meant"]
    if kind == "number" and type(value) not in (int, float):
        return [f"{name} is {value!r}; a number is meant"]
    if kind == "flag" and type(value) is not bool:
        return [f"{name} is {value!r}; true or false is meant"]
    if kind == "table" and not isinstance(value, Mapping):
        return [f"{name} is no table"]
    if kind == "word" and (type(value) is not str or value not in switch.words):
        return [f"{name} is {value!r}; we have only {', '.join(switch.words)}"]
    return []


def _value(switch: Switch, name: str, given: Mapping[str, Any]) -> Any:
    value = given.get(name)
    if switch.kind == "flag":
        # Present and null is false in transformers; only an absent one is the default.
        return bool(value) if name in given else switch.default
    if value is None:
        return switch.default
    if switch.kind == "word":
        return switch.words[value]
    return switch_value(switch, value)
