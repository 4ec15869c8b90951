"""Addresses are judged by domain and by words; workers share block-lists of millions, checked."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.steps import word_lists
from eyas.corpus.steps.urls import UrlFilter, load_url_filter, normal_host, put_url_lists
from eyas.corpus.steps.word_lists import read_list, read_words
from eyas.recipe import Recipe, UsageError
from eyas.store import Store, StoreError, open_store

HEAD = 'name = "r"\nstore = "./s"\n[corpus.url]\n'
BARE = "default_lists = false\nexclude_curated = false\n"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def _filter(store: Store, keys: str = "") -> UrlFilter:
    settings = put_url_lists(Recipe.parse(HEAD + keys, "r.toml"), store)
    return load_url_filter(store, settings)


def _list(tmp_path: Path, *lines: str, name: str = "list.txt") -> str:
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.ORG/Path", "example.org"),
        ("http://example.org:8080", "example.org"),
        ("http://example.org.:80/", "example.org"),
        ("http://user:p%40ss@example.org/", "example.org"),
        ("http://a@b@example.org/@x", "example.org"),
        ("http://example.org?q=http://other.test", "example.org"),
        ("http://example.org#a@b", "example.org"),
        ("http://example.org\\@other.test/", "example.org"),
        ("  http:///example.org/", "example.org"),
        ("https://münchen.example/", "xn--mnchen-3ya.example"),
        ("https://xn--mnchen-3ya.example/", "xn--mnchen-3ya.example"),
        ("https://M%C3%BCnchen.example/", "xn--mnchen-3ya.example"),
        ("https://موقع.example/صفحة", "xn--4gbrim.example"),
        ("https://例え。テスト/", "xn--r8jz45g.xn--zckzah"),
        ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
        ("http://192.0.2.7/", "192.0.2.7"),
        ("folder/page.html", ""),
        ("", ""),
        ("http://", ""),
    ],
)
def test_a_host_is_read_as_dns_compares_it(url: str, host: str) -> None:
    assert normal_host(url) == host


def test_a_listed_domain_blocks_itself_and_all_below_it(tmp_path: Path, store: Store) -> None:
    lines = (
        "# ours",
        "Bad.test",
        "*.wild.test",
        "0.0.0.0 hosts.test # ad",
        ".whole",
        "münchen.test",
    )
    urls = _filter(store, f'{BARE}blocklist = ["{_list(tmp_path, *lines)}"]')
    for host in ("bad.test", "a.b.BAD.test.", "wild.test", "hosts.test", "any.whole"):
        found = urls.verdict(f"https://{host}:444/page")
        assert found is not None, host
        assert found[0] == "blocked_domain"
    assert urls.verdict("https://x.bad.test/") == ("blocked_domain", None, "bad.test")
    assert urls.verdict("https://xn--mnchen-3ya.test/") is not None
    for host in ("notbad.test", "bad.test.example", "test", "whole-other.test"):
        assert urls.verdict(f"https://{host}/bad.test") is None, host


def test_a_line_that_is_no_domain_blocks_nothing(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A bare `com` or `localhost` in somebody's list must not block the world."""
    listed = _list(tmp_path, "com", "127.0.0.1 localhost", "a.test/path", "b.test")
    urls = _filter(store, f'{BARE}blocklist = ["{listed}"]')
    assert urls.verdict("https://example.com/") is None
    assert urls.verdict("https://a.test/path") is None
    assert urls.verdict("https://b.test/") is not None
    assert "3 lines of the block-lists are no domains" in caplog.text


def test_lists_are_read_plain_and_gzip_and_from_any_folder(tmp_path: Path, store: Store) -> None:
    packed = tmp_path / "more.txt.gz"
    packed.write_bytes(gzip.compress(b"one.test\r\ntwo.test\r\n"))
    plain = _list(tmp_path, "three.test")
    urls = _filter(store, f'{BARE}blocklist = ["{packed}", "{plain}"]')
    assert all(urls.verdict(f"http://{n}.test/") for n in ("one", "two", "three"))


def test_lists_lie_on_s3_too(s3_store: Store) -> None:
    s3_store.put("lists/mine.txt.gz", gzip.compress(b"one.test\n"))
    urls = _filter(s3_store, f'blocklist = ["{s3_store.url}/lists/mine.txt.gz"]')
    assert urls.verdict("http://one.test/") is not None
    with pytest.raises(UsageError, match="there is no list s3://"):
        _filter(s3_store, f'blocklist = ["{s3_store.url}/lists/absent.txt"]')


@pytest.mark.parametrize("name", ["absent.txt", "broken.gz"])
def test_a_list_that_cannot_be_read_is_named(tmp_path: Path, store: Store, name: str) -> None:
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"a.test\n" * 100)[:-9])
    with pytest.raises(UsageError, match=name):
        _filter(store, f'blocklist = ["{tmp_path / name}"]')


def test_a_line_means_the_same_however_it_is_written_and_wherever_a_piece_ends(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _list(tmp_path, *(f"{name}.test" for name in "abcdef"), "a.test", "xn--mnchen-3ya.test")
    odd = tmp_path / "odd.txt"
    lines = ("B.TEST", "\td.test \r", "*.c.test", "0.0.0.0 e.test", "f.test.#f", "münchen.test")
    odd.write_bytes("\n\n".join(("a.test", *lines)).encode())
    first = list(_filter(store, f'{BARE}blocklist = ["{plain}"]').domains)
    assert len(first) == 7
    assert list(_filter(store, f'{BARE}blocklist = ["{odd}"]').domains) == first
    before = read_words(str(odd))
    for size in (1, 7, 64):
        monkeypatch.setattr(word_lists, "_PIECE", size)
        assert b"".join(read_list(str(odd))) == odd.read_bytes()
        assert read_words(str(odd)) == before


def test_a_list_without_a_domain_blocks_nothing(tmp_path: Path, store: Store) -> None:
    urls = _filter(store, f'{BARE}blocklist = ["{_list(tmp_path, "# none")}"]')
    assert urls.verdict("http://a.test/") is None


def test_a_list_that_changes_while_it_is_read_is_named_by_no_content(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path(_list(tmp_path, "a.test"))

    def growing(source: str) -> list[bytes]:
        data = listed.read_bytes()
        listed.write_bytes(data + b"b.test\n")
        return [data]

    monkeypatch.setattr("eyas.corpus.steps.urls.read_list", growing)
    with pytest.raises(UsageError, match="changed while it was read"):
        _filter(store, f'{BARE}blocklist = ["{listed}"]')
    assert not list(store.list("corpus/lists/"))


def test_curated_sources_are_left_out_with_all_their_languages(store: Store) -> None:
    urls = _filter(store, 'curated = ["Our-Own.test"]')
    for host in ("en.wikipedia.org", "ar.m.wikipedia.org", "arxiv.org", "www.our-own.test"):
        found = urls.verdict(f"https://{host}/a")
        assert found is not None
        assert found[0] == "curated_source"
    off = _filter(store, 'exclude_curated = false\ncurated = ["our-own.test"]')
    assert off.verdict("https://en.wikipedia.org/") is None
    assert off.verdict("https://our-own.test/") is None


def test_strict_words_stand_anywhere_hard_words_alone_soft_words_together(
    tmp_path: Path, store: Store
) -> None:
    keys = BARE + "".join(
        f'{kind}_words = "{_list(tmp_path, *words, name=kind)}"\n'
        for kind, words in {
            "strict": ("Bad-Word", "كلمة"),
            "hard": ("whole",),
            "soft": ("mild", "small", "weak"),
        }.items()
    )
    urls = _filter(store, keys)
    for url in ("http://xbadwordx.test/", "http://a.test/b_a.d-WORD", "http://a.test/%62adword"):
        assert urls.verdict(url) == ("strict_word", None, "badword")
    assert urls.verdict("http://a.test/%D9%83%D9%84%D9%85%D8%A9") == ("strict_word", None, "كلمة")
    assert urls.verdict("http://a.test/the-WHOLE-story") == ("hard_word", None, "whole")
    assert urls.verdict("http://a.test/wholesale") is None
    assert urls.verdict("http://a.test/mild/mild") is None
    assert urls.verdict("http://a.test/mild?small") == ("soft_words", 2.0, "mild small")
    assert _filter(store, keys + "max_soft_words = 2").verdict("http://a.test/mild/small") is None
    assert _filter(store, keys + "max_soft_words = 0").verdict("http://a.test/mild") is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://www.essex.ac.uk/departments/sociology",
        "https://www.sussex.police.uk/news",
        "https://pornic.example/tourisme",
        "https://scunthorpe.example/",
        "https://www.dickens-museum.example/about/shitake",
        "https://example.edu/classes/analysis/assessment",
        "https://health.example/sexual-health-clinic",
        "https://example.org/hot-topics/climate",
        "https://ar.example/wiki/%D8%B3%D8%A7%D8%B3%D9%83%D8%B3",  # Sussex
        "https://ar.example/%D8%A5%D8%B3%D9%83%D8%B3",  # Essex
        "/home/adult/sex/page.html",
    ],
)
def test_the_shipped_words_leave_ordinary_addresses_alone(store: Store, url: str) -> None:
    assert _filter(store).verdict(url) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://de.xhamster.com/x", "blocked_domain"),
        ("https://anything.xxx/", "blocked_domain"),
        ("https://my-free-porn.test/", "strict_word"),
        ("https://aflam-sex.test/", "strict_word"),
        ("https://a.test/porn/1", "hard_word"),
        ("https://a.test/%D8%B3%D9%83%D8%B3", "hard_word"),
        ("https://hot-girls.test/", "soft_words"),
        ("https://a.test/casino-bonus", "soft_words"),
    ],
)
def test_the_shipped_lists_find_what_they_are_for(store: Store, url: str, reason: str) -> None:
    found = _filter(store).verdict(url)
    assert found is not None
    assert found[0] == reason


@given(st.text() | st.text().map("http://".__add__) | st.binary().map(lambda b: f"http://{b!r}"))
def test_no_address_breaks_the_filter(url: str) -> None:
    urls = UrlFilter((), frozenset({"a.test"}), ("bad",), frozenset({"x"}), frozenset({"y"}), 1)
    assert urls.verdict(url) == urls.verdict(url)


@pytest.mark.parametrize("url", ["http://\ud800.test/", "http://" + "a." * 50_000, "x" * 10**6])
def test_an_absurd_address_is_judged_too(store: Store, url: str) -> None:
    _filter(store).verdict(url)


def test_the_same_lists_give_the_same_settings_and_are_written_once(
    tmp_path: Path, store: Store
) -> None:
    text = HEAD + f'blocklist = ["{_list(tmp_path, "a.test", "b.test")}"]'
    first = put_url_lists(Recipe.parse(text, "r.toml"), store)
    (info,) = store.list("corpus/lists/")
    data = store.get(info.key)
    assert put_url_lists(Recipe.parse(text, "r.toml"), store) == first
    assert [i.key for i in store.list("corpus/lists/")] == [first["domains"]]
    other = open_store(str(tmp_path / "other"))
    assert put_url_lists(Recipe.parse(text, "r.toml"), other) == first
    assert other.get(info.key) == data
    _list(tmp_path, "a.test", "b.test", "c.test")
    assert put_url_lists(Recipe.parse(text, "r.toml"), store)["domains"] != first["domains"]


def test_a_damaged_copy_is_fetched_again_and_a_damaged_object_is_named(
    tmp_path: Path, store: Store
) -> None:
    settings = put_url_lists(Recipe.parse(HEAD, "r.toml"), store)
    load_url_filter(store, settings)
    (copy,) = (tmp_path / "cache" / "eyas" / "lists").iterdir()
    for damage in (b"", copy.read_bytes()[:-8], bytes(copy.stat().st_size)):
        copy.write_bytes(damage)
        assert load_url_filter(store, settings).verdict("https://xnxx.com/") is not None
    copy.write_bytes(b"")
    store.put(settings["domains"], b"not a list")
    with pytest.raises(StoreError, match=r"is damaged; delete it"):
        load_url_filter(store, settings)


def test_a_cache_that_cannot_be_made_is_replaced(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert _filter(store).verdict("https://xnxx.com/") is not None


_WORKER = """
import sys
from pathlib import Path
from eyas.corpus.steps.urls import load_url_filter
from eyas.store import open_store
def own():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(x.split()[1]) for x in lines if x.startswith("Anonymous:")) / 1024
store, key = open_store(sys.argv[1]), sys.argv[2]
settings = {"domains": "", "curated": [], "strict": [], "hard": [], "soft": [], "max_soft_words": 1}
load_url_filter(store, settings).verdict("http://warm.test/")
before = own()
urls = load_url_filter(store, settings | {"domains": key})
hits = sum(urls.verdict(f"http://www.site-{n}.test/a/b") is not None for n in range(0, 40_000, 4))
print(hits, own() - before)
"""


def _big_list(path: Path, count: int) -> Path:
    def lines() -> Iterator[bytes]:
        for first in range(0, count, 10_000):
            yield b"".join(b"site-%d.test\n" % n for n in range(first, first + 10_000))

    with path.open("wb") as file:
        file.writelines(lines())
    return path


@pytest.mark.parametrize("count", [200_000, pytest.param(4_500_000, marks=pytest.mark.soak)])
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps")
def test_a_worker_holds_none_of_a_long_list_itself(
    tmp_path: Path, store: Store, count: int
) -> None:
    listed = _big_list(tmp_path / "big", count)
    recipe = Recipe.parse(HEAD + f'{BARE}blocklist = ["{listed}"]', "r.toml")
    key = put_url_lists(recipe, store)["domains"]
    info = store.stat(key)
    assert info is not None
    assert info.size == 64 + 8 * count
    load_url_filter(store, put_url_lists(recipe, store))  # the copy is there for the worker
    command = [sys.executable, "-c", _WORKER, str(tmp_path / "store"), key]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    hits, megabytes = done.stdout.split()
    assert int(hits) == 10_000
    assert float(megabytes) < 5
