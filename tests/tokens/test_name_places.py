"""Promises: a name counts where it stands as it is written, and as one item where one holds it."""

from __future__ import annotations

import pytest
from tests.tokens.handmade import of_words

from eyas.tokens import Tokenizer
from eyas.tokens.name_places import NamePlaces
from eyas.tokens.report import measure
from eyas.tokens.sample import Sampled

WORDS = Tokenizer(of_words(" New York", " in New York", " الأمم المتحدة"))
NAMES = ("New York", "New York Times", "الأمم المتحدة", "Hill", "& Sons")


def _counted(*texts: str, names: tuple[str, ...] = NAMES) -> tuple[int, int]:
    places = NamePlaces(names)
    measure(WORDS, [Sampled("en", text, 1) for text in texts], 2, places)
    return places.occurrences, places.single


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("we saw New York, then left", (1, 1)),
        ("we live in New York.", (1, 1)),  # within a longer item
        ("New York", (1, 0)),  # no item without the space
        ("é New York é New York", (2, 2)),
        ("of the New York Times", (1, 0)),  # the longest name there
        ("the Newest York, New Yorkers, xNew York, new york, New  York", (0, 0)),
        ("قالت الأمم المتحدة، ثم", (1, 1)),
        ("والأمم المتحدة والأمم المتحدةِ", (0, 0)),
        ("up the Hill", (0, 0)),  # one word
        ("", (0, 0)),
    ],
)
def test_a_name_counts_where_it_stands_by_itself(text: str, expected: tuple[int, int]) -> None:
    assert _counted(text) == expected


def test_texts_add_up_and_no_names_count_nothing() -> None:
    assert _counted("in New York", "x", "a New York Times") == (2, 1)
    assert _counted("in New York", names=()) == (0, 0)
