"""What a corpus is made from: input files, stages with the recipe values that each reads, removals.

A plan is made from a recipe, or read back from the object that a finished corpus left of it
(`corpus/inputs-<identity>.json`): that is how documents are taken out when the sources are gone.
Its identity is that of the corpus: everything that decides an output, and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eyas.recipe import Recipe, UsageError
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    dump_json,
    identity,
    put_object,
    read_manifest,
    read_object,
)
from eyas.work import Stage

from .reading.inputs import InputFile, input_files, package_sources
from .removals import Removals, put_removals, read_removals
from .stages.exchange import BUCKETS
from .steps.language import known_languages
from .steps.packs import Ruleset, resolve
from .steps.urls import put_url_lists

__all__ = ["Plan", "make_plan", "put_inputs", "recorded_plan", "with_removals"]

# A version is raised by hand when a stage gives other output for the same input.
_VERSIONS = {
    "extract": 2,
    "filter": 2,
    "bands": 1,
    "remove": 1,
    "match": 1,
    "cluster": 2,
    "write": 2,
}


@dataclass(frozen=True)
class Plan:
    """`corpus` is the recipe's section as a recipe has it, for the report; `stages` go by the last
    part of their names; `removal_set` is what the stages read of the removals."""

    name: str
    corpus: Mapping[str, Any]
    files: tuple[InputFile, ...]
    stages: Mapping[str, Stage]
    removals: Removals = field(default_factory=Removals)
    removal_set: ObjectRef | None = None

    @property
    def identity(self) -> str:
        """SHA-256 (hex) of all that decides the output."""
        removed = [self.removal_set] if self.removal_set else []
        return identity("corpus", *self._made_of, *removed)

    @property
    def before_removals(self) -> str:
        """What the identity would be if nothing had been taken out: by it a tokenizer knows the
        corpus that it was trained on."""
        return identity("corpus", *self._made_of)

    @property
    def _made_of(self) -> tuple[Any, Any]:
        stages = sorted((s.name, s.version, s.settings) for s in self.stages.values())
        return stages, [(f.ref, f.etag, f.kind) for f in self.files]

    @property
    def recipe(self) -> Recipe:
        """The recipe as far as the corpus goes."""
        return Recipe.build({"name": self.name, "store": ".", "corpus": self.corpus})

    @property
    def ruleset(self) -> Ruleset:
        """The filters as resolved."""
        return Ruleset.from_json(self.stages["filter"].settings["ruleset"])


def make_plan(recipe: Recipe, store: Store) -> Plan:
    """The plan of a recipe, with what was asked to be removed so far.

    Raises UsageError for sources that are not there, or not fetched, and for unknown languages.
    """
    _check_languages(recipe.corpus.languages)
    files = input_files(recipe, store, _fetched(recipe, store))
    corpus = recipe.to_dict()["corpus"]
    return with_removals(store, Plan(recipe.name, corpus, tuple(files), _stages(recipe, store)))


def recorded_plan(store: Store, manifest: Manifest) -> Plan:
    """The plan of a finished corpus, with what was asked to be removed since. The stages are those
    that made it; only the two that see removals are today's, being run again."""
    (ref,) = manifest.under("corpus/inputs-")
    raw = json.loads(read_object(store, ref))
    files = tuple(InputFile(**f) for f in raw["files"])
    stages = {name: Stage(**stage) for name, stage in raw["stages"].items()}
    for name in ("remove", "write"):
        stages[name] = dataclasses.replace(stages[name], version=_VERSIONS[name])
    return with_removals(store, Plan(raw["name"], raw["corpus"], files, stages))


def put_inputs(store: Store, plan: Plan) -> ObjectRef:
    """Write what `recorded_plan` reads."""
    body = {
        "name": plan.name,
        "corpus": plan.corpus,
        "files": [dataclasses.asdict(f) for f in plan.files],
        "stages": {name: dataclasses.asdict(stage) for name, stage in plan.stages.items()},
    }
    return put_object(store, f"corpus/inputs-{plan.identity[:12]}.json", dump_json(body))


def with_removals(store: Store, plan: Plan) -> Plan:
    """The plan with all that was asked to be removed until now."""
    removals = read_removals(store)
    return dataclasses.replace(plan, removals=removals, removal_set=put_removals(store, removals))


def _check_languages(languages: Sequence[str]) -> None:
    """A code that nothing is ever labelled with would drop every page without a word."""
    unknown = sorted(set(languages) - known_languages()) if languages else ()
    if unknown:
        raise UsageError(
            f"corpus.languages: nothing is ever detected as {', '.join(unknown)}; write ISO 639-1 "
            "codes such as en, ar, zh, or fastText's own such as arz"
        )


def _fetched(recipe: Recipe, store: Store) -> Manifest | None:
    packages = package_sources(recipe)
    manifest = read_manifest(store, "sources") if packages else None
    if packages and manifest is None:
        raise UsageError(
            f"{store.url} has no fetched packages yet ({packages[0]}); `eyas curate` fetches them"
        )
    if manifest is not None and manifest.facts.get("request"):
        packed = manifest.facts["request"]["sources"]
        if packed != sorted(set(packages)):
            raise UsageError(
                f"{store.url} holds the packages of other sources ({', '.join(packed)}); "
                "`eyas curate` fetches those of this recipe"
            )
    return manifest


def _stages(recipe: Recipe, store: Store) -> dict[str, Stage]:
    """Every stage with the recipe values that it reads."""
    c = recipe.corpus
    ruleset = resolve(c)
    made = (
        _stage(
            "extract",
            extractor=c.extractor,
            max_page_bytes=c.max_page_bytes,
            max_page_nodes=c.max_page_nodes,
            page_seconds=c.page_seconds,
            text_field=c.text_field,
            url=put_url_lists(recipe, store) if "url" in ruleset.steps else None,
        ),
        _stage("filter", languages=sorted(c.languages), ruleset=ruleset.to_json()),
        _stage(
            "bands",
            bands=c.dedup_bands,
            rows=c.dedup_rows,
            shingle=c.dedup_shingle,
            tokens_per_word=_tokens_per_word(ruleset),
        ),
        _stage("remove"),
        _stage("match", "match_stage:run_match", buckets=BUCKETS),
        _stage("cluster", "match_stage:run_cluster"),
        _stage("write", seed=c.seed, validation_share=c.validation_share),
    )
    return {stage.name.removeprefix("corpus."): stage for stage in made}


def _stage(name: str, run: str = "", **settings: Any) -> Stage:
    run = run or f"{name}_stage:run_shard"
    return Stage(f"corpus.{name}", _VERSIONS[name], f"eyas.corpus.stages.{run}", settings)


def _tokens_per_word(ruleset: Ruleset) -> dict[str, int]:
    """By language where it is not that of "", all others. Apart from the ruleset, so that a changed
    threshold does not change the stage."""
    by_language = {
        code: ruleset.for_language(code).limits["words"]["tokens_per_word"]
        for code in ("", *sorted(known_languages()))
    }
    usual = by_language[""]
    return {code: n for code, n in by_language.items() if not code or n != usual}
