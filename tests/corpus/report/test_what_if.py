"""Judged again from recorded values, a corpus is what a run with those limits would have kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.report import made, stored

from eyas.corpus.report.what_if import Change, WhatIf, parse_change, what_if
from eyas.corpus.steps.packs import LanguageRules, resolve
from eyas.corpus.steps.rules import RULES, verdict
from eyas.recipe import EyasError, UsageError
from eyas.store import Manifest, Store, commit_manifest, open_store

SHARDS = (range(0, 300), range(300, 420))
FINEWEB = {"preset": "fineweb", "language_threshold": 0.6}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    store = open_store(str(tmp_path_factory.mktemp("corpus") / "store"))
    return store, stored.commit(store, made.recipe(**FINEWEB), SHARDS)


def ask(corpus: tuple[Store, Manifest], *changes: str) -> WhatIf:
    return what_if(*corpus, map(parse_change, changes))


def decided(changes: dict[str, float], language: str = "") -> dict[str, int]:
    """Kept by language, with every document decided one by one by the rules themselves."""
    recipe = made.recipe(**FINEWEB)
    ruleset = resolve(recipe.corpus)
    kept = dict.fromkeys(("en", "ar", "de", "zh", "sw"), 0)
    for number in (n for shard in SHARDS for n in shard):
        code = ("en", "ar", "de", "zh", "sw")[number % 5]
        if (0.5, 0.7, 0.8, 0.9, 0.95)[number // 5 % 5] < 0.6:
            continue
        rules = ruleset.for_language(code)
        limits = {step: dict(keys) for step, keys in rules.limits.items()}
        for key, value in changes.items():
            step, _, name = key.partition(".")
            if step in limits and language in ("", code):
                limits[step][name] = value
        values = stored.values_of(number, ruleset, code)
        kept[code] += verdict(values, LanguageRules(rules.pack, rules.steps, limits)) is None
    return kept


RULE = st.sampled_from([r for rules in RULES.values() for r in rules])


@settings(max_examples=40)
@given(RULE, st.floats(0.3, 2), st.sampled_from(["", "ar", "en"]))
def test_any_limit_for_all_or_one_language(
    corpus: tuple[Store, Manifest], rule: Any, factor: float, language: str
) -> None:
    if rule.step == "lines":
        return
    limit = resolve(made.recipe(**FINEWEB).corpus).for_language("en").limits[rule.step][rule.key]
    change = Change(f"{rule.step}.{rule.key}", float(limit or 0.2) * factor, language)
    answer = what_if(*corpus, [change])
    expected = decided({change.key: change.value}, language)
    assert {code: o.after for code, o in answer.languages.items()} == expected
    assert {code: o.before for code, o in answer.languages.items()} == decided({})
    for outcome in answer.languages.values():
        moved = sum(outcome.gained.values()) - sum(outcome.lost.values())
        assert outcome.after - outcome.before == moved


def test_the_same_limit_changes_nothing(corpus: tuple[Store, Manifest]) -> None:
    answer = ask(corpus, "gopher.max_hashes=0.1")
    assert answer.total.before == answer.total.after == sum(decided({}).values())
    assert (answer.moved, answer.total.gained, answer.total.lost) == (0, {}, {})
    assert answer.examples == {"gained": [], "lost": []}


def test_examples_are_urls_of_what_moved(corpus: tuple[Store, Manifest]) -> None:
    gained = ask(corpus, "gopher.min_words=0", "gopher.max_words=1e9")
    assert {r["reason"] for r in gained.examples["gained"]} <= {
        "gopher/too_few_words",
        "gopher/too_many_words",
    }
    assert gained.examples["gained"]
    assert all(r["url"].startswith(f"https://{r['language']}.test/")
               for r in gained.examples["gained"])  # fmt: skip
    lost = ask(corpus, "gopher.min_words=1e9")
    assert lost.total.after == 0
    assert lost.total.lost == {"gopher/too_few_words": lost.total.before}
    assert {r["language"] for r in lost.examples["lost"]} == {
        code for code, o in lost.languages.items() if o.before
    }


def test_a_higher_language_threshold_is_exact(corpus: tuple[Store, Manifest]) -> None:
    answer = ask(corpus, "language_threshold=0.75")
    assert answer.total.lost == {
        "language/uncertain_language": answer.total.before - answer.total.after
    }
    assert answer.total.unmeasured == 0
    one = ask(corpus, "ar.language_threshold=0.75")
    assert one.languages["ar"] == answer.languages["ar"]
    assert one.languages["en"].before == one.languages["en"].after


def test_a_lower_one_says_how_many_were_never_measured(corpus: tuple[Store, Manifest]) -> None:
    answer = ask(corpus, "language_threshold=0.5")
    assert answer.total.before == answer.total.after
    assert answer.total.unmeasured == 420 - answer.documents
    assert answer.total.unmeasured == 85


def test_other_languages_stay_out(folder_store: Store) -> None:
    manifest = stored.commit(folder_store, made.recipe(languages=["en", "ar"]), [range(100)])
    answer = what_if(folder_store, manifest, [Change("language_threshold", 0.0)])
    assert answer.languages["de"].after == answer.languages["de"].unmeasured == 0
    assert answer.languages["en"].unmeasured == 4


def test_the_answer_is_json(corpus: tuple[Store, Manifest]) -> None:
    answer = json.loads(json.dumps(ask(corpus, "ar.gopher.min_words=300").to_dict()))
    assert answer["changes"] == ["ar.gopher.min_words=300"]
    assert answer["languages"]["ar"]["lost"]
    assert answer["total"]["lost"] == answer["languages"]["ar"]["lost"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gopher.stop_words=3", "gopher.stop_words shapes"),
        ("c4.min_line_words=2", "--set corpus.c4.min_line_words"),
        ("url.max_soft_words=2", "url decides before"),
        ("lines.max_removed_words=.1", "lines is not among the steps"),
        ("gopher.min_wrds=3", "did you mean gopher.min_words?"),
        ("nonsense=3", "legal are language_threshold, repetition.max"),
        ("fi.gopher.min_words=3", 'no page was labelled "fi"; this corpus has ar, de, en, sw, zh'),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(
    corpus: tuple[Store, Manifest], change: str, said: str
) -> None:
    with pytest.raises(UsageError) as error:
        ask(corpus, change)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["gopher.min_words", "gopher.min_words=", "a.b=c", "x=nan", "="])
def test_what_is_no_change(text: str) -> None:
    with pytest.raises(UsageError, match="is no change"):
        parse_change(text)


def test_a_corpus_without_recorded_values(folder_store: Store) -> None:
    manifest = commit_manifest(folder_store, Manifest("corpus", "a" * 64))
    with pytest.raises(EyasError, match="before values were recorded"):
        what_if(folder_store, manifest, [Change("gopher.min_words", 3)])


def test_a_key_may_be_written_as_in_a_recipe() -> None:
    assert parse_change("corpus.gopher.min_words=30") == Change("gopher.min_words", 30)
    assert parse_change("corpus.language_threshold=.5") == Change("language_threshold", 0.5)


def test_the_limit_of_one_language_stands_in_any_order(corpus: tuple[Store, Manifest]) -> None:
    one, all_others = "ar.gopher.min_words=30", "gopher.min_words=300"
    assert ask(corpus, one, all_others).languages == ask(corpus, all_others, one).languages


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["gopher.min_words=30", "corpus.gopher.min_words=40"], "given twice"),
        (["gopher.min_words=-1"], "at least 0"),
        (["dedup_bands=20"], "eyas curate RECIPE --set corpus.dedup_bands="),
    ],
)
def test_what_means_nothing_is_said(
    corpus: tuple[Store, Manifest], changes: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ask(corpus, *changes)
