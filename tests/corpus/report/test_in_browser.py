"""In a real browser the page is whole, at a telephone's width too, and there are no complaints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import launched, opened
from tests.corpus.report import made

from eyas.corpus.report.report_page import report_page

SECTIONS = ["funnel", "languages", "values", "duplicates", "samples", "cost", "settings"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = json.loads(json.dumps(made.facts(3000, preset="fineweb")))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page("forty languages: أربعون لغة", facts, made.cost()), "utf-8")
    return path


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (1200, True)])
def test_the_page_is_whole_at_every_width(browser: Any, page: Path, width: int, dark: bool) -> None:
    with opened(browser, page, width, dark) as (tab, problems):
        assert [s.get_attribute("id") for s in tab.query_selector_all("section")] == SECTIONS
        shown = tab.evaluate("document.documentElement.scrollWidth")
        assert shown <= width
        assert all(s.bounding_box()["height"] > 40 for s in tab.query_selector_all("section"))
        assert len(tab.query_selector_all("figure svg")) > 30
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = tab.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        assert _light(ink) == dark
        assert _light(paper) != dark
        assert problems == []


def test_arabic_runs_from_the_right_and_english_from_the_left(browser: Any, page: Path) -> None:
    with opened(browser, page) as (tab, problems):
        found = tab.evaluate(
            """() => [...document.querySelectorAll('article p')].map(p => {
                const range = document.createRange();
                range.setStart(p.firstChild, 0);
                range.setEnd(p.firstChild, 1);
                const first = range.getBoundingClientRect(), box = p.getBoundingClientRect();
                return [p.textContent, getComputedStyle(p).direction,
                        first.left - box.left, box.right - first.right];
            })"""
        )
        shown = {text[:20]: rest for text, *rest in found}
        direction, left, right = shown[made.TEXTS["ar"][:20]]
        assert (direction, left > 100, right < 2) == ("rtl", True, True)
        direction, left, right = shown[made.TEXTS["en"][:20]]
        assert (direction, left < 2, right > 100) == ("ltr", True, True)
        assert problems == []


def test_links_lead_to_sections_and_not_away_from_the_page(browser: Any, page: Path) -> None:
    with opened(browser, page) as (tab, problems):
        tab.click("nav a >> text=Samples")
        assert tab.url == page.as_uri() + "#samples"
        assert 0 <= tab.query_selector("#samples").bounding_box()["y"] < 400
        assert problems == []


def _light(colour: str) -> bool:
    return sum(int(c) for c in colour[colour.index("(") + 1 : -1].split(",")[:3]) > 384
