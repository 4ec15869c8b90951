"""Words are split alike whatever the script, and matching sees through what it should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.steps.words import is_word, matching_form, split_words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't stop, she said.", ["Don't", "stop", ",", "she", "said", "."]),
        ("a well-known v1.2 ... --help", ["a", "well", "-", "known", "v1.2", "...", "--help"]),
        ("at 10:30, 1,000 of https://x.org/a?b=c.", "at|10:30|,|1,000|of|https://x.org/a?b=c|."),
        ("مُحَمَّدٌ، كتاب؟", ["مُحَمَّدٌ", "،", "كتاب", "؟"]),
        ("हिन्दी में है।", ["हिन्दी", "में", "है", "।"]),
        ("日本語 text。", ["日", "本", "語", "text", "。"]),
        ("ภาษาที่", ["ภ", "า", "ษ", "า", "ที่"]),
        ("한국어 문장", ["한국어", "문장"]),
        (" \n\t ", []),
    ],
)
def test_tokens_of_many_scripts(text: str, tokens: list[str] | str) -> None:
    assert split_words(text) == (tokens.split("|") if isinstance(tokens, str) else tokens)


@given(st.text(max_size=200))
def test_splitting_loses_nothing_but_white_space(text: str) -> None:
    assert "".join("".join(split_words(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("كتـــاب", "كتاب"),
        ("مُحَمَّدٌ", "محمد"),
        ("أحمد", "احمد"),
        ("إلى", "الى"),
        ("Straße", "STRASSE"),
        ("don’t", "don't"),
        ("ﬁne", "fine"),
        ("x\u0301", "x\u0301"),
    ],
)
def test_forms_that_match(one: str, other: str) -> None:
    assert matching_form(one) == matching_form(other) != ""


def test_forms_that_do_not_match() -> None:
    assert matching_form("école") != matching_form("ecole")
    assert matching_form("की") != matching_form("का")


@pytest.mark.parametrize("sign", ["،", "؛", "؟", "۔", "。", "，", "!", "…", "--", "ـــ", "«"])
def test_matching_ignores_signs(sign: str) -> None:
    assert matching_form(sign) == ""


def test_signs_are_no_words() -> None:
    assert [is_word(t) for t in ("a", "१", "ال", "語", "--help", "#", "...", "،")] == (
        [True] * 5 + [False] * 3
    )
