"""Texts through the steps: what is measured, what is rewritten, what is decided."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.texts import page

from eyas.corpus.steps import c4, lines, repetition
from eyas.corpus.steps.filters import Filtered, filter_text
from eyas.corpus.steps.packs import LanguageRules, resolve
from eyas.corpus.steps.rules import RULES, verdict
from eyas.corpus.steps.words import count_words, describe, describe_pieces
from eyas.recipe import Corpus

STEPS = ("repetition", "gopher", "c4", "fineweb", "lines")
RULESET = resolve(Corpus(steps=("language", *STEPS)))
ENGLISH, ARABIC = RULESET.for_language("en"), RULESET.for_language("ar")
words_of = st.integers(1, 30).flatmap(
    lambda size: st.lists(st.sampled_from([f"w{n}" for n in range(size)]), max_size=120)
)
run_together = st.lists(st.sampled_from(["a", "aa", "ab", "b", "a" * 9, "ba" * 9]), max_size=60)


def only(*steps: str, rules: LanguageRules = ENGLISH, **limits: Any) -> LanguageRules:
    """`rules` with these steps, and with these limits in the last."""
    changed = {**rules.limits, steps[-1]: {**rules.limits[steps[-1]], **limits}}
    return LanguageRules(rules.pack, steps, changed)


def reason(done: Filtered) -> str:
    return done.failure.rule.reason if done.failure else ""


def fillers(count: int, length: int = 5) -> list[str]:
    """Different words of this length."""
    alphabet = "bcdfghjklm"
    digits = (f"{n:0{length}d}" for n in range(count))
    return ["".join(alphabet[int(d)] for d in word) for word in digits]


# Repetition


@given(words_of | run_together, st.sampled_from([1, 2]))
def test_ngram_shares_are_those_of_the_plain_definition(words: list[str], per_word: int) -> None:
    text = " ".join(words) or "-"
    values = repetition.measure(text, describe(words), per_word)
    space = " " if per_word == 1 else ""
    for n in (2, 3, 4):
        size = n * per_word
        grams = [space.join(words[i : i + size]) for i in range(len(words) - size + 1)]
        gram, count = Counter(grams).most_common(1)[0] if grams else ("", 0)
        assert values[f"top_{n}_gram"] == len(gram) * count / len(text)
    for n in range(5, 11):
        size = n * per_word
        seen, place, characters = set[str](), 0, 0
        while place <= len(words) - size:
            run = "".join(words[place : place + size])
            characters += len(run) if run in seen else 0
            place += size if run in seen else 1
            seen.add(run)
        assert values[f"duplicated_{n}_grams"] == characters / len(text)


@given(st.text("a\n ", max_size=30))
def test_lines_and_paragraphs_are_cut_as_defined(text: str) -> None:
    paragraphs, parts = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", text)
    values = repetition.measure(text, describe([]), 1)
    assert values["duplicate_paragraphs"] == pytest.approx(
        1 - len(set(paragraphs)) / len(paragraphs)
    )
    assert values["duplicate_lines"] == pytest.approx(1 - len(set(parts)) / len(parts))


def test_repeated_lines_and_paragraphs() -> None:
    sentences = [" ".join(fillers(60)[n : n + 6]) for n in range(0, 60, 6)]
    once = filter_text("\n".join([*sentences, sentences[0]]), only("repetition"))
    assert once.values["repetition.duplicate_lines"] == pytest.approx(1 / 11)
    twice = filter_text("\n\n".join([*sentences, *sentences[:2]]), only("repetition"))
    assert twice.values["repetition.duplicate_paragraphs"] == pytest.approx(2 / 12)
    assert twice.values["repetition.duplicate_lines"] == pytest.approx(2 / 12)


# Gopher


def test_word_count_boundary_on_text() -> None:
    kept = ["the", "of", *fillers(48)]
    assert reason(filter_text(" ".join(kept), only("gopher"))) == ""
    for text in (" ".join(kept[:-1]), " ".join(kept[:-1]) + " . ! ?"):
        assert reason(filter_text(text, only("gopher"))) == "too_few_words"


@pytest.mark.parametrize(("stop", "why"), [("the the", "too_few_stop_words"), ("the of", "")])
def test_stop_words_count_distinct(stop: str, why: str) -> None:
    assert reason(filter_text(" ".join([stop, *fillers(60)]), only("gopher"))) == why


def test_letters_count_against_all_tokens() -> None:
    words = ["the", "of", *fillers(78)]
    numbers = [str(n * n) for n in range(21)]
    assert reason(filter_text(" ".join([*words, *numbers[:20]]), only("gopher"))) == ""
    done = filter_text(" ".join([*words, *numbers]), only("gopher"))
    assert reason(done) == "too_few_letter_words"


def test_french_stop_words_with_an_elision_are_found() -> None:
    french = RULESET.for_language("fr")
    done = filter_text("L'eau d'un lac qu'il a vu", only("gopher", rules=french))
    assert done.values["gopher.stop_words"] == 3  # d', un, il; L' is not as the list writes it


def test_arabic_is_not_eaten_by_english_rules() -> None:
    texts = [page(n, "ar") for n in range(40)]
    both = ("repetition", "gopher")
    assert [reason(filter_text(t, only(*both, rules=ARABIC))) for t in texts] == [""] * 40
    assert {reason(filter_text(t, only(*both))) for t in texts} == {"too_few_stop_words"}


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "これは{}番目の文で、図書館の本を読んで{}ページについて書いた。"),
        ("zh", "这是第{}个句子，我们在图书馆读书，第{}页写的是历史和自然。"),
    ],
)
def test_scripts_without_spaces_are_counted_in_characters(language: str, text: str) -> None:
    rules = RULESET.for_language(language)
    numbers = "一二三四五六七八九十百千万春夏秋冬東西南北山川海空花鳥風月"
    pairs = zip(numbers, reversed(numbers), strict=True)
    done = filter_text("\n".join(text.format(a, b) for a, b in pairs), rules)
    assert done.values["gopher.words"] > 500
    assert done.values["gopher.word_length"] == pytest.approx(1, abs=0.05)
    assert done.values["gopher.stop_words"] >= rules.limits["gopher"]["min_stop_words"]
    assert done.values["c4.sentences"] == len(numbers)


# C4


def c4_left(text: str, **limits: Any) -> str:
    return filter_text(text, only("c4", **limits)).text


GOOD = "This line is kept."


@pytest.mark.parametrize(
    "line",
    [
        *("No sign at its end", "It ends so...", "Too few.", "Please enable JavaScript to read."),
        *("Read the Privacy Policy of ours.", "x" * 1001 + " is a long word."),
    ],
)
def test_c4_drops_the_line(line: str) -> None:
    assert c4_left(f"{GOOD}\n{line}\n  {GOOD}  ") == f"{GOOD}\n{GOOD}"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('She said "yes" to it"', 'She said "yes" to it"'),
        ("The town [12] was built [citation needed] long ago.", "The town  was built  long ago."),
        ("x" * 1000 + " is a word.", "x" * 1000 + " is a word."),
    ],
)
def test_c4_keeps_the_line(line: str, left: str) -> None:
    assert c4_left(line) == left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n".join([GOOD] * 5), ""),
        ("\n".join([GOOD] * 4), "too_few_sentences"),
        ("\n".join([GOOD] * 4 + ["f() { return 1; }."]), "curly_brackets"),
        ("\n".join([GOOD] * 5 + ["A Lorem Ipsum is here."]), "lorem_ipsum"),
    ],
)
def test_c4_drops_the_document(text: str, why: str) -> None:
    assert reason(filter_text(text, only("c4"))) == why


def test_c4_finds_listed_words_as_whole_words_and_unspaced_ones_anywhere() -> None:
    text = "\n".join(
        [GOOD] * 5 + ["The Scunthorpe DARN was here.", "那是坏词的句子 and more words."]
    )
    listed = filter_text(text, only("c4", bad_words=("darn", "thorpe", "坏词")))
    assert listed.values["c4.bad_words"] == 2
    assert reason(listed) == "bad_words"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("One. Two! Three? Four", 4),
        ("Mr. Hill paid 3.50, e.g. here.", 1),
        ('He said "No." Then he left.', 2),
        ('He said "No."  "', 2),
        ('No. "  ! Yes', 3),
        ("No.  Yes", 2),
        ("هل رأى المعلم؟ نعم۔ رآه.", 3),
        ("यह घर है। वह पेड़ है॥ ठीक।", 3),
        ("这是一个句子。这是第二个！对吗？", 3),
        ("ሰላም ለሁሉም። እንዴት ናችሁ፧ ደህና።", 3),
    ],
)
def test_sentences_in_many_scripts(line: str, count: int) -> None:
    words, counts = describe_pieces([line.split()])
    assert c4.count_sentences([line], words, counts) == count


@pytest.mark.parametrize("language", ["ar", "hi", "zh", "ja", "ur"])
def test_lines_may_end_with_the_signs_of_their_language(language: str) -> None:
    line = {"ar": "هل رأى المعلم الكتاب؟", "hi": "यह घर बड़ा है।", "zh": "这是一个句子。"}
    line |= {"ja": "これは文です。", "ur": "یہ ایک کتاب ہے۔"}
    rules = only("c4", rules=RULESET.for_language(language))
    assert filter_text(line[language], rules).text == line[language]
    assert filter_text(line[language], only("c4", min_line_words=0)).text == ""


def test_c4_finds_phrases_that_a_citation_parts() -> None:
    assert c4_left(f"{GOOD}\nEnable java[12]script to read.\nThe use[3] cookies rule.") == GOOD


# RefinedWeb's lines


@pytest.mark.parametrize(
    "line",
    [
        *("SHARE THIS PAGE NOW", "12345", "3 likes", "1.2K followers", "1,204 Comments", "Home"),
        *("Sign-in", "items in cart", "•"),
    ],
)
def test_lines_drops_the_line(line: str) -> None:
    done = filter_text(f"{GOOD}\n{line}\n{GOOD}", only("lines"))
    assert done.text == f"{GOOD}\n{GOOD}"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("The news of today read more...", "The news of today"),
        ("Sign-in to see the page", "to see the page"),
        ("You have 3 items in cart now", "You have 3  now"),
        ("NATO and the EU agreed", "NATO and the EU agreed"),
        ("He likes 3 likes of it", "He likes 3 likes of it"),
        ("one two three four five six seven eight nine ten read more...",) * 2,
    ],
)
def test_lines_cuts_or_keeps(line: str, left: str) -> None:
    assert filter_text(line, only("lines")).text == left


def test_more_than_a_twentieth_of_the_words_removed_drops_the_document() -> None:
    kept = "\n\n".join(["the " * 19 + "end."] * 2)
    at = filter_text(f"{kept}\n3 likes", only("lines"))
    assert at.values["lines.removed_words"] == pytest.approx(2 / 42)
    assert reason(at) == ""
    assert reason(filter_text(f"{kept}\n3 likes\nHome", only("lines"))) == "too_many_removed_words"
    assert lines.rewrite(kept, ENGLISH.limits["lines"], count_words) == (kept, {"removed_words": 0})


# The chain


def test_every_step_is_measured_behind_a_failure() -> None:
    for text in ("", "x", page(1) + "\n{"):
        done = filter_text(text, ENGLISH)
        names = {f"{step}.{rule.measure}" for step in STEPS for rule in RULES[step]}
        assert set(done.values) == names
    assert reason(filter_text("", ENGLISH)) == "too_few_words"


def test_later_steps_see_what_earlier_ones_left() -> None:
    short = "\n".join(["Menu"] * 30)
    text = f"{page(5)}\n{short}"
    assert reason(filter_text(text, only("c4", "fineweb"))) == ""
    assert reason(filter_text(text, only("fineweb"))) == "too_many_short_lines"


def test_steps_that_are_not_word_level_are_passed() -> None:
    rules = replace(ENGLISH, steps=("url", "language", "gopher"))
    assert {name.split(".")[0] for name in filter_text(page(1), rules).values} == {"gopher"}


pieces = st.sampled_from(
    [
        *page(1).split(" ")[:40],
        "\n",
        "\n\n",
        "{",
        "•",
        "3 likes",
        "…",
        "#",
        "Home\n",
        "[3]",
        "語",
        "؟",
    ]
)


@settings(max_examples=60)
@given(st.lists(pieces, max_size=90).map(" ".join), st.permutations(STEPS))
def test_the_decision_follows_from_the_values_alone(text: str, steps: list[str]) -> None:
    rules = replace(ENGLISH, steps=tuple(steps))
    done = filter_text(text, rules)
    assert done.words == count_words(done.text)
    assert done.failure == verdict(done.values, rules)
    assert filter_text(text, rules) == done


@given(st.text(max_size=300))
def test_no_text_breaks_a_step(text: str) -> None:
    for language in ("en", "zh"):
        values = filter_text(text, RULESET.for_language(language)).values
        assert all(value >= 0 for value in values.values())
