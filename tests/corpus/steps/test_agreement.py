"""Fed datatrove's words, every decision is datatrove's.

`data/agreement.jsonl.gz` is made by `bench/agreement.py record`: texts of our own around every
threshold, with datatrove's words, what each of its rules decides alone at five limits, the text
that its C4 filter leaves and the sentences that it counts there. Left out are texts without words,
where datatrove divides by zero: it drops those as empty or too short, and so do we.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eyas.corpus.steps import c4, fineweb, gopher, repetition
from eyas.corpus.steps.packs import LanguageRules, resolve
from eyas.corpus.steps.punctuation import TERMINALS
from eyas.corpus.steps.rules import RULES
from eyas.corpus.steps.words import Words, describe
from eyas.recipe import Corpus

FIXTURE = Path(__file__).parent / "data" / "agreement.jsonl.gz"
KEYS = [
    (step, rule.key)
    for step in ("repetition", "gopher", "fineweb")
    for rule in RULES[step]
    if rule.key != "max_ellipses"  # one argument with max_hashes in datatrove
]


@cache
def recorded() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *rows = map(json.loads, gzip.decompress(FIXTURE.read_bytes()).splitlines())
    return head, rows


@cache
def english() -> LanguageRules:
    steps = ("language", "repetition", "gopher", "c4", "fineweb")
    return resolve(Corpus(steps=steps)).for_language("en")


def words_in(text: str, lengths: list[int]) -> list[str]:
    """The recorded words: what stands at these lengths, white space passed over."""
    words, at = [], 0
    for length in lengths:
        while text[at : at + 1].isspace():
            at += 1
        words.append(text[at : at + length])
        at += length
    assert not text[at:].strip()
    return words


@cache
def all_values() -> list[dict[str, float]]:
    """Of every recorded text with words, from datatrove's words."""
    return [values_of(row["text"], describe(words_in(row["text"], row["words"]))) for row in rows()]


def rows() -> Iterator[dict[str, Any]]:
    return (row for row in recorded()[1] if row["words"])


def values_of(text: str, words: Words) -> dict[str, float]:
    limits = english().limits
    steps = {
        "repetition": repetition.measure(text, words, 1),
        "gopher": gopher.measure(
            text,
            [line.strip() for line in text.splitlines()],
            words,
            limits["gopher"]["stop_words"],
        ),
        "fineweb": fineweb.measure(text, len(words), short_line_characters=30, terminals=TERMINALS),
    }
    return {f"{step}.{k}": v for step, values in steps.items() for k, v in values.items()}


def test_enough_is_recorded() -> None:
    assert len(list(rows())) >= 500
    assert {row["language"] for row in rows()} >= {"en", "de", "fr", "es", "ru", "ar", "tr"}


@pytest.mark.parametrize(("step", "key"), KEYS)
def test_every_rule_decides_as_datatrove(step: str, key: str) -> None:
    head, _ = recorded()
    rules = [
        r for r in RULES[step] if r.key in {key, "max_ellipses" if key == "max_hashes" else key}
    ]
    limit = head["limits"][step][key]
    seen = set()
    for row, values in zip(rows(), all_values(), strict=True):
        if not values["gopher.words"] and rules[0].measure == "word_length":
            continue  # the mean of nothing passes there; the text is too short before
        ours = [
            all(rule.keeps(values[f"{step}.{rule.measure}"], limit * factor) for rule in rules)
            for factor in head["grid"]
        ]
        theirs = row["keeps"][f"{step}.{key}"]
        assert "".join("01"[keep] for keep in ours) == theirs, (row["text"], values)
        seen.update(theirs)
    assert seen == {"0", "1"}


@pytest.mark.parametrize("terminal", [True, False])
def test_c4_leaves_the_same_text_and_counts_the_same_sentences(terminal: bool) -> None:
    signs = english().limits["punctuation"]
    limits = {**english().limits["c4"], "terminal_punctuation": terminal}
    decided = set()
    for row in recorded()[1]:
        theirs = row["c4"][not terminal]
        words = {line: words_in(line, lengths) for line, lengths in theirs["words"]}
        lines = [line.strip() for line in row["text"].splitlines()]
        kept = c4.kept_lines(
            row["text"], lines, [len(line.split()) for line in lines], limits, signs["line_end"]
        )
        assert "\n".join(kept.lines).strip() == theirs["left"]
        tokens = [words.get(line.strip(), words.get(line)) for line in kept.lines]
        counts = np.array(list(map(len, tokens)), np.int64)
        described = describe([token for line in tokens for token in line])
        values = kept.values | {
            "sentences": c4.count_sentences(kept.lines, described, counts),
            "bad_words": 0,
        }
        sentences = [values["sentences"] >= least for least in range(1, 13)]
        assert "".join("01"[keep] for keep in sentences) == theirs["keeps"], row["text"]
        assert (values["lorem_ipsum"] == 0, values["curly_brackets"] == 0) == (
            theirs["lorem"],
            theirs["curly"],
        )
        keeps = all(rule.keeps(values[rule.measure], limits[rule.key]) for rule in RULES["c4"])
        assert keeps == theirs["all"]
        decided.add(keeps)
    assert decided == {True, False}
