"""A file behind https comes whole or not at all; a broken connection costs only what is left."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.corpus.crawl import member
from tests.corpus.reading.web import Site, certificate, serve

from eyas.corpus.reading import remote
from eyas.corpus.reading.inputs import InputChanged, InputFile, open_input
from eyas.corpus.reading.read import Page, read_pages
from eyas.corpus.reading.remote import FileChanged, Found, Missing, look, spool
from eyas.recipe import UsageError
from eyas.store import Store, StoreError

DATA = bytes(range(256)) * 20_000


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No test waits, and none asks a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    waited: list[float] = []
    monkeypatch.setattr(remote, "_pause", waited.append)
    return waited


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(Site({"/a.warc.gz": DATA, "/empty.warc": b""})) as found:
        yield found


def get(site: Site, path: str = "/a.warc.gz", expected: Found | None = None) -> bytes:
    with spool(site.url + path, expected) as file:
        return file.read()


def test_a_file_is_listed_without_its_content_and_comes_whole(site: Site) -> None:
    found = look(f"{site.url}/a.warc.gz")
    assert found == Found(len(DATA), '"one"')
    assert get(site, expected=found) == DATA
    assert [a[0] for a in site.asked] == ["HEAD", "GET"]
    assert get(site, "/empty.warc") == b""


def test_a_broken_connection_is_taken_up_where_it_broke(site: Site, pauses: list[float]) -> None:
    site.faults = ["cut", "503", "cut", "cut"]
    assert get(site) == DATA
    starts = [int(a[2].removeprefix("bytes=").rstrip("-") or 0) for a in site.asked]
    assert starts == sorted(starts)
    assert starts[1] > 0
    assert starts[-1] > len(DATA) // 2
    assert len(pauses) == 4


@pytest.mark.parametrize("fault", ["200", "416"])
def test_a_server_that_gives_no_parts_is_asked_for_the_whole(site: Site, fault: str) -> None:
    site.faults = ["cut", fault]
    assert get(site) == DATA


def test_progress_starts_the_count_of_attempts_anew(site: Site) -> None:
    site.faults = ["cut"] * 12
    assert get(site) == DATA


def test_a_server_that_never_works_ends_with_a_sentence(site: Site, pauses: list[float]) -> None:
    site.faults = ["503"] * 20
    with pytest.raises(StoreError, match=r"a\.warc\.gz cannot be read \(HTTP status 503, 8 times"):
        get(site)
    assert pauses == sorted(pauses)
    assert max(pauses) <= 64


def test_a_server_that_is_not_there_ends_with_a_sentence(site: Site) -> None:
    with serve(Site({})) as gone:
        url = gone.url
    with pytest.raises(StoreError, match="cannot be read"):
        look(f"{url}/a.warc")
    with pytest.raises(StoreError, match="cannot be read"):
        spool(f"{url}/a.warc")


def test_a_file_that_changed_is_never_mixed_with_the_old_one(site: Site) -> None:
    with pytest.raises(FileChanged, match="changed while it was used"):
        get(site, expected=Found(len(DATA), '"two"'))
    with pytest.raises(FileChanged, match="changed while it was used"):
        get(site, expected=Found(7, '"one"'))
    site.faults = ["cut"]

    def change(_: float) -> None:
        site.files["/a.warc.gz"] = bytes(len(DATA))
        site.etag = '"two"'

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "_pause", change)
        with pytest.raises(FileChanged):
            get(site)


def test_what_is_not_there_or_has_no_length_is_named(site: Site) -> None:
    with pytest.raises(UsageError, match=r"/none\.warc cannot be read: HTTP status 404"):
        look(f"{site.url}/none.warc")
    with pytest.raises(Missing, match="404"):
        get(site, "/none.warc")
    site.length = False
    with pytest.raises(UsageError, match="does not say how long"):
        look(f"{site.url}/a.warc.gz")
    assert get(site) == DATA  # a crawl's files may have none
    with pytest.raises(UsageError, match="password"):
        look("https://me:secret@127.0.0.1/a.warc")


@pytest.mark.parametrize("query", ["X-Amz-Signature=f00", "a=1&sig=f00", "token=f00"])
def test_a_signed_link_is_refused_since_documents_keep_their_source(query: str) -> None:
    with pytest.raises(UsageError, match="carries a secret") as caught:
        look(f"https://bucket.test/a.warc.gz?{query}")
    assert "f00" not in str(caught.value)


def test_a_server_that_knows_get_only_is_asked_for_the_first_byte(site: Site) -> None:
    site.head = False
    found = look(f"{site.url}/a.warc.gz")
    assert found == Found(len(DATA), '"one"')
    assert [a[0] for a in site.asked] == ["HEAD", "GET"]
    assert get(site, expected=found) == DATA
    with pytest.raises(UsageError, match="HTTP status 404"):
        look(f"{site.url}/none.warc")


def test_a_file_that_moved_is_followed_and_a_circle_ends_at_once(
    site: Site, pauses: list[float]
) -> None:
    site.moved = {"/old.warc.gz": "/a.warc.gz", "/round.warc": "/round.warc"}
    found = look(f"{site.url}/old.warc.gz")
    assert get(site, "/old.warc.gz", found) == DATA
    with pytest.raises(StoreError, match=r"/round\.warc cannot be read: too many redirects"):
        look(f"{site.url}/round.warc")
    assert not pauses


def test_https_is_trusted_by_certificate_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    if pem is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    remote._pool.cache_clear()
    with serve(Site({"/a.warc": DATA}), server) as site:
        with pytest.raises(StoreError, match="SSL"):
            look(f"{site.url}/a.warc")
        remote._pool.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        site.faults = ["cut"]
        assert get(site, "/a.warc", look(f"{site.url}/a.warc")) == DATA
    remote._pool.cache_clear()


def test_pages_of_a_remote_file_are_read_and_a_changed_one_stops_the_run(
    folder_store: Store, site: Site
) -> None:
    data = b"".join(member(n) for n in range(3))
    site.files["/b.warc.gz"] = data
    url = f"{site.url}/b.warc.gz"
    listed = InputFile(url, "warc", "url", len(data), etag='"one"')
    found = list(read_pages(folder_store, listed, 100_000))
    assert [p.url for p in found if isinstance(p, Page)] == [
        "http://x/0",
        "http://x/1",
        "http://x/2",
    ]
    assert {p.source for p in found} == {url}
    assert len([a for a in site.asked if a[0] == "GET"]) == 1
    site.etag = '"two"'
    with pytest.raises(InputChanged, match=r"b\.warc\.gz changed"):
        open_input(folder_store, listed)
    del site.files["/b.warc.gz"]
    with pytest.raises(InputChanged, match="404"):
        open_input(folder_store, listed)
