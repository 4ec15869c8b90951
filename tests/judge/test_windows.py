"""Every token is scored exactly once, with enough before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.judge import windows


@given(tokens=st.integers(0, 700), context=st.integers(2, 130))
def test_every_token_is_scored_exactly_once(tokens: int, context: int) -> None:
    scored = [i for w in windows(tokens, context) for i in range(w.first, w.stop + 1)]
    assert scored == list(range(1, tokens + 1))


@given(tokens=st.integers(1, 700), context=st.integers(2, 130))
def test_a_window_fits_the_context_and_gives_half_of_it_or_all_there_is(
    tokens: int, context: int
) -> None:
    for window in windows(tokens, context):
        assert 1 <= window.stop - window.start <= context
        seen_by_the_first = window.first - window.start
        assert 2 * seen_by_the_first >= context or window.start == 0


def test_a_document_that_fits_is_one_window() -> None:
    assert len(list(windows(64, 64))) == 1
    assert len(list(windows(65, 64))) == 2


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="context of 1"):
        list(windows(3, 1))
