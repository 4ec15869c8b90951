"""Every limit of every language, resolved: a recipe's `[corpus]` in, a `Ruleset` out.

Each layer replaces keys of those before it: the published English values, the preset, the shipped
pack of the language, the recipe's tables, the user's own packs. English stands on the published
values alone; all other packs stand on `general`, which is also what a language without a pack
takes. The pack files say where their numbers come from (FineWeb-2's configurations mostly).

A limit is compared with what is measured, and that is counted in tokens: in Chinese a token is a
character. Only n-grams and shingles are of words, `tokens_per_word` tokens each. `c4.bad_words` is
a list of words here, since workers read no files of the recipe.

`to_json` is what stages carry as a setting, so it holds no more than they can use: the steps that
run, and the packs of the languages that are kept. A limit that nobody reads recomputes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from eyas.recipe import (
    FILTERS,
    Corpus,
    CorpusPreset,
    FilterTables,
    LanguagePack,
    UsageError,
    read_table,
)

from .word_lists import read_words

__all__ = ["LanguageRules", "Ruleset", "resolve"]

_log = logging.getLogger("eyas.corpus")
Limits = Mapping[str, Mapping[str, Any]]
_EVERYWHERE = ("language", "words", "punctuation")
_OTHERS = "*"
_CODE = re.compile(r"([a-z]{2,3})(?:[-_]([a-z]{4}))?(?:[-_](?:[a-z]{2}|[0-9]{3}))?", re.I)


@dataclass(frozen=True)
class LanguageRules:
    """What one language is held to. `steps` in their order; `limits` by step, then by key as the
    recipe names it (`limits["gopher"]["min_words"]`), and besides the steps "words" and
    "punctuation". `limits["language"]["threshold"]` is the least language score."""

    pack: str
    steps: tuple[str, ...]
    limits: Limits


@dataclass(frozen=True)
class Ruleset:
    """The rules of every language. `steps` are all that run, in their order; `packs` by name."""

    steps: tuple[str, ...]
    packs: Mapping[str, LanguageRules]
    codes: Mapping[str, str] = field(repr=False)
    scripts: Mapping[str, tuple[str, ...]] = field(repr=False)

    def for_language(self, code: str) -> LanguageRules:
        """The rules of `ar`, `arb`, `arb_Arab`, `ar-EG`; those of `general` for a language, or a
        script of it, without its own. The same object every time."""
        return self.packs[_pack_of(code, self.codes, self.scripts)]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; the packs but `general` as differences from it."""
        base = self.packs[self.codes[_OTHERS]]
        return {
            "steps": list(self.steps),
            "packs": {
                name: {
                    "steps": list(rules.steps),
                    "limits": _difference(rules.limits, {} if rules is base else base.limits),
                    "codes": sorted(c for c, n in self.codes.items() if n == name),
                    "scripts": list(self.scripts[name]),
                }
                for name, rules in sorted(self.packs.items())
            },
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ruleset:
        """Back from `to_json`."""
        codes = {c: name for name, pack in raw["packs"].items() for c in pack["codes"]}
        base = _tuples(raw["packs"][codes[_OTHERS]]["limits"])
        packs = {
            name: LanguageRules(name, tuple(pack["steps"]), _layered(base, _tuples(pack["limits"])))
            for name, pack in raw["packs"].items()
        }
        scripts = {name: tuple(pack["scripts"]) for name, pack in raw["packs"].items()}
        return cls(tuple(raw["steps"]), packs, codes, scripts)


def resolve(corpus: Corpus) -> Ruleset:
    """The rules of a recipe. Raises UsageError that names a pack or list that cannot be read, or
    limits between which nothing lies; warns of keys whose step does not run."""
    preset = read_table(CorpusPreset, _toml(_presets("corpus", corpus.preset)), corpus.preset)
    stack = _shipped_stack(corpus, preset)
    for name, own in _own_packs(corpus.language_packs).items():
        stack.put_own(name, own)
    steps = corpus.steps or preset.steps
    _tell_unread(corpus, steps)
    english_only = () if corpus.steps else preset.english_only
    rules = {}
    for name in stack.used(corpus.languages):
        running = tuple(s for s in steps if s not in english_only or name in stack.english)
        limits = functools.reduce(_layered, stack.layers[name])
        rules[name] = LanguageRules(name, running, _pruned(limits, running))
        _check_order(rules[name])
    kept = {code: name for code, name in stack.codes.items() if name in rules}
    return Ruleset(tuple(steps), rules, kept, {name: stack.scripts[name] for name in rules})


def _tell_unread(corpus: Corpus, steps: Iterable[str]) -> None:
    """Keys for steps that do not run look as if they did something."""
    tables = {name: dict(table) for name, table in _given(corpus).items()}
    tables["url"] = {
        f.name: value
        for f in dataclasses.fields(corpus.url)
        if (value := getattr(corpus.url, f.name)) != getattr(Corpus().url, f.name)
    }
    unread = [f"{step}.{key}" for step, keys in tables.items() if step not in steps for key in keys]
    if unread:
        _log.warning(
            "%s set in [corpus] without effect: the steps are %s (corpus.preset, corpus.steps)",
            ", ".join(unread),
            ", ".join(steps),
        )


def _check_order(rules: LanguageRules) -> None:
    """No document has between 200 and 100 words."""
    keys = rules.limits.get("gopher", {})
    for low, high in (("min_words", "max_words"), ("min_word_length", "max_word_length")):
        least, most = keys.get(low, 0), keys.get(high, math.inf)
        if least > most:
            raise UsageError(
                f"corpus.gopher: {low} = {least:g} and {high} = {most:g} (pack {rules.pack}) keep "
                "no document; set both"
            )


@dataclass
class _Stack:
    """The layers of every pack by name, lowest first, while they are put on each other. `english`
    are the packs that stand on the published values alone."""

    layers: dict[str, list[Limits]] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    english: set[str] = field(default_factory=set)

    def put(self, name: str, pack: LanguagePack, layers: list[Limits]) -> None:
        self.layers[name] = layers
        self.scripts[name] = pack.scripts
        self.codes |= {code.lower(): name for code in pack.codes}
        if pack.published:
            self.english.add(name)

    def put_own(self, name: str, own: LanguagePack) -> None:
        """A pack of the user's, on the one that its languages had before."""
        if not own.codes:
            raise UsageError(f'{name}.toml: codes is missing; write codes = ["sw"], or ["*"]')
        below = sorted({_pack_of(code, self.codes, self.scripts) for code in own.codes})
        if len(below) > 1:
            raise UsageError(
                f"{name}.toml: its codes have the packs {', '.join(below)} so far; "
                "write one file for each"
            )
        if name in self.layers and name != below[0]:
            raise UsageError(f"{name}.toml: another language's pack has this name; choose another")
        own = dataclasses.replace(own, published=below[0] in self.english)
        self.put(name, own, [*self.layers[below[0]], _given(own), _threshold(own)])

    def used(self, languages: Iterable[str]) -> list[str]:
        """The packs that `languages` need, and that of all others; every pack if none is named."""
        named = {_pack_of(code, self.codes, self.scripts) for code in languages}
        return sorted({*(named or self.codes.values()), self.codes[_OTHERS]})


def _shipped_stack(corpus: Corpus, preset: CorpusPreset) -> _Stack:
    """The shipped packs with the recipe's tables on top."""
    stack = _Stack()
    recipe = [_given(corpus), {"language": {"threshold": corpus.language_threshold}}]
    general = _given(_shipped()["general"])
    for name, pack in _shipped().items():
        middle = [] if pack.published or name == "general" else [general]
        stack.put(name, pack, [_published(), _given(preset), *middle, _given(pack), *recipe])
    return stack


def _pack_of(code: str, codes: Mapping[str, str], scripts: Mapping[str, tuple[str, ...]]) -> str:
    if code in codes:
        return codes[code]
    parts = _CODE.fullmatch(code)
    name = codes.get(parts[1].lower(), "") if parts else ""
    if not parts or not name:
        return codes[_OTHERS]
    foreign = parts[2] and scripts[name] and parts[2].title() not in scripts[name]
    return codes[_OTHERS] if foreign else name


def _own_packs(folder: str) -> dict[str, LanguagePack]:
    """The user's packs by file name, in its order."""
    if not folder:
        return {}
    place = Path(folder).expanduser()
    files = sorted(place.glob("*.toml"))
    if not files:
        raise UsageError(f"corpus.language_packs: there is no .toml file in {folder}")
    return {file.stem: read_table(LanguagePack, _toml(file), str(file)) for file in files}


@functools.cache
def _shipped() -> Mapping[str, LanguagePack]:
    folder = resources.files("eyas") / "presets" / "languages"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): read_table(LanguagePack, _toml(file), file.name)
        for file in files
        if file.name.endswith(".toml")
    }


@functools.cache
def _published() -> Limits:
    return _given(read_table(FilterTables, _toml(_presets("corpus", "published")), "published"))


def _presets(kind: str, name: str) -> Traversable:
    return resources.files("eyas") / "presets" / kind / f"{name}.toml"


def _toml(file: Traversable | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from error


def _given(tables: Corpus | FilterTables) -> Limits:
    """The keys that a layer sets, by table."""
    out = {}
    for name in (*FILTERS, *_EVERYWHERE):
        table = getattr(tables, name, None)
        if table is not None:
            out[name] = {k: v for k, v in vars(table).items() if v is not None}
    if "bad_words" in out["c4"]:
        out["c4"]["bad_words"] = tuple(read_words(out["c4"]["bad_words"]))
    return out


def _threshold(pack: LanguagePack) -> Limits:
    score = pack.language_threshold
    return {} if score is None else {"language": {"threshold": score}}


def _layered(below: Limits, above: Limits) -> Limits:
    return {
        name: {**below.get(name, {}), **above.get(name, {})} for name in sorted({*below, *above})
    }


def _difference(limits: Limits, base: Limits) -> Limits:
    """What `_layered(base, …)` needs to give `limits`."""
    found = {
        name: {k: v for k, v in keys.items() if k not in base.get(name, {}) or base[name][k] != v}
        for name, keys in limits.items()
    }
    return {name: keys for name, keys in found.items() if keys}


def _pruned(limits: Limits, steps: Iterable[str]) -> Limits:
    kept = {*steps, *_EVERYWHERE}
    return {name: keys for name, keys in limits.items() if name in kept}


def _tuples(limits: Mapping[str, Mapping[str, Any]]) -> Limits:
    return {
        name: {k: tuple(v) if isinstance(v, list) else v for k, v in keys.items()}
        for name, keys in limits.items()
    }
