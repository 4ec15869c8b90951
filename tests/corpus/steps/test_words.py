"""Words are split alike whatever the script, and matching sees through what it should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.corpus.steps import words
from eyas.corpus.steps.words import (
    Style,
    count_words,
    describe,
    describe_pieces,
    is_word,
    matching_form,
    split_words,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't stop, she said.", ["Do", "n't", "stop", ",", "she", "said", "."]),
        ("You cannot (Cannot) cannot!", "You|can|not|(|Can|not|)|can|not|!"),
        ("“It's,” (e.g.) Mr. Hill’s...", "“|It|'s|,|”|(|e.g.|)|Mr.|Hill|’s|..."),
        ("L'eau d’un l'été", "L'|eau|d’|un|l'|été"),
        ("/etc/apt.conf and/or a_b 10km $5 C++", "/etc|/|apt.conf|and/or|a_b|10|km|$|5|C++"),
        ("ሰላም። नमस्ते॥ سلام۔", "ሰላም|።|नमस्ते|॥|سلام|۔"),
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


@pytest.mark.parametrize(
    ("style", "text", "tokens"),
    [
        (Style(), "well-known 3. 1-7 usw.", "well|-|known|3|.|1|-|7|usw|."),
        (Style(keep_hyphens=True), "Häuser-Reihe 1-7 (a-b).", "Häuser-Reihe|1-7|(|a-b|)|."),
        (Style(keep_ordinals=True), "am 3. Mai, A.2. Ende.", "am|3.|Mai|,|A.2.|Ende|."),
        (Style(whole_words=("usw.", "peut-être")), "usw. (usw.) peut-être,", None),
        (Style(whole_words=("cannot",)), "cannot, (cannot)", "cannot|,|(|cannot|)"),
        (Style(), "so (it is): yes", "so|(|it|is|):|yes"),
    ],
)
def test_a_language_says_what_stays_whole(style: Style, text: str, tokens: str | None) -> None:
    assert split_words(text, style) == (tokens or "usw.|(|usw.|)|peut-être|,").split("|")
    words_of, _ = describe_pieces([text.split()], style)
    assert count_words(text, style) == sum(map(is_word, words_of.tokens))


@given(st.text(max_size=200))
def test_splitting_loses_nothing_but_white_space(text: str) -> None:
    assert "".join("".join(split_words(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("piece", ["!", "a!", "'s", "-a", "l'a", "a.B", "語", "a" + "\u0301" * 9])
def test_a_piece_without_end_is_split_in_linear_time(piece: str) -> None:
    text = piece * 100_000
    assert "".join(split_words(text)) == text


def test_what_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"word{n % 50}-x{n % 7}'s" for n in range(400))
    tokens, word_tokens = split_words(text), count_words(text)
    before = describe(tokens)
    monkeypatch.setattr(words, "_REMEMBERED", 3)
    assert split_words(text) == tokens
    assert count_words(text) == word_tokens
    after = describe(tokens)
    assert after.table is not before.table
    for name in ("lengths", "sizes", "flags"):
        assert (getattr(after, name) == getattr(before, name)).all()
    assert list(after.tokens) == list(before.tokens) == tokens


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
