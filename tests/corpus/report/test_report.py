"""The report loads nothing, shows everything, and nothing from a page can act in it."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.report.funnel import BINS, Tally, bin_of, funnel
from eyas.corpus.report.report import put_report, report_facts
from eyas.corpus.report.report_page import report_page
from eyas.recipe import Recipe
from eyas.store import Store

ATTACK = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\u202e\ud800"
RECIPE = Recipe.build({"name": "t", "store": "./t"})
CLUSTERS = {"clusters": 1, "sizes": [[2, 1]], "largest": [{"cluster": "00ff", "documents": 2}]}


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.values: list[str] = []
        self.data = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names[tag] += 1
        for name, value in attrs:
            self.attributes[name] += 1
            self.values.append(value or "")

    def handle_data(self, data: str) -> None:
        self.data += data


def tally(text: str) -> Tally:
    found = Tally()
    found.pages = 3
    found.measured({"words": 120, "word_length": 4.5, "top_2_gram": 0.1})
    found.keep(text, 700)
    found.reject("quality", "too_few_words", text)
    found.reject("read", "broken")
    found.sample("kept", {"id": "1", "url": text, "language": text, "text": text})
    row = {"id": "2", "url": text, "language": text, "text": text, "value": 3.0, "detail": text}
    found.sample("quality/too_few_words", row)
    return found


def facts_of(text: str) -> dict[str, Any]:
    return report_facts(RECIPE, tally(text), CLUSTERS)


def test_hostile_pages_are_shown_as_text() -> None:
    page = report_page(ATTACK, facts_of(ATTACK))
    harmless = Tags(report_page("name", facts_of("harmless")))
    found = Tags(page)
    assert found.names == harmless.names
    assert found.attributes == harmless.attributes
    assert not found.names.keys() & {"script", "img", "a", "iframe", "link", "object"}
    assert "<script>alert(1)</script>" in found.data


def test_the_page_loads_nothing_and_says_so() -> None:
    found = Tags(report_page("name", facts_of("harmless")))
    assert not found.attributes.keys() & {"src", "href", "xlink:href", "srcset", "action"}
    assert any("default-src 'none'" in v for v in found.values)
    assert not any("url(" in v or "http:" in v for v in found.values)


def test_text_takes_its_own_direction() -> None:
    page = report_page("name", facts_of("قصة قصيرة"))
    assert "<p dir=auto>قصة قصيرة</p>" in page


def test_every_figure_is_there() -> None:
    data = Tags(report_page("corpus-name", facts_of("en"))).data
    for wanted in ("corpus-name", "too few words 1", "broken 1", "top 2 gram", "00ff", "Kept"):
        assert wanted in data


def test_the_report_is_written_as_json_and_html_and_lone_surrogates_do_no_harm(
    folder_store: Store,
) -> None:
    facts = facts_of(ATTACK.replace("\ud800", ""))
    json_ref, html_ref = put_report(folder_store, "0123456789abcdef", "name", facts)
    assert json_ref.key == "corpus/report-0123456789ab.json"
    assert html_ref.key == "corpus/report-0123456789ab.html"
    read = json.loads(folder_store.get(json_ref.key))
    assert read["funnel"][0]["stage"] == "read"
    assert read["histograms"][0]["bins"]
    assert folder_store.get(html_ref.key).decode().startswith("<!doctype html>")


shards = st.lists(
    st.tuples(
        st.sampled_from(["read", "quality"]), st.sampled_from(["a", "b"]), st.integers(0, 99)
    ),
    max_size=12,
)


@given(st.lists(shards, min_size=3, max_size=3))
def test_tallies_merge_in_any_order(many: list[list[tuple[str, str, int]]]) -> None:
    parts = []
    for number, rows in enumerate(many):
        part = Tally()
        for stage, reason, value in rows:
            part.pages += 1
            part.reject(stage, reason, "en")
            part.measured({"words": value})
            part.sample(f"{stage}/{reason}", {"id": f"{value:03d}-{number}", "url": "", "text": ""})
        parts.append(json.loads(json.dumps(part.facts())))
    assert Tally.merged(parts).facts() == Tally.merged(reversed(parts)).facts()
    nested = [Tally.merged(parts[:2]).facts(), parts[2]]
    assert Tally.merged(nested).facts() == Tally.merged(parts).facts()


def test_the_funnel_counts_by_stage_and_language() -> None:
    rejects = Counter(
        {
            ("read", "broken", ""): 2,
            ("language", "uncertain_language", "en"): 1,
            ("quality", "too_few_words", "ar"): 3,
            ("duplicates", "duplicate", "en"): 1,
        }
    )
    stages = {row["stage"]: row for row in funnel(12, rejects, Counter({"en": 4, "ar": 1}))}
    assert [row["out"] for row in stages.values()] == [10, 10, 9, 9, 6, 5]
    assert stages["language"]["languages"] == {"ar": 4, "en": 5}
    assert stages["quality"]["languages"] == {"ar": 1, "en": 5}
    assert stages["duplicates"]["languages"] == {"ar": 1, "en": 4}
    assert stages["read"]["reasons"] == {"broken": 2}


def test_histogram_bins_take_every_value() -> None:
    assert bin_of("top_2_gram", 0.0) == 0
    assert bin_of("top_2_gram", 9.0) == BINS - 1
    assert bin_of("words", 0) == 0
    assert bin_of("words", 10**9) == BINS - 1
    assert bin_of("word_length", 10) == BINS // 2
