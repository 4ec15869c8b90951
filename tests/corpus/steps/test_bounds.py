"""Pages that would take minutes are refused by their tags alone; real and old-fashioned ones are
not."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.steps.hostile import SHAPES, TEXT, many, numbered

from eyas.corpus.steps.bounds import MAX_ATTRIBUTES, MAX_DEPTHS, Excess, check_bounds
from eyas.corpus.steps.extract import EXTRACTORS
from eyas.corpus.steps.tags import find_tags

PAGES = Path(__file__).resolve().parents[4] / "shared" / "data" / "pages"
NODES = 100_000
_LIMITS = """
import json, pathlib, re, resource, sys
from eyas.corpus.reading.read import Page
from eyas.corpus.steps.extract import EXTRACTORS, extract_page
from tests.corpus.steps.hostile import SHAPES
extractor, size, seconds, names = json.loads(sys.argv[1])
EXTRACTORS[extractor]("<p>Warm up.")
for name in names:
    body = SHAPES[name](size).encode()
    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, resource.RLIM_INFINITY))
    print(name, file=sys.stderr, flush=True)
    found = extract_page(Page("s", 0, "", "", body=body), extractor, 100_000)
    assert found.reason != "extractor_failed", found
status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss begins at the parent's size
print(int(re.search(r"VmHWM:\\s*([0-9]+)", status)[1]) // 1024)
"""


def reason(html: str, nodes: int = NODES) -> tuple[str, float]:
    """Of a refusal, with its value; ("", 0) for none."""
    try:
        check_bounds(html.encode(), nodes)
    except Excess as excess:
        return excess.reason, excess.value
    return "", 0


def peak_memory(extractor: str, size: int, names: list[str], seconds: int) -> int:
    """MiB of a process that extracts these shapes; it is killed if one takes more CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITS, json.dumps([extractor, size, seconds, names])],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert done.returncode == 0, done.stderr[-500:]
    return int(done.stdout)


def test_nodes_are_counted_exactly() -> None:
    assert reason("<br>" * 1000, 1000) == ("", 0)
    assert reason("<br>" * 1001, 1000) == ("too_many_nodes", 1001)
    assert reason("<p>x</p>" * 1000, 1000) == ("", 0)
    assert reason("<!-- <p> -->" * 2000, 1000) == ("", 0)
    assert reason("<script>'<p>'</script>" * 1000, 1000) == ("", 0)
    assert reason("a < b, 1 <2, <3 & </" * 1000, 1000) == ("", 0)


def test_the_depths_of_all_tags_are_bounded() -> None:
    deep = next(n for n in range(10_000) if n * (n - 1) // 2 > MAX_DEPTHS)
    assert reason("<div>" * (deep - 1)) == ("", 0)
    assert reason("<div>" * deep)[0] == "too_deep"
    assert reason("<div>" * 500 + "<p>x</p>" * 10_000) == ("", 0)
    assert reason("<div>" * 500 + "<p>x</p>" * 30_000)[0] == "too_deep"


def test_attributes_of_one_element_are_bounded() -> None:
    fits = " ".join(f"a{n}" for n in range(MAX_ATTRIBUTES))
    assert reason(f"<p {fits}>x") == ("", 0)
    assert reason(f"<p {fits} b>x") == ("too_many_attributes", MAX_ATTRIBUTES + 1)
    assert reason(f"<body {fits}><p {fits}>") == ("", 0)
    assert reason(f"<body {fits}><p><body b>") == ("too_many_attributes", MAX_ATTRIBUTES + 1)
    assert reason('<p data="' + "a b=c " * 10_000 + '">x') == ("", 0)


def test_formatting_elements_that_come_back_are_nodes() -> None:
    """At most three with the same tag do, so pages that never close a <font> are read."""
    assert reason("<p>" + numbered("<b a=#>", 4000) + "<p>x" * 1000)[0] == "too_many_nodes"
    assert reason("<p><font size=2>x" * 10_000) == ("", 0)
    assert reason("<p><b>x</b> <i>y</i>" * 10_000) == ("", 0)


def test_cells_that_fill_rows_are_nodes() -> None:
    """trafilatura fills every row up to the widest: 14 seconds for a page of 460 KB."""
    rows = "<tr><td>x<td>y" * 6000
    wide = "<tr>" + "<td>x" * 99
    assert reason(f"<table>{rows}<tr><td colspan=3>x</table>") == ("", 0)
    assert reason(f"<table>{wide}</table>" * 900) == ("", 0)
    assert reason(f"<table><tr><td colspan=2000>x{rows}</table>")[0] == "too_many_nodes"
    assert reason(f"<table>{rows}{wide}</table>")[0] == "too_many_nodes"


@pytest.mark.parametrize(
    "unit",
    [
        "<p>A sentence.\n",
        "<li>An item",
        "<tr><td>a<td>b",
        "<dt>a<dd>b",
        "<p>a<br>b<hr>",
        "<h2>a</h2><p>b<ul><li>c<li>d</ul>",
        "<p>a <a href=b>c <p>",
        "<ruby>a<rt>b</ruby>",
        "<svg><path d='m'/><g><circle/></g></svg>",
        "<table><tr><td><p>a<div>b</div></table>",
        '<p title="a > b">c <img alt="d\'e"></p>',
        "<p>if a <b and c> d",
        "<option>a",
    ],
)
def test_what_html_lets_people_leave_open_is_not_deep(unit: str) -> None:
    assert reason(unit * 9000) == ("", 0)


@pytest.mark.skipif(not PAGES.is_dir(), reason=f"the real pages are not at {PAGES}")
def test_no_real_page_is_refused() -> None:
    for path in sorted(PAGES.glob("*.html.gz")):
        html = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        assert reason(html, 5000) == ("", 0), path.name


@pytest.mark.parametrize(
    "name", [n for n in SHAPES if n.startswith(("open blocks with", "formats"))]
)
def test_no_end_tag_that_is_none_hides_an_open_element(name: str) -> None:
    assert reason(SHAPES[name](200_000))[0] in ("too_deep", "too_many_nodes")


@given(st.text("<>/!-='\" abdivpscript\n\0é", max_size=200))
def test_any_text_has_tags_that_are_in_it(text: str) -> None:
    lower = text.encode().lower()
    tags = find_tags(lower)
    assert all(lower[at : at + 1] == b"<" for at in tags.at.tolist())
    assert all(lower[end - 1 : end] == b">" for end in tags.end.tolist() if end <= len(lower))
    assert (tags.at < tags.end).all()
    assert reason(text) == ("", 0)


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_a_hostile_page_of_4_mb_stays_under_500_mb(extractor: str) -> None:
    names = ["formats opened again in paragraphs", "open blocks", "entities", "signs"]
    assert peak_memory(extractor, 4_000_000, names, 60) < 500


def test_as_many_nodes_as_are_allowed_stay_under_500_mb() -> None:
    html = many("<p>x <b>y</b> ", 14 * 49_000) + TEXT
    assert reason(html) == ("", 0)
    assert peak_memory("resiliparse", 1_400_000, ["blocks", "quotes"], 60) < 500


@pytest.mark.soak
@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
@pytest.mark.parametrize("size", [200_000, 600_000, 4_000_000])
def test_no_shape_takes_long_or_much(extractor: str, size: int) -> None:
    assert peak_memory(extractor, size, list(SHAPES), 30) < 500
