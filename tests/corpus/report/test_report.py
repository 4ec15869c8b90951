"""The report loads nothing, shows everything, and nothing from a page can act in it."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.corpus.report import made

from eyas.corpus.report.cost import cost_facts
from eyas.corpus.report.funnel import Tally
from eyas.corpus.report.markup import Markup, el, join, text
from eyas.corpus.report.report import put_report, report_facts
from eyas.corpus.report.report_page import report_page
from eyas.corpus.steps.packs import resolve
from eyas.store import Store

ATTACK = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\u202e\ud800\x00\x1b[31m"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.values: list[str] = []
        self.links: list[str] = []
        self.data = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names[tag] += 1
        for name, value in attrs:
            self.attributes[name] += 1
            self.values.append(value or "")
            if name == "href":
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.data += data


def facts_of(hostile: str) -> dict[str, Any]:
    found = Tally()
    found.pages = 4
    found.measured({"gopher.words": 120, "gopher.word_length": 4.5, "x.new": 0.1}, "english")
    found.keep(hostile, 700)
    found.keep("en", 700)
    found.reject("gopher", "too_few_words", "en")
    found.reject("read", "broken")
    found.sample("kept", {"id": "1", "url": hostile, "language": hostile, "text": hostile})
    row = {"id": "2", "url": hostile, "language": "en", "text": hostile, "value": 3.0}
    found.sample("gopher/too_few_words", row | {"detail": hostile})
    recipe = made.recipe()
    clusters = {
        "clusters": 1,
        "sizes": [[2, 1]],
        "largest": [{"cluster": hostile, "documents": 2, "url": hostile, "text": hostile}],
    }
    return json.loads(json.dumps(report_facts(recipe, resolve(recipe.corpus), found, clusters)))


def page_of(hostile: str) -> str:
    return report_page(hostile, facts_of(hostile), made.cost())


def test_hostile_pages_are_shown_as_text() -> None:
    page, harmless = page_of(ATTACK), Tags(page_of("harmless"))
    found = Tags(page)
    assert found.names == harmless.names
    assert found.attributes == harmless.attributes
    assert not found.names.keys() & {"script", "img", "iframe", "link", "object", "form"}
    assert "<script>alert(1)</script>" in found.data
    assert not {"\x00", "\x1b", "\ud800"} & set(page)


def test_the_page_loads_nothing_and_says_so() -> None:
    found = Tags(page_of("harmless"))
    assert not found.attributes.keys() & {"src", "xlink:href", "srcset", "action", "onclick"}
    assert all(link.startswith("#") for link in found.links)
    assert any("default-src 'none'" in v for v in found.values)
    assert not any("url(" in v or "http:" in v for v in found.values)


def test_every_link_has_its_section() -> None:
    found = Tags(page_of("harmless"))
    assert {link[1:] for link in found.links} <= set(found.values)
    assert len(found.links) == 7


def test_text_takes_its_own_direction() -> None:
    assert '<p dir="auto">قصة قصيرة</p>' in page_of("قصة قصيرة")


def test_every_figure_is_there() -> None:
    data = Tags(page_of("corpus-name")).data
    for wanted in ("corpus-name", "too few words 1", "broken 1", "word length", "Kept, by language",
                   "3; kept from 50 on", "gopher.min_words: at least 50", "59 pages a CPU-second",
                   "under 1 ¢", "trafilatura"):  # fmt: skip
        assert wanted in data


def test_the_threshold_of_the_language_is_drawn_and_quoted() -> None:
    found = Tally()
    found.pages = 2
    found.measured({"language.score": 0.5}, "english")
    found.reject("language", "uncertain_language", "en")
    row = {"id": "1", "url": "https://x.test/", "language": "en", "text": "t", "value": 0.5}
    found.sample("language/uncertain_language", row)
    recipe = made.recipe(language_threshold=0.7)
    nothing = {"clusters": 0, "sizes": [], "largest": []}
    facts = report_facts(recipe, resolve(recipe.corpus), found, nothing)
    page = report_page("t", facts, made.cost())
    assert "language_threshold: at least .7; dropped first here: 1" in Tags(page).data
    assert "<title>at least .7: english</title>" in page
    assert ".5; kept from .7 on" in Tags(page).data


def test_a_damaged_record_is_shown_with_its_cause() -> None:
    found = Tally()
    found.pages = 1
    found.reject("read", "broken")
    row = {"id": "1", "url": "in/a.jsonl", "language": "", "text": "", "value": 402.0}
    found.sample("read/broken", row | {"detail": 'line 402: no "text" or "html"'})
    recipe = made.recipe()
    nothing = {"clusters": 0, "sizes": [], "largest": []}
    facts = report_facts(recipe, resolve(recipe.corpus), found, nothing)
    data = Tags(report_page("t", facts, made.cost())).data
    assert 'in/a.jsonlline 402: no "text" or "html"' in data


def test_a_value_without_a_rule_is_drawn_all_the_same() -> None:
    assert "new" in Tags(page_of("en")).data


def test_forty_languages_are_on_the_page_with_their_packs() -> None:
    facts = made.facts(4000, preset="fineweb")
    page = report_page("many", json.loads(json.dumps(facts)), made.cost())
    data = Tags(page).data
    assert all(code in data for code in made.LANGUAGES)
    assert made.TEXTS["ar"][:40] in data
    assert "arabic" in data
    assert len(page) < 2_000_000


def test_the_same_corpus_gives_the_same_json_and_the_page_survives_an_empty_one() -> None:
    assert made.facts(500) == made.facts(500)
    recipe = made.recipe()
    nothing = {"clusters": 0, "sizes": [], "largest": []}
    facts = report_facts(recipe, resolve(recipe.corpus), Tally(), nothing)
    page = report_page("empty", facts, cost_facts([], 0, 0.0))
    assert "No page came in." in Tags(page).data


def test_report_page_and_cost_are_written(folder_store: Store) -> None:
    facts = facts_of(ATTACK.replace("\ud800", ""))
    refs = put_report(folder_store, "0123456789abcdef", "name", facts, made.cost())
    assert [ref.key for ref in refs] == [
        "corpus/report-0123456789ab.json",
        "corpus/report-0123456789ab.html",
        "corpus/cost-0123456789ab.json",
    ]
    read = json.loads(folder_store.get(refs[0].key))
    assert read["funnel"][0]["stage"] == "read"
    assert read["ruleset"]["packs"]
    assert folder_store.get(refs[1].key).decode().startswith("<!doctype html>")
    assert json.loads(folder_store.get(refs[2].key))["total"]["cpu_seconds"] == pytest.approx(338)


def test_markup_escapes_what_is_not_markup() -> None:
    assert text("<b>") == "&lt;b&gt;"
    assert text(Markup("<b>")) == "<b>"
    assert text(None) == ""
    assert text(["<", [None, Markup("<br>")]]) == "&lt;<br>"
    assert text("a\r\x9b\ud800\t\n") == "a\ufffd\ufffd\ufffd\t\n"
    assert join(["a", None, ["", ["<"]], 0], "&") == "a&amp;&lt;&amp;0"
    assert el("td", ["a", el("b", "<")], class_="n", title='"') == (
        '<td class="n" title="&quot;">a<b>&lt;</b></td>'
    )
