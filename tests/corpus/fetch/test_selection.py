"""Which pages of which packages make the slice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.fetch.selection import choose, fair_shares, language_of, page_name

HANDBOOK = [
    f"usr/share/doc/h/html/{lang}/sect.{n}.html"
    for lang in ("ar-MA", "en-US", "zh-TW", "fr-FR")
    for n in range(40)
]


def test_languages_are_read_from_folders_and_file_names() -> None:
    assert language_of("usr/share/doc/h/html/ar-MA/sect.kvm.html") == "ar-MA"
    assert language_of("guide/zh_CN/ch01.html") == "zh-CN"
    assert language_of("manual/mod/core.html.fr.utf8") == "fr"
    assert language_of("debian-reference/ch03.ja.html") == "ja"
    assert language_of("manual/mod/ssl/index.html") == ""
    assert language_of("manual/js/qq.html") == ""


def test_a_page_and_its_translations_have_one_name() -> None:
    pairs = [
        ("html/ar-MA/sect.kvm.html", "html/en-US/sect.kvm.html"),
        ("mod/core.html.fr", "mod/core.html.de"),
        ("ref/ch03.ja.html", "ref/ch03.zh-cn.html"),
    ]
    assert all(page_name(a) == page_name(b) for a, b in pairs)
    assert page_name("html/en/a.html") != page_name("html/en/b.html")


@given(st.lists(st.integers(0, 200), max_size=12), st.integers(0, 1000))
def test_shares_are_fair_and_use_the_whole_budget(sizes: list[int], budget: int) -> None:
    shares = fair_shares(sizes, budget)
    assert sum(shares) == min(budget, sum(sizes))
    assert all(share <= size for share, size in zip(shares, sizes, strict=True))
    unfilled = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert not unfilled or max(shares) <= min(unfilled) + 1


def test_small_packages_and_languages_stay_in() -> None:
    small = ["d/index.html", "d/tr/index.html"]
    chosen = choose([HANDBOOK, small], 42, seed=1)
    assert chosen[1] == set(small)
    assert {language_of(path) for path in chosen[0]} == {"ar-MA", "en-US", "zh-TW", "fr-FR"}
    assert sum(map(len, chosen)) == 42


def test_the_same_pages_of_several_languages_come_along() -> None:
    (chosen,) = choose([HANDBOOK], 20, seed=1)
    assert len({page_name(path) for path in chosen}) == 5


def test_the_slice_depends_on_the_seed_and_not_on_the_order_of_the_paths() -> None:
    assert choose([HANDBOOK], 20, seed=1) == choose([HANDBOOK[::-1]], 20, seed=1)
    assert choose([HANDBOOK], 20, seed=1) != choose([HANDBOOK], 20, seed=2)


def test_no_budget_takes_all() -> None:
    assert choose([HANDBOOK, []], 0, seed=1) == [frozenset(HANDBOOK), frozenset()]
