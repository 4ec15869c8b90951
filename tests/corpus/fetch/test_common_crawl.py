"""A crawl by name is the files of its list, a sample of it the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from tests.corpus.crawl import gzipped, member
from tests.corpus.reading.web import Site, serve

from eyas.corpus.fetch.common_crawl import crawl_files
from eyas.corpus.reading import remote
from eyas.corpus.reading.inputs import InputFile, input_files, open_input
from eyas.corpus.reading.read import Page, read_pages
from eyas.recipe import Recipe, UsageError
from eyas.store import Store, StoreError

CRAWL = "CC-MAIN-2026-10"
PATHS = [
    f"crawl-data/{CRAWL}/segments/17{n:05d}.{n % 7}/warc/CC-MAIN-2026-{n:05d}.warc.gz"
    for n in range(200)
]


def listed(lines: list[str]) -> bytes:
    return gzipped("\n".join(lines).encode())


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(remote, "_pause", lambda _: None)
    wet = [p.replace("/warc/", "/wet/").replace(".warc.gz", ".warc.wet.gz") for p in PATHS]
    files = {
        f"/crawl-data/{CRAWL}/warc.paths.gz": listed(PATHS),
        f"/crawl-data/{CRAWL}/wet.paths.gz": listed(wet),
        "/crawl-data/CC-NEWS/2026/03/warc.paths.gz": listed(
            ["crawl-data/CC-NEWS/2026/03/CC-NEWS-20260301000000-00000.warc.gz"]
        ),
    }
    with serve(Site(files)) as site:
        yield site


def recipe(store: Store, mirror: str, *sources: str, **keys: object) -> Recipe:
    corpus = {"sources": list(sources), "crawl_mirror": mirror} | keys
    return Recipe.build({"name": "t", "store": store.url, "corpus": corpus})


def test_a_crawl_is_the_files_of_its_list(mirror: Site) -> None:
    assert crawl_files(f"cc:{CRAWL}", mirror.url, 0, 1) == sorted(PATHS)
    wet = crawl_files(f"cc:{CRAWL}/wet", mirror.url, 0, 1)
    assert len(wet) == 200
    assert all(p.endswith(".warc.wet.gz") for p in wet)
    assert len(crawl_files("cc:CC-NEWS/2026/03", mirror.url + "/", 0, 1)) == 1


def test_a_sample_is_the_same_everywhere_and_grows(mirror: Site) -> None:
    ten = crawl_files(f"cc:{CRAWL}", mirror.url, 10, 1)
    mirror.files[f"/crawl-data/{CRAWL}/warc.paths.gz"] = listed(PATHS[::-1])
    assert crawl_files(f"cc:{CRAWL}", mirror.url, 10, 1) == ten == sorted(ten)
    assert set(ten) < set(crawl_files(f"cc:{CRAWL}", mirror.url, 20, 1))
    assert set(ten) != set(crawl_files(f"cc:{CRAWL}", mirror.url, 10, 2))
    assert len(crawl_files(f"cc:{CRAWL}", mirror.url, 1000, 1)) == 200


@pytest.mark.parametrize("source", ["cc:", "cc:2026-10", f"cc:{CRAWL}/wat", f"cc:{CRAWL}/../x"])
def test_a_source_that_names_no_crawl_says_what_is_legal(mirror: Site, source: str) -> None:
    with pytest.raises(UsageError, match="names no crawl; write cc:CC-MAIN-2026-10"):
        crawl_files(source, mirror.url, 0, 1)


def test_a_crawl_that_is_not_there_and_a_mirror_that_is_none_are_named(mirror: Site) -> None:
    with pytest.raises(UsageError, match="has no cc:CC-MAIN-2031-01"):
        crawl_files("cc:CC-MAIN-2031-01", mirror.url, 0, 1)
    with pytest.raises(UsageError, match=r'crawl_mirror: "./files" is none'):
        crawl_files(f"cc:{CRAWL}", "./files", 0, 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (listed(PATHS)[:-20], "ends early"),
        (listed(PATHS)[:50] + b"\0" + listed(PATHS)[51:], "damaged"),
        (listed([*PATHS, "../../etc/passwd.gz"]), "line 201"),
        (listed([*PATHS, "crawl-data/../x/secret.warc.gz"]), "line 201"),
        (listed(["https://elsewhere/crawl-data/a/b.warc.gz"]), "line 1"),
    ],
)
def test_a_damaged_list_stops_the_run(mirror: Site, data: bytes, said: str) -> None:
    mirror.files[f"/crawl-data/{CRAWL}/warc.paths.gz"] = data
    with pytest.raises(StoreError, match=said):
        crawl_files(f"cc:{CRAWL}", mirror.url, 0, 1)


def test_files_of_a_crawl_are_named_as_in_its_index_and_not_asked_for_their_size(
    folder_store: Store, mirror: Site
) -> None:
    files = input_files(
        recipe(folder_store, mirror.url, f"cc:{CRAWL}", max_crawl_files=5), folder_store, None
    )
    assert len(files) == 5
    assert {(f.kind, f.size, f.origin) for f in files} == {("warc", 0, mirror.url)}
    assert len(mirror.asked) == 1
    mirror.files["/" + files[0].key] = member(0) + member(1)
    pages = list(read_pages(folder_store, files[0], 100_000))
    assert [cast(Page, p).url for p in pages] == ["http://x/0", "http://x/1"]
    assert {p.source for p in pages} == {files[0].key}


def test_a_mirror_may_be_a_bucket(s3_store: Store) -> None:
    s3_store.put(f"crawl-data/{CRAWL}/warc.paths.gz", listed(PATHS))
    s3_store.put(PATHS[3], member(3))
    assert crawl_files(f"cc:{CRAWL}", s3_store.url, 0, 1) == sorted(PATHS)
    with pytest.raises(UsageError, match="has no cc:CC-MAIN-2031-01"):
        crawl_files("cc:CC-MAIN-2031-01", s3_store.url, 0, 1)
    with open_input(s3_store, InputFile(PATHS[3], "warc", s3_store.url, 0)) as stream:
        assert stream.read() == member(3)


def test_sources_on_the_web_are_listed_with_size_and_etag(
    folder_store: Store, mirror: Site
) -> None:
    mirror.files["/pages/a.parquet"] = b"PAR1"
    url = f"{mirror.url}/pages/a.parquet"
    (file,) = input_files(recipe(folder_store, mirror.url, url), folder_store, None)
    assert file == InputFile(url, "parquet", "url", 4, etag='"one"')
    with pytest.raises(UsageError, match="of no known kind"):
        input_files(recipe(folder_store, mirror.url, f"{mirror.url}/a.pdf"), folder_store, None)
