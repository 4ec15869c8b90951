"""Numbers as the field writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.recipe import format_bytes, format_count, format_seconds, parse_count, parse_duration


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1T", 10**12),
        ("4M", 4_000_000),
        ("1.5B", 1_500_000_000),
        ("64Ki", 65_536),
        ("0.5Mi", 524_288),
        ("250_000", 250_000),
        ("3e6", 3_000_000),
        (7, 7),
        (2e3, 2000),
    ],
)
def test_a_count_is_exact(text: object, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "bad", ["", "10Q", "1.5", "-3", "4 M M", True, None, 1.5, "1e400x", "1e999999999", []]
)
def test_what_is_no_count_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_count(bad)


@given(st.integers(min_value=0, max_value=10**18))
def test_any_whole_number_is_its_own_count(n: int) -> None:
    assert parse_count(n) == parse_count(str(n)) == n
    assert parse_count(f"{n}K") == n * 1000


@pytest.mark.parametrize(("text", "value"), [("30m", 1800), ("90s", 90), ("1.5d", 129_600), (5, 5)])
def test_a_duration_is_seconds(text: object, value: float) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize("bad", ["m", "5 fortnights", True, None])
def test_what_is_no_duration_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="seconds"):
        parse_duration(bad)


def test_figures_are_printed_for_people() -> None:
    assert format_count(5_242_880) == "5.24M"
    assert format_count(999) == "999"
    assert format_bytes(1536) == "1.50 KiB"
    assert format_seconds(8.13) == "8.1 s"
    assert format_seconds(200) == "3 min 20 s"
    assert format_seconds(7500) == "2 h 05 min"
    assert format_seconds(3 * 86400) == "3.0 days"
