"""Pages out of packages, without unpacking them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.corpus.fetch.package_builder import MODIFIED, deb, page, sdist

from eyas.corpus.fetch.archives import content_type, inspect, read_pages
from eyas.recipe import EyasError


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2", ".zst"])
def test_a_debian_package_gives_its_pages_and_says_what_it_is(tmp_path: Path, suffix: str) -> None:
    files = {
        "usr/share/doc/x/en/a.html": page("one"),
        "usr/share/doc/x/picture.png": b"png",
        "usr/share/doc/x/b.html.fr.utf8": page("deux"),
    }
    path = deb(tmp_path, "x-doc", files, suffix=suffix)
    found = inspect(path)
    assert (found.name, found.version) == ("x-doc", "1:2.0~x+1")
    assert (found.licence, found.homepage) == ("GPL-2+ or CC-BY-SA-3.0", "https://example.org/")
    pages = {p: len(files[p]) for p in sorted(files) if "html" in p}
    assert found.pages == pages
    assert list(read_pages(path, frozenset(["usr/share/doc/x/en/a.html"]))) == [
        ("usr/share/doc/x/en/a.html", MODIFIED, page("one"))
    ]


def test_a_source_distribution_gives_its_pages_and_says_what_it_is(tmp_path: Path) -> None:
    path = sdist(tmp_path, "x", {"doc/a.html": page("one"), "x.py": b""})
    found = inspect(path)
    assert (found.name, found.version, found.licence) == ("x", "1.5", "MIT License")
    assert found.homepage == "https://example.org/py"
    assert found.pages == {"doc/a.html": len(page("one"))}
    assert [p[0] for p in read_pages(path, frozenset(found.pages))] == ["doc/a.html"]


def test_links_templates_and_paths_that_climb_are_no_pages(tmp_path: Path) -> None:
    files = {
        "a/real.html": page("one"),
        "a/link.html": "real.html",
        "../climb.html": page("out"),
        "/absolute.html": page("in"),
        "a/page.html.j2": page("template"),
        "a/page.html.gz": b"packed",
        "a/.html": b"hidden",
    }
    path = deb(tmp_path, "x", files)
    assert sorted(inspect(path).pages) == ["a/real.html", "absolute.html"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_comes_twice_is_one_page(tmp_path: Path) -> None:
    path = deb(tmp_path, "x", {"a/p.html": page("first"), "a/./p.html": page("second one")})
    pages = inspect(path).pages
    assert pages == {"a/p.html": len(page("first"))}
    assert [p[2] for p in read_pages(path, frozenset(pages))] == [page("first")]


def test_what_is_too_large_to_be_a_page_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eyas.corpus.fetch.archives.MAX_PAGE", 100)
    found = inspect(deb(tmp_path, "x", {"a.html": b"x" * 101, "b.html": b"y" * 100}))
    assert (found.pages, found.too_large) == ({"b.html": 100}, 1)


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("Licensed under /usr/share/common-licenses/GPL-2.\n", "GPL-2"),
        ("Do what you want.\n", "see usr/share/doc/x/copyright"),
    ],
)
def test_a_free_form_licence_is_named_or_pointed_to(
    tmp_path: Path, text: str, licence: str
) -> None:
    assert inspect(deb(tmp_path, "x", {}, copyright=text)).licence == licence


def test_the_content_type_tells_the_charset_of_the_file_name() -> None:
    assert content_type("a/b.html") == "text/html"
    assert content_type("a/b.html.fr.utf8") == "text/html; charset=utf-8"
    assert content_type("a/b.html.ja.euc-jp") == "text/html; charset=euc-jp"
    assert content_type("a/b.html.tr.ISO-8859-9") == "text/html; charset=iso-8859-9"
    assert content_type("utf8/b.xhtml") == "application/xhtml+xml"


@pytest.mark.parametrize("cut", [4, 70, 300, -200])
def test_a_damaged_package_is_an_error_that_names_the_file(tmp_path: Path, cut: int) -> None:
    path = deb(tmp_path, "x", {"a.html": page("one" * 1000)})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(EyasError, match=r"cannot read the package .*x_1.*run again"):
        inspect(path)
