"""Package sources become WARC files that a crawler could have left."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from tests.corpus.fetch.package_builder import apt_config, deb, index, page, sdist

from eyas.corpus.fetch.packages import Cache, default_cache
from eyas.corpus.fetch.sources import fetch_sources
from eyas.recipe import EyasError, Recipe, UsageError
from eyas.store import Manifest, Store, open_store, read_manifest, read_object

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="there is no apt-get here")
Cached = Callable[..., None]
ARABIC = "<p>\u0627\u0644\u0635\u0642\u0631</p>"


def recipe(*sources: str, **keys: Any) -> Recipe:
    return Recipe.build({"name": "t", "store": "s", "corpus": {"sources": sources, **keys}})


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test alone, an apt and a pip that reach nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("APT_CONFIG", str(apt_config(tmp_path / "offline", "http://127.0.0.1:9/")))


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    """Puts a source distribution where a fetched one lies (test_packages.py fetches really)."""

    def add(name: str, files: Mapping[str, bytes], version: str = "1.5") -> None:
        path = sdist(tmp_path, name, files, version)
        Cache(default_cache()).add(path, "pypi", name, version)

    return add


@pytest.fixture
def no_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no program but Python can be found."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def records(store: Store, manifest: Manifest) -> list[tuple[str, str, str, bytes]]:
    """(URL, date, content type, content) of every response."""
    found = []
    for ref in manifest.objects:
        for record in ArchiveIterator(io.BytesIO(read_object(store, ref)), verify_digests=True):
            if record.record_type == WarcRecordType.response:
                url, date = record.headers["WARC-Target-URI"], record.headers["WARC-Date"]
                kind = record.http_headers["Content-Type"]
                found.append((url, date, kind, record.reader.read()))
    return found


def test_pages_are_left_as_a_crawler_would(store: Store, cached: Cached) -> None:
    files = {
        "doc/a b.html": page("one"),
        "doc/b.html.ar.utf8": ARABIC.encode(),
        "x.py": b"",
    }
    cached("docs", files)
    manifest = fetch_sources(recipe("pypi:docs"), store)
    date = "2020-09-13T12:26:40Z"
    assert records(store, manifest) == [
        ("pypi://docs/1.5/doc/a%20b.html", date, "text/html", page("one")),
        (
            "pypi://docs/1.5/doc/b.html.ar.utf8",
            date,
            "text/html; charset=utf-8",
            ARABIC.encode(),
        ),
    ]
    (ref,) = manifest.objects
    assert ref.key == f"sources/{manifest.identity[:12]}-docs-000.warc.gz"
    assert ref.rows == 2


def test_every_record_is_a_gzip_member_and_offsets_lead_to_pages(
    folder_store: Store, cached: Cached
) -> None:
    cached("docs", {f"{n}.html": page(str(n)) for n in range(5)})
    (ref,) = fetch_sources(recipe("pypi:docs"), folder_store).objects
    data = read_object(folder_store, ref)
    offsets = [record.stream_pos for record in ArchiveIterator(io.BytesIO(data))]
    assert len(offsets) == 6
    fourth = next(iter(ArchiveIterator(io.BytesIO(data[offsets[4] :]))))
    assert fourth.reader.read() == page("3")


def test_the_manifest_tells_package_version_licence_and_checksum(
    folder_store: Store, cached: Cached
) -> None:
    cached("docs", {"en/a.html": page("one"), "fr/a.html": page("un")})
    manifest = fetch_sources(recipe("pypi:docs", "my/own.warc.gz"), folder_store)
    (about,) = manifest.facts["packages"]
    assert len(about.pop("sha256")) == 64
    assert about == {
        "name": "docs",
        "version": "1.5",
        "licence": "MIT License",
        "homepage": "https://example.org/py",
        "pages": 2,
        "origin": "pypi",
        "urls": "pypi://docs/1.5/",
    }
    size = len(page("one")) + len(page("un"))
    assert manifest.counters == {"packages": 1, "pages": 2, "bytes": size, "too_large": 0}
    assert manifest.facts["languages"] == {"en": 1, "fr": 1}


def test_the_same_recipe_writes_the_same_bytes_anywhere(tmp_path: Path, cached: Cached) -> None:
    for name in ("one-docs", "two-docs"):
        pages = [(lang, n) for lang in ("ar", "en", "fr") for n in range(30)]
        cached(name, {f"{lang}/{n}.html": page(f"{name}{n}{lang}") for lang, n in pages})
    wanted = recipe("pypi:two-docs", "pypi:one-docs", max_pages=40)
    first, second = (
        fetch_sources(wanted, open_store(str(tmp_path / name))) for name in ("one", "two")
    )
    assert first.objects == second.objects
    assert first.counters["pages"] == 40
    other = fetch_sources(
        recipe("pypi:one-docs", "pypi:two-docs", max_pages=40, seed=2),
        open_store(str(tmp_path / "three")),
    )
    assert [o.crc32c for o in other.objects] != [o.crc32c for o in first.objects]


def test_large_packages_are_several_files(
    folder_store: Store, cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eyas.corpus.fetch.sources._FILE_BYTES", 2000)
    cached("docs", {f"{n:02d}.html": page("x" * 500) for n in range(10)})
    manifest = fetch_sources(recipe("pypi:docs"), folder_store)
    assert [o.rows for o in manifest.objects] == [3, 3, 3, 1]
    assert len(records(folder_store, manifest)) == 10


def test_what_a_store_has_is_not_fetched_again_whatever_appears(
    store: Store, cached: Cached, tmp_path: Path
) -> None:
    cached("docs", {"a.html": page("one")})
    first = fetch_sources(recipe("pypi:docs"), store)
    shutil.rmtree(tmp_path / "cache")
    cached("docs", {"a.html": page("two")}, version="2.0")
    assert fetch_sources(recipe("pypi:docs"), store) == first
    assert fetch_sources(recipe("pypi:docs", languages=["ar"]), store) == first
    changed = fetch_sources(recipe("pypi:docs", max_pages=1), store)
    assert changed.version == first.version + 1
    assert changed.facts["packages"][0]["version"] == "2.0"


def test_a_lost_file_is_packed_again(folder_store: Store, cached: Cached) -> None:
    cached("docs", {"a.html": page("one")})
    first = fetch_sources(recipe("pypi:docs"), folder_store)
    folder_store.delete([first.objects[0].key])
    again = fetch_sources(recipe("pypi:docs"), folder_store)
    assert records(folder_store, again)[0][3] == page("one")
    assert again.objects == first.objects


def test_sources_that_are_no_packages_are_left_to_the_next_stage(folder_store: Store) -> None:
    manifest = fetch_sources(recipe("crawl.warc.gz", "s3://bucket/pages/"), folder_store)
    assert manifest.objects == ()
    assert manifest.facts["packages"] == []
    assert read_manifest(folder_store, "sources") == manifest


@pytest.mark.usefixtures("no_apt")
def test_without_apt_the_fallback_sources_are_taken(folder_store: Store, cached: Cached) -> None:
    cached("docs", {"a.html": page("one")})
    manifest = fetch_sources(recipe("apt:some-doc", fallback_sources=["pypi:docs"]), folder_store)
    assert [p["origin"] for p in manifest.facts["packages"]] == ["pypi"]


@needs_apt
def test_where_apt_reaches_nothing_the_fallback_sources_are_taken(
    folder_store: Store, cached: Cached, caplog: pytest.LogCaptureFixture
) -> None:
    cached("docs", {"a.html": page("one")})
    manifest = fetch_sources(recipe("apt:some-doc", fallback_sources=["pypi:docs"]), folder_store)
    assert [p["name"] for p in manifest.facts["packages"]] == ["docs"]
    assert "cannot fetch apt:some-doc" in caplog.text


@pytest.mark.parametrize("fallback", [[], ["pypi:nor-this"]])
def test_without_network_and_cache_the_error_says_what_to_do(
    folder_store: Store, no_apt: None, fallback: list[str]
) -> None:
    with pytest.raises(EyasError) as caught:
        fetch_sources(recipe("apt:some-doc", fallback_sources=fallback), folder_store)
    message = str(caught.value)
    assert "cannot fetch apt:some-doc (there is no apt-get here)" in message
    assert all(name in message for name in fallback)
    assert "`eyas run` works all the same on pages of your own" in message
    assert "--set 'corpus.sources=[\"pages/\"]'" in message
    assert read_manifest(folder_store, "sources") is None


@pytest.mark.parametrize("bad", ["apt:-o", "pypi:--index-url=x", "apt:A b", "apt:*", "pypi:"])
def test_a_bad_name_is_wrong_usage(folder_store: Store, bad: str) -> None:
    with pytest.raises(UsageError, match=r"corpus\.sources: .* is not legal; write apt:NAME"):
        fetch_sources(recipe(bad), folder_store)


@needs_apt
def test_debian_packages_come_with_version_licence_and_all_their_languages(
    folder_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    languages = ("ar-MA", "en-US", "fr-FR", "ja-JP")
    files = {
        f"usr/share/doc/b/{lang}/{n}.html": page(n + lang) for lang in languages for n in "abcd"
    }
    deb(repository, "book", {**files, "usr/share/doc/b/index.html": "en-US/a.html"})
    index(repository)
    config = apt_config(tmp_path / "apt", f"copy:{repository}")
    monkeypatch.setenv("APT_CONFIG", str(config))
    manifest = fetch_sources(recipe("apt:bo*", "apt:gone", max_pages=8), folder_store)
    assert manifest.facts["languages"] == dict.fromkeys(languages, 2)
    assert manifest.facts["missing"] == ["apt:gone"]
    (about,) = manifest.facts["packages"]
    assert (about["version"], about["licence"]) == ("1:2.0~x+1", "GPL-2+ or CC-BY-SA-3.0")
    urls = [url for url, *_ in records(folder_store, manifest)]
    assert all(url.startswith("apt://book/1%3A2.0~x+1/usr/share/doc/b/") for url in urls)
