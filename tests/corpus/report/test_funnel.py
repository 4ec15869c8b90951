"""Counts of shards add up to the same whatever their order, and no page is lost between stages."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.report.funnel import BINS, Tally, axis_of, bin_of, funnel, funnel_order, place

STEPS = ("url", "language", "repetition", "gopher", "lines")
ORDER = funnel_order(STEPS)

shards = st.lists(
    st.tuples(st.sampled_from(["read", "gopher"]), st.sampled_from(["a", "b"]), st.integers(0, 99)),
    max_size=12,
)


def filled(number: int, rows: list[tuple[str, str, int]]) -> Tally:
    part = Tally()
    for stage, reason, value in rows:
        language = "en" if value % 2 else "ar"
        row = {"id": f"{value:03d}-{number}", "url": "", "text": "", "language": language}
        part.pages += 1
        part.reject(stage, reason, language)
        part.measured({"gopher.words": value}, "english" if value % 3 else "general")
        part.keep(language, value)
        part.sample(f"{stage}/{reason}", row)
        part.sample("kept", row)
    return part


@given(st.lists(shards, min_size=3, max_size=3))
def test_tallies_merge_in_any_order(many: list[list[tuple[str, str, int]]]) -> None:
    parts = [
        json.loads(json.dumps(filled(number, rows).facts())) for number, rows in enumerate(many)
    ]
    whole = Tally.merged(parts).facts()
    assert Tally.merged(reversed(parts)).facts() == whole
    assert Tally.merged([Tally.merged(parts[:2]).facts(), parts[2]]).facts() == whole


def test_kept_documents_are_sampled_by_language_and_dropped_ones_by_reason() -> None:
    made = Tally()
    for number in range(40):
        language = "en" if number % 4 else "ar"
        row = {"id": f"{number:03d}", "url": "", "language": language, "text": "x" * 900}
        made.sample("kept", row)
        made.sample("gopher/too_few_words", row)
    assert [r["id"] for r in made.samples["kept"]] == ["000", "001", "002", "004"]
    assert [r["id"] for r in made.samples["gopher/too_few_words"]] == ["000", "001", "002"]
    assert len(made.samples["kept"][0]["text"]) == 400


def test_the_order_is_that_in_which_a_page_meets_the_stages() -> None:
    assert (
        *("read", "url", "extract", "language", "repetition", "gopher", "lines"),
        *("removed", "duplicates"),
    ) == ORDER
    assert funnel_order(("language", "gopher", "repetition")) == (
        *("read", "extract", "language", "gopher", "repetition", "removed", "duplicates"),
    )
    assert "language" in funnel_order(())


def test_the_funnel_counts_by_stage_and_language() -> None:
    rejects = Counter(
        {
            ("read", "broken", ""): 2,
            ("url", "blocked_domain", ""): 1,
            ("language", "uncertain_language", "en"): 1,
            ("gopher", "too_few_words", "ar"): 3,
            ("duplicates", "duplicate", "en"): 1,
        }
    )
    rows = funnel(ORDER, 13, rejects, Counter({"en": 4, "ar": 1}))
    stages = {row["stage"]: row for row in rows}
    assert [row["out"] for row in rows] == [11, 10, 10, 9, 9, 6, 6, 6, 5]
    assert [row["in"] for row in rows] == [13, *(row["out"] for row in rows[:-1])]
    assert stages["extract"]["languages"] == {}
    assert stages["language"]["languages"] == {"ar": 4, "en": 5}
    assert stages["gopher"]["languages"] == {"ar": 1, "en": 5}
    assert stages["duplicates"]["languages"] == {"ar": 1, "en": 4}
    assert stages["read"]["reasons"] == {"broken": 2}


def test_values_that_were_not_measured_are_in_no_histogram() -> None:
    made = Tally()
    made.measured({"gopher.words": float("nan"), "gopher.hashes": 0.0}, "english")
    assert made.histograms == {"gopher.hashes": {"english": [1] + [0] * (BINS - 1)}}


@pytest.mark.parametrize(
    ("name", "axis"),
    [("gopher.words", "count"), ("gopher.word_length", "length"), ("lines.removed_words", "share")],
)
def test_axes(name: str, axis: str) -> None:
    assert axis_of(name) == axis


@given(st.sampled_from(["share", "count", "length"]), st.floats(0, 1e7), st.floats(0, 1e7))
def test_places_keep_the_order_of_values(axis: str, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= place(axis, low) <= place(axis, high) <= 1


def test_every_value_has_a_bin() -> None:
    assert bin_of("repetition.top_2_gram", 0.0) == 0
    assert bin_of("repetition.top_2_gram", 1.0) == BINS - 1
    assert bin_of("repetition.top_2_gram", 9.0) == BINS - 1
    assert bin_of("repetition.top_2_gram", -1.0) == 0
    assert bin_of("gopher.words", 10_000_000) == BINS - 1
    assert 0 < bin_of("fineweb.duplicate_line_characters", 0.01) < BINS
