"""The recipe: one TOML file in, one typed, validated, frozen value out, hashed by section.

Everything that a run depends on is here; secrets never are, only the names of environment
variables. A stage's identity uses `section_hash` of just the sections that it reads, so changing a
learning rate recomputes no corpus.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from . import sections as s
from .corpus_keys import STEPS
from .errors import UsageError
from .validate import build_section, describe_section, suggest, toml_name

__all__ = ["Recipe", "parse_override"]

_SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SOURCE_RULE = "name of letters, digits, - and _, at most 40"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FOREIGN = ("mds", "megatron", "hf")
_TOP = {"name": "a short name: letters, digits, - and _", "store": "s3://bucket/prefix or a folder"}


@dataclass(frozen=True)
class Recipe:
    """A whole run. Sections are frozen dataclasses of `eyas.recipe.sections`."""

    name: str
    store: str
    corpus: s.Corpus = field(default_factory=s.Corpus)
    tokenizer: s.TokenizerKeys = field(default_factory=s.TokenizerKeys)
    data: s.Data = field(default_factory=s.Data)
    model: s.ModelKeys = field(default_factory=s.ModelKeys)
    train: s.Train = field(default_factory=s.Train)
    layout: s.LayoutKeys = field(default_factory=s.LayoutKeys)
    cluster: s.Cluster = field(default_factory=s.Cluster)
    chain: s.Chain = field(default_factory=s.Chain)
    watch: s.Watch = field(default_factory=s.Watch)
    judge: s.Judge = field(default_factory=s.Judge)
    serve: s.Serve = field(default_factory=s.Serve)

    @classmethod
    def load(cls, path: str | Path, set: Mapping[str, Any] | None = None) -> Recipe:
        """Read and validate `path`; `set` overrides keys (`{"train.lr": 3e-4}`).

        Raises UsageError with every problem found, each naming its key.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read the recipe {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
        return cls.parse(text, str(path), set)

    @classmethod
    def parse(cls, text: str, origin: str, set: Mapping[str, Any] | None = None) -> Recipe:
        """As `load`, from text; `origin` names it in errors."""
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{origin}: not valid TOML: {error}") from error
        for name, value in (set or {}).items():
            _override(raw, name, value)
        return cls.build(raw, origin)

    @classmethod
    def build(cls, raw: Mapping[str, Any], origin: str = "recipe") -> Recipe:
        """From nested dicts."""
        problems: list[str] = []
        types = {n: t for n, t in typing.get_type_hints(cls).items() if n not in _TOP}
        for name in raw:
            if name not in types and name not in _TOP:
                problems.append(f"{name}: no such key{suggest(name, [*types, *_TOP])}")
        values: dict[str, Any] = {name: _top(raw, name, problems) for name in _TOP}
        values |= {n: build_section(t, raw.get(n, {}), n, problems) for n, t in types.items()}
        recipe = cls(**values)
        if not problems:
            problems = _conflicts(recipe)
        if problems:
            head = f"{origin}: " + (
                "one problem" if len(problems) == 1 else f"{len(problems)} problems"
            )
            raise UsageError(head + "".join(f"\n  {p}" for p in problems))
        return recipe

    def section_hash(self, *names: str) -> str:
        """SHA-256 (hex) of the resolved values of these sections."""
        values = {n: _plain(getattr(self, n)) for n in sorted(names)}
        text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def hash(self) -> str:
        """SHA-256 of the whole recipe."""
        return self.section_hash(*(f.name for f in dataclasses.fields(self)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, keys that are left to a preset omitted."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def to_toml(self) -> str:
        """The recipe as resolved; loads back to an equal value."""
        return tomli_w.dumps(self.to_dict())

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """JSON schema (2020-12) for editors."""
        properties: dict[str, Any] = {
            name: {"type": "string", "description": doc} for name, doc in _TOP.items()
        }
        for name, section in typing.get_type_hints(cls).items():
            if name in _TOP:
                continue
            properties[name] = describe_section(section)
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Eyas recipe",
            "type": "object",
            "properties": properties,
            "required": list(_TOP),
            "additionalProperties": False,
        }


def parse_override(text: str) -> tuple[str, Any]:
    """`train.lr=3e-4` to `("train.lr", 0.0003)`; what is not a TOML value is taken as a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f'--set "{text}": write --set SECTION.KEY=VALUE, such as train.lr=3e-4')
    try:
        parsed: Any = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return name.strip(), parsed


def _override(raw: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        child = raw.setdefault(part, {})
        if not isinstance(child, dict):
            raise UsageError(f"--set {name}: {part} is not a section")
        raw = child
    raw[last] = value


def _top(raw: Mapping[str, Any], name: str, problems: list[str]) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        problems.append(f"{name}: missing; write {name} = {_TOP[name]!r}")
        return ""
    legal = value[0].isalnum() and all(c.isalnum() or c in "-_." for c in value)
    if name == "name" and not legal:
        problems.append(f'name: "{value}" is not legal; use {_TOP["name"]}')
    return value


def _conflicts(r: Recipe) -> list[str]:
    """Combinations that no single key shows."""
    out = []
    if "://" in r.store and not r.store.startswith("s3://"):
        out.append(f'store: "{r.store}" is not legal; write s3://bucket/prefix or a folder')
    if r.train.global_batch % r.data.sequence:
        lower = r.train.global_batch // r.data.sequence * r.data.sequence or r.data.sequence
        out.append(
            f"train.global_batch: {r.train.global_batch} is not a multiple of data.sequence "
            f"({r.data.sequence}); the nearest below is {lower}"
        )
    if r.train.tokens < r.train.global_batch:
        out.append(
            f"train.tokens: {r.train.tokens} is less than one step (train.global_batch = "
            f"{r.train.global_batch})"
        )
    if r.train.lr_min > r.train.lr:
        out.append(f"train.lr_min: {r.train.lr_min} is more than train.lr ({r.train.lr})")
    if r.train.warmup_tokens > r.train.tokens:
        out.append(
            f"train.warmup_tokens: {r.train.warmup_tokens} is more than train.tokens "
            f"({r.train.tokens})"
        )
    if r.tokenizer.vocab_size < r.tokenizer.reserved + 256:
        out.append(
            f"tokenizer.vocab_size: {r.tokenizer.vocab_size} has no room for "
            f"{r.tokenizer.reserved} ids and 256 bytes; at least {r.tokenizer.reserved + 256}"
        )
    return out + _step_conflicts(r.corpus) + _mixture_conflicts(r)


def _step_conflicts(corpus: s.Corpus) -> list[str]:
    """`corpus.steps` are steps, each once, those that come before the text's words first."""
    out = []
    for number, step in enumerate(corpus.steps):
        if step not in STEPS:
            out.append(f'corpus.steps: there is no step "{step}"{suggest(step, STEPS)}')
        elif step in corpus.steps[:number]:
            out.append(f'corpus.steps: "{step}" is there twice')
    first = [step for step in ("url", "language") if step in corpus.steps]
    if not out and list(corpus.steps[: len(first)]) != first:
        out.append(f"corpus.steps: {' and '.join(first)} must come first, in this order")
    if not out and corpus.steps and "language" not in corpus.steps:
        out.append("corpus.steps: language is missing; the packs of the other steps need it")
    return out


def _mixture_conflicts(r: Recipe) -> list[str]:
    """The same for `[data] sources` and `[data] milestones`."""
    data, out = r.data, []
    names = [source.name for source in data.sources]
    for where, url in (("tokenizer.from", r.tokenizer.from_), ("data.from", data.from_)):
        if (scheme := _scheme(url)) not in ("", "s3"):
            out.append(f'{where}: "{scheme}:" is no store; write s3://bucket/prefix or a folder')
    for number, source in enumerate(data.sources):
        where = f"data.sources[{number}]"
        if not _SOURCE_NAME.fullmatch(source.name):
            out.append(f'{where}.name: "{source.name}" is not legal; use a short {_SOURCE_RULE}')
        elif source.name in names[:number]:
            out.append(f'{where}.name: "{source.name}" is there twice')
        if (scheme := _scheme(source.from_)) not in ("", "s3", *_FOREIGN):
            hint = suggest(scheme, [*_FOREIGN, "s3"])
            out.append(f'{where}.from: there is no kind of source "{scheme}:"{hint}')
        if source.languages and source.from_:
            out.append(f"{where}.languages: only documents of this run's corpus are chosen so")
        if source.from_ and data.from_:
            out.append(f"{where}.from: data.from is given, which is where all sources come from")
    open_ended = [s.name for s in data.sources if not (s.from_ or s.languages or data.from_)]
    if len(open_ended) > 1:
        out.append(
            f"data.sources: {' and '.join(open_ended)} both take all that is left; give languages"
        )
    if data.sources and not any(s.weight for s in data.sources):
        out.append("data.sources: every weight is 0")
    seen = 0
    sequence, batch = data.sequence, r.train.global_batch
    for number, milestone in enumerate(data.milestones):
        where = f"data.milestones[{number}]"
        if milestone.tokens <= seen:
            out.append(
                f"{where}.tokens: {milestone.tokens} is not after {seen}; list them in order"
            )
        seen = milestone.tokens
        if unknown := sorted(set(milestone.weights) - set(names)):
            out.append(
                f"{where}.weights: no source is named {unknown[0]}{suggest(unknown[0], names)}"
            )
        if milestone.weights and not any(milestone.weights.values()):
            out.append(f"{where}.weights: every weight is 0")
        sequence, batch = milestone.sequence or sequence, milestone.global_batch or batch
        if batch % sequence:
            out.append(f"{where}: {batch} tokens a step are not a multiple of {sequence} a sample")
    return out


def _scheme(url: str) -> str:
    """What stands before the first colon, "" for a path."""
    found = _SCHEME.match(url)
    return found[1] if found else ""


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = ((toml_name(f), getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: _plain(v) for name, v in pairs if v is not None}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
