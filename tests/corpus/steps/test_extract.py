"""The same bytes give the same text, in any order and any process; whatever a page does to its
extractor is that page's verdict."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.crawl import html_of
from tests.corpus.steps.hostile import SHAPES
from tests.texts import page

from eyas.corpus.reading.read import Page
from eyas.corpus.steps import extract
from eyas.corpus.steps.extract import (
    EXTRACTORS,
    Extracted,
    clean_text,
    extract_page,
    extract_text,
)

PAGES = Path(__file__).resolve().parents[4] / "shared" / "data" / "pages"
MENU = "<nav><ul><li><a href=/>Home</a><li><a href=/s>Sitemap</a></ul></nav>"
NODES = 100_000
both = pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
real = pytest.mark.skipif(not PAGES.is_dir(), reason=f"the real pages are not at {PAGES}")


def pages() -> list[str]:
    repeated = "<p>" + "The same footer sentence stands on every page of this site. " * 3 + "</p>"
    texts = [html_of(page(n)).decode().replace("</main>", repeated + "</main>") for n in range(6)]
    return [t.replace("<body>", "<body>" + MENU) for t in texts]


def found(body: bytes, extractor: str = "resiliparse", charset: str = "") -> Extracted:
    return extract_page(Page("s", 0, "u", "", body=body, charset=charset), extractor, NODES)


def real_pages() -> list[tuple[str, bytes]]:
    return [(p.name, gzip.decompress(p.read_bytes())) for p in sorted(PAGES.glob("*.html.gz"))]


@both
def test_extraction_repeats_whatever_came_before(extractor: str) -> None:
    """With trafilatura's `deduplicate` six of six pages changed by the fifth call (its #778)."""
    first = [extract_text(html, extractor) for html in pages()]
    assert all(len(text) > 500 for text in first)
    for _ in range(5):
        again = [extract_text(html, extractor) for html in reversed(pages())]
        assert list(reversed(again)) == first


@real
@both
def test_real_pages_repeat_in_any_order(extractor: str) -> None:
    some = real_pages()[:12]
    first = {name: found(body, extractor) for name, body in some}
    random.Random(1).shuffle(some)
    assert {name: found(body, extractor) for name, body in some} == first


@both
def test_extraction_is_the_same_in_another_process(extractor: str) -> None:
    script = (
        "import json, sys; from eyas.corpus.steps.extract import extract_text\n"
        "print(json.dumps([extract_text(h, sys.argv[1]) for h in json.load(sys.stdin)]))"
    )
    here = [extract_text(h, extractor) for h in pages()]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, extractor],
            input=json.dumps(pages()),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        )
        assert json.loads(done.stdout) == here


@both
def test_the_main_text_stays_and_the_menu_goes(extractor: str) -> None:
    text = extract_text(pages()[0], extractor)
    assert page(0).split("\n\n")[1][:80] in text
    assert "Sitemap" not in text


@real
@pytest.mark.parametrize(("extractor", "least"), [("trafilatura", 0.94), ("resiliparse", 0.91)])
def test_extraction_agrees_with_people_on_real_pages(extractor: str, least: float) -> None:
    """F1 over words, as bench/extraction.py has it for all pages."""
    gold = json.loads((PAGES / "gold.json").read_text())
    scores = []
    for name, body in real_pages()[:20]:
        wanted = Counter(gold[name.split(".")[0]]["text"].split())
        got = Counter(found(body, extractor).text.split())
        scores.append(2 * (wanted & got).total() / (wanted.total() + got.total()))
    assert sum(scores) / len(scores) > least


@both
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_hostile_html_is_a_verdict_not_a_crash(extractor: str, name: str) -> None:
    verdict = found(SHAPES[name](20_000).encode("utf-8", "replace"), extractor)
    assert bool(verdict.text) != bool(verdict.reason)
    assert verdict.reason in ("", "no_text", "too_many_nodes", "too_deep", "too_many_attributes")


@both
@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from(["", "utf-8", "utf-16", "shift_jis", "x-none"]))
def test_any_bytes_are_a_verdict(extractor: str, body: bytes, charset: str) -> None:
    verdict = found(b"<html><body>" + body, extractor, charset)
    assert bool(verdict.text) != bool(verdict.reason)
    assert clean_text(verdict.text) == verdict.text


class PanicException(BaseException):
    """As Rust extensions raise it: not an Exception."""


@pytest.mark.parametrize(
    "error",
    [RecursionError("deep"), MemoryError(), PanicException("at line 1\0"), KeyError("x")],
    ids=lambda e: type(e).__name__,
)
def test_whatever_an_extractor_raises_is_counted(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(html: str) -> str:
        raise error

    monkeypatch.setitem(extract.EXTRACTORS, "broken", broken)
    verdict = found(b"<p>x</p>", "broken")
    assert verdict.reason == "extractor_failed"
    assert verdict.detail.startswith(type(error).__name__)
    assert "\0" not in verdict.detail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_is_meant_for_the_process_is_passed_on(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(html: str) -> str:
        raise error

    monkeypatch.setitem(extract.EXTRACTORS, "stopped", stopped)
    with pytest.raises(type(error)):
        found(b"<p>x</p>", "stopped")


def test_more_text_than_page_is_absurd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extract.EXTRACTORS, "echo", lambda html: html * 200)
    verdict = found(b"<p>a page</p>", "echo")
    assert (verdict.reason, verdict.text) == ("extractor_failed", "")
    assert "2600 characters of text from a page of 13" in verdict.detail


def test_limits_are_verdicts_with_their_value() -> None:
    page_of = Page("s", 0, "u", "", body=b"<br>" * 11)
    assert extract_page(page_of, "resiliparse", 10) == Extracted("", "too_many_nodes", 11)
    assert found(b"<div>" * 5000).reason == "too_deep"
    assert found(b" \n ") == Extracted("", "no_text", 3)


def test_text_that_needs_no_extraction_is_cleaned() -> None:
    plain = Page("s", 0, "u", "", text="a <b> c\r\n\x00\n\n\n d ")
    assert extract_page(plain, "resiliparse", NODES) == Extracted("a <b> c\n\n d")


def test_a_page_is_read_in_its_character_set() -> None:
    text = "Пекарь открывает лавку до восхода солнца. " * 5
    body = f"<html><body><article><p>{text}</p></article></body></html>".encode("koi8-r")
    assert found(body, charset="koi8-r").text.startswith("Пекарь открывает")


def test_text_comes_out_clean() -> None:
    assert clean_text("a\r\nb\rc\x00\x1b \n\n \n\n\nd\u2028e\ud800 \n") == "a\nb\nc\n\nd\ne?"
    assert clean_text("a\x00 \nb\x85c\n\n\u3000\n\nd") == "a\nb\nc\n\nd"


@given(st.text("ab\r\n\t \xa0\x00\x85\u3000\ud800é", max_size=60))
def test_clean_text_stays_as_it_is(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
    assert "\r" not in once
    assert "\n\n\n" not in once
    assert " \n" not in once
    once.encode("utf-8")


def test_a_long_run_of_spaces_is_cleaned_in_a_moment() -> None:
    """By the square of its length this one would take hours."""
    run = " \t\xa0" * 300_000
    assert clean_text(f"a{run}b{run}\nc") == f"a{run}b\nc"
