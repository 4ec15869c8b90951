"""Promises: a healed prompt keeps what no item goes on from and allows what agrees with its text;
for its likelihood a text is encoded whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokens.handmade import handmade, of_words
from tests.tokens.made import document

from eyas.tokens import Tokenizer, encode_joint
from eyas.tokens.fit import train
from eyas.tokens.healing import MOST

WORDS = Tokenizer(of_words("the river", " in the", " in the United", " في البيت", " New York City"))
TRAINED = Tokenizer(train([document(n, words=50)["text"] for n in range(60)], 512, 16).json)
BOTH = pytest.mark.parametrize("tokenizer", [WORDS, TRAINED], ids=["words", "trained"])
PROMPTS = ["", "x", "the", "the ri", "we live in the", "we live in", " in the Unit", "New Yor", "ف"]


def _items(tokenizer: Tokenizer, ids: list[int]) -> list[bytes]:
    return [tokenizer.items[i] for i in ids]


def test_a_prompt_that_ends_inside_an_item_of_several_words_is_cut_before_it() -> None:
    ids = WORDS.encode("we live in the")
    assert _items(WORDS, ids)[-1] == b" in the"
    kept, tail = WORDS.heal(ids)
    assert WORDS.decode(kept) == "we live"
    assert tail == b" in the"
    allowed = _items(WORDS, WORDS.allowed(tail).tolist())
    assert set(allowed) == {b" in the United", b" in the", b" in", b" "}


def test_several_tokens_are_taken_where_one_item_could_stand_for_them() -> None:
    ids = WORDS.encode("I love New Yor")
    assert _items(WORDS, ids)[-3:] == [b" New", b" ", b"Yor"]
    kept, tail = WORDS.heal(ids)
    assert (WORDS.decode(kept), tail) == ("I love", b" New Yor")


def test_a_prompt_that_nothing_goes_on_from_is_kept() -> None:
    ids = WORDS.encode("zq")
    assert WORDS.heal(ids) == (ids, b"")
    assert WORDS.heal([]) == ([], b"")


def test_special_ids_are_never_taken_nor_allowed() -> None:
    ids = [*WORDS.encode(" in"), WORDS.end_of_text]
    assert WORDS.heal(ids) == (ids, b"")
    tail = WORDS.heal([WORDS.end_of_text, *WORDS.encode(" in")])
    assert tail == ([WORDS.end_of_text], b" in")
    assert 0 not in WORDS.allowed(b"<")
    assert 0 not in WORDS.allowed(b"<|endoftext|>")


@BOTH
def test_what_is_kept_and_the_tail_are_the_prompt(tokenizer: Tokenizer) -> None:
    for prompt in [*PROMPTS, document(5, words=9)["text"]]:
        ids = tokenizer.encode(prompt)
        kept, tail = tokenizer.heal(ids)
        assert kept == ids[: len(kept)]
        assert len(ids) - len(kept) <= MOST
        assert tokenizer.decode_bytes(kept) + tail == prompt.encode()


@BOTH
@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_just_the_items_that_agree_with_the_tail_are_allowed(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    items = st.sampled_from([i for i in tokenizer.items[16:] if i])
    tail = data.draw(st.one_of(items, st.tuples(items, items).map(b"".join), st.just(b"\xff\xff")))
    tail = tail[: data.draw(st.integers(1, len(tail)))]
    special = 2 if tokenizer is WORDS else 16
    expected = [
        i
        for i in range(special, tokenizer.vocab_size)
        if (item := tokenizer.items[i]).startswith(tail) or tail.startswith(item)
    ]
    assert tokenizer.allowed(tail).tolist() == expected


def test_the_last_item_in_the_order_of_bytes_is_found() -> None:
    pairs = [(b"\xff", b"\xff"), (b"\xff\xff", b"\xff")]
    tokenizer = Tokenizer(handmade(pairs))
    assert _items(tokenizer, tokenizer.allowed(b"\xff\xff").tolist()) == [
        b"\xff",
        b"\xff\xff",
        b"\xff\xff\xff",
    ]


def test_a_continuation_may_begin_inside_an_item() -> None:
    ids, first = encode_joint(WORDS, "we live in the", " United States")
    assert ids == WORDS.encode("we live in the United States")
    assert WORDS.items[ids[first]] == b" in the United"
    assert WORDS.decode(ids[:first]) == "we live"


@BOTH
def test_the_first_token_of_a_continuation_is_the_first_that_reaches_into_it(
    tokenizer: Tokenizer,
) -> None:
    rng = random.Random(3)
    for number in range(40):
        text = document(number, words=8)["text"]
        cut = rng.randrange(len(text) + 1)
        ids, first = encode_joint(tokenizer, text[:cut], text[cut:])
        assert ids == tokenizer.encode(text)
        size = len(text[:cut].encode())
        assert len(tokenizer.decode_bytes(ids[:first])) <= size
        assert first == len(ids) or len(tokenizer.decode_bytes(ids[: first + 1])) > size


def test_without_a_continuation_there_is_no_first_token() -> None:
    ids, first = encode_joint(WORDS, "in the", "")
    assert first == len(ids) > 0
    assert encode_joint(WORDS, "", "in") == (WORDS.encode("in"), 0)
