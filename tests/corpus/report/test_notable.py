"""What the report points at: each notice for a fault that was seen somewhere, and no others."""

from __future__ import annotations

from typing import Any

from tests.corpus.report import made

from eyas.corpus.report.funnel import Tally
from eyas.corpus.report.notable import notices
from eyas.corpus.report.report import report_facts
from eyas.corpus.steps.packs import resolve

NO_CLUSTERS: dict[str, Any] = {"clusters": 0, "sizes": [], "largest": []}


def said(
    kept: dict[str, int],
    rejects: dict[tuple[str, str, str], int],
    clusters: dict[str, Any] = NO_CLUSTERS,
    **corpus: Any,
) -> list[str]:
    tally = Tally(pages=sum(kept.values()) + sum(rejects.values()))
    tally.kept.update(kept)
    tally.kept_bytes.update(kept)
    tally.rejects.update(rejects)
    recipe = made.recipe(**corpus)
    facts = report_facts(recipe, resolve(recipe.corpus), tally, clusters)
    return [n.sentence for n in notices(facts)]


def test_a_rule_that_eats_one_language_is_named_with_it() -> None:
    kept = {"en": 400, "de": 200, "ar": 60}
    rejects = {("gopher", "too_few_stop_words", "ar"): 140, ("gopher", "too_few_words", "en"): 50}
    found = said(kept, rejects)
    assert found == [
        "ar: 70% of the 200 documents that reach gopher are dropped for too few stop words "
        "(0.0% of the other languages'). Read some of them."
    ]


def test_what_every_language_loses_alike_is_not_a_notice() -> None:
    kept = {"en": 50, "ar": 50}
    rejects = {("gopher", "too_few_words", code): 50 for code in kept}
    assert said(kept, rejects) == []


def test_a_step_that_leaves_almost_nothing_of_the_only_language() -> None:
    assert said({"en": 10}, {("repetition", "top_2_gram", "en"): 190}) == [
        "en: repetition drops 95% of the 200 documents that reach it."
    ]


def test_a_small_language_says_nothing() -> None:
    assert said({"en": 900, "ar": 1}, {("gopher", "too_few_stop_words", "ar"): 30}) == []


def test_damage_and_runaway_pages() -> None:
    rejects = {("read", "broken", ""): 20, ("read", "truncated", ""): 10}
    rejects[("extract", "ran_away", "")] = 2
    assert said({"en": 900}, rejects) == [
        "3.2% of the records are broken or truncated: fetch those files again.",
        "2 pages made extraction run away or killed its worker; they are dropped.",
    ]


def test_an_extractor_that_fails_on_everything() -> None:
    rejects = {("extract", "extractor_failed", ""): 95, ("extract", "no_text", ""): 2}
    assert said({"en": 3}, rejects) == [
        "extract drops 97% of what reaches it, most for extractor failed."
    ]


def test_a_step_that_dropped_nothing_of_many() -> None:
    rejects = {(step, "x", "en"): 1 for step in ("url", "language", "repetition", "gopher")}
    assert said({"en": 2000}, rejects) == [
        "lines saw 2,000 documents and dropped none: is it set up?"
    ]


def test_one_page_on_a_thousand_sites() -> None:
    clusters = NO_CLUSTERS | {"largest": [{"cluster": "ab", "documents": 400}]}
    rejects = {(step, "x", "en"): 1 for step in made.recipe_steps()}
    assert said({"en": 1601}, rejects | {("duplicates", "duplicate", "en"): 399}, clusters) == [
        "One cluster of duplicates holds 400 documents, 20.0% of those that passed the filters."
    ]
