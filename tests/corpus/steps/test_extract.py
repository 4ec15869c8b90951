"""The same bytes give the same text, in any order and any process; languages are told apart."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.corpus.crawl import html_of
from tests.texts import page

from eyas.corpus.reading.read import Page
from eyas.corpus.steps.extract import EXTRACTORS, MAX_DEPTH, clean_text, extract_text
from eyas.corpus.steps.judge import Keys, judge
from eyas.corpus.steps.language import detect_language

PAGES = Path(__file__).resolve().parents[4] / "shared" / "data" / "pages"
MENU = "<nav><ul><li><a href=/>Home</a><li><a href=/s>Sitemap</a></ul></nav>"


def pages() -> list[str]:
    repeated = "<p>" + "The same footer sentence stands on every page of this site. " * 3 + "</p>"
    texts = [html_of(page(n)).decode().replace("</main>", repeated + "</main>") for n in range(6)]
    return [t.replace("<body>", "<body>" + MENU) for t in texts]


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_extraction_repeats_whatever_came_before(extractor: str) -> None:
    found = [extract_text(html, extractor) for html in pages()]
    assert all(len(text) > 500 for text in found)
    for _ in range(4):
        again = [extract_text(html, extractor) for html in reversed(pages())]
        assert list(reversed(again)) == found


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_extraction_is_the_same_in_another_process(extractor: str) -> None:
    script = (
        "import json, sys; from eyas.corpus.steps.extract import extract_text\n"
        "print(json.dumps([extract_text(h, sys.argv[1]) for h in json.load(sys.stdin)]))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, extractor],
            input=json.dumps(pages()),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        )
        assert json.loads(done.stdout) == [extract_text(h, extractor) for h in pages()]


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_the_main_text_stays_and_the_menu_goes(extractor: str) -> None:
    text = extract_text(pages()[0], extractor)
    assert page(0).split("\n\n")[1][:80] in text
    assert "Sitemap" not in text


@pytest.mark.skipif(not PAGES.is_dir(), reason=f"the real pages are not at {PAGES}")
@pytest.mark.parametrize(("extractor", "least"), [("trafilatura", 0.85), ("resiliparse", 0.75)])
def test_extraction_agrees_with_people_on_real_pages(extractor: str, least: float) -> None:
    gold = json.loads((PAGES / "gold.json").read_text())
    scores = []
    for path in sorted(PAGES.glob("*.html.gz"))[:15]:
        html = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        wanted = set(gold[path.name.split(".")[0]]["text"].split())
        got = set(extract_text(html, extractor).split())
        scores.append(2 * len(wanted & got) / (len(wanted) + len(got)))
    assert sum(scores) / len(scores) > least


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
@pytest.mark.parametrize(
    "html",
    [
        "",
        "\0\0\0",
        "<",
        "<html><body>",
        "<div>" * 50_000,
        "<table><tr><td>" * 3000,
        "<a href='" + "a" * 100_000,
        "<!--" * 1000,
        "<p>&#xD800;&#0;&#x110000;</p>",
        "<svg><foreignObject><math><mtext><p>" * 50,
    ],
    ids=range(10),
)
def test_hostile_html_is_a_verdict_not_a_crash(extractor: str, html: str) -> None:
    keys = Keys(extractor, (), 0.65)
    found = judge(Page("s", 0, "u", "", body=html.encode("utf-8", "replace") or b" "), keys)
    assert found.stage in ("extract", "language", "quality", "repetition")
    found.text.encode("utf-8")


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_depth_is_limited_exactly_and_ends_that_need_no_tag_do_not_count(extractor: str) -> None:
    text = page(1)
    keys = Keys(extractor, (), 0.65)

    def reason(html: str) -> str:
        return judge(Page("s", 0, "u", "", body=html.encode()), keys).reason

    def nested(depth: int) -> str:
        return "<div>" * depth + f"<p>{text}</p>" + "</div>" * depth

    assert reason(nested(MAX_DEPTH + 1)) == "too_deep"
    assert reason(nested(MAX_DEPTH)) != "too_deep"
    assert reason("<p>a sentence<br>" * 2000 + text) != "too_deep"


def test_text_comes_out_clean() -> None:
    assert clean_text("a\r\nb\rc\x00\x1b \n\n \n\n\nd\u2028e\ud800 \n") == "a\nb\nc\n\nd\ne?"


def test_a_long_run_of_spaces_is_cleaned_in_a_moment() -> None:
    """By the square of its length this one would take hours."""
    run = " \t\xa0" * 300_000
    assert clean_text(f"a{run}b{run}\nc") == f"a{run}b\nc"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", page(1)),
        ("ar", page(1, "ar")),
        ("fr", "Le chat est assis sur la table et regarde par la fenêtre de la cuisine."),
        ("de", "Der Hund läuft durch den Garten und bellt die Katze des Nachbarn an."),
        ("ru", "Собака бежит по саду и лает на соседскую кошку, которая сидит на заборе."),
        ("ja", "犬は庭を走り回り、塀の上に座っている隣の猫に向かって吠えている。"),
        ("hi", "कुत्ता बगीचे में दौड़ता है और पड़ोसी की बिल्ली पर भौंकता है।"),
        ("tr", "Köpek bahçede koşuyor ve komşunun kedisine havlıyor, çünkü kedi çitin üstünde."),
    ],
)
def test_languages_are_told_apart(language: str, text: str) -> None:
    found, score = detect_language(text.replace(" ", "\n", 3))
    assert found == language
    assert 0.65 <= score <= 1


def test_a_text_without_letters_has_no_certain_language() -> None:
    assert detect_language("")[1] < 0.65
    assert detect_language("\n \n")[1] < 0.65


def test_language_is_judged_before_quality_and_by_the_recipe() -> None:
    english = Page("s", 0, "u", "", text=page(1))
    assert judge(english, Keys("trafilatura", ("en", "ar"), 0.65)).reason == ""
    assert judge(english, Keys("trafilatura", ("ar",), 0.65)).reason == "other_language"
    score = judge(english, Keys("trafilatura", (), 0.0)).score
    assert judge(english, Keys("trafilatura", (), score)).reason == ""
    assert judge(english, Keys("trafilatura", (), min(1.0, score + 1e-6))).reason == (
        "uncertain_language"
    )
