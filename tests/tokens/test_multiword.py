"""Promises of multi-word items."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from eyas.recipe import EyasError
from eyas.tokens import Tokenizer
from eyas.tokens.fit import Multiword, _Sample, train
from eyas.tokens.pairs import Bounds, Sequences, apply_merges, learn_merges
from eyas.tokens.pattern import multiword_pattern, stage_one_pattern

RESERVED = 16
_FILLER = "river garden winter harbour mountain letter window candle summer forest bridge".split()


def _texts() -> list[str]:
    """Two phrases in many documents, one over and over in a single one, rare words beside them."""
    rng = random.Random(5)
    texts = []
    for number in range(60):
        words = []
        for _ in range(30):
            words += [rng.choice(_FILLER), "of the", rng.choice(_FILLER), "في هذا", "البيت."]
            words += [rng.choice(_FILLER), f"x{number}q", str(rng.randrange(5000))]
        texts.append(" ".join(words))
    return [*texts, "buy cheap now " * 400]


TEXTS = _texts()
MULTIWORD = Tokenizer(train(TEXTS, 640, RESERVED, multiword=Multiword(share=0.2)).json)
FILE = json.loads(MULTIWORD.json)
ITEMS = {MULTIWORD.decode([i]) for i in range(RESERVED + 256, 640)}
SEVERAL = {item for item in ITEMS if " " in item.strip() and any(c.isalpha() for c in item)}


def test_phrases_of_many_documents_are_items_and_spans_of_one_document_are_not() -> None:
    assert " of the" in SEVERAL
    assert " في هذا" in SEVERAL
    assert not any("buy" in item or "cheap" in item for item in SEVERAL)


def test_items_are_bounded_in_words_and_hold_no_digit_line_end_or_end_of_sentence() -> None:
    assert max(len(item.split()) for item in SEVERAL) <= 4
    assert not any(set(item) & set(".!?؟\n\r\t0123456789") for item in SEVERAL)
    two = Tokenizer(train(TEXTS, 640, RESERVED, multiword=Multiword(share=0.2, words=2)).json)
    assert max(len(two.decode([i]).split()) for i in range(RESERVED, 640)) == 2


def test_no_item_ends_inside_a_word_of_the_texts() -> None:
    words = {word.strip(".") for text in TEXTS for word in text.split()}
    assert all(word.strip(".") in words for item in SEVERAL for word in item.split())


def test_the_vocabulary_is_filled_exactly_and_the_share_is_a_bound() -> None:
    assert MULTIWORD.vocab_size == 640
    ids = FILE["model"]["vocab"].values()
    assert sorted(ids) == list(range(640))
    made = train(TEXTS, 640, RESERVED, multiword=Multiword(share=0.2))
    assert len(SEVERAL) <= made.multiword_items <= 128
    few = train(TEXTS, 640, RESERVED, multiword=Multiword(share=0.9, documents=61))
    assert few.multiword_items < 100
    assert Tokenizer(few.json).vocab_size == 640
    with pytest.raises(EyasError, match="asks for 99000"):
        train(TEXTS, 99_000, RESERVED, multiword=Multiword())


def test_the_size_that_an_error_names_can_be_reached() -> None:
    few = Multiword(share=0.02)
    with pytest.raises(EyasError, match="asks for 900") as error:
        train(TEXTS, 900, RESERVED, multiword=few)
    size = int(re.findall(r"about (\d+)", str(error.value))[0])
    assert 700 < size < 900
    assert Tokenizer(train(TEXTS, size, RESERVED, multiword=few).json).vocab_size == size


@given(st.permutations(range(8)), st.integers(1, 120))
def test_what_the_second_stage_looks_at_does_not_depend_on_the_order(
    order: list[int], most: int
) -> None:
    texts = [f"text {n} " * (1 + n % 3) for n in range(8)] + ["text 3"]
    kept = []
    for arranged in (texts, [texts[n] for n in order] + texts[8:]):
        sample = _Sample(most)
        assert list(sample.through(arranged)) == arranged
        kept.append(sample.texts())
    assert kept[0] == kept[1]


def test_the_same_texts_in_another_order_give_the_same_bytes() -> None:
    again = train(TEXTS[::-1], 640, RESERVED, multiword=Multiword(share=0.2)).json
    assert again == MULTIWORD.json


def _stage_one(pattern: str) -> HuggingFaceTokenizer:
    """MULTIWORD without its merges over words, cutting by `pattern`."""
    kept = [m for m in FILE["model"]["merges"] if "Ġ" not in m[1]]
    inner = HuggingFaceTokenizer.from_str(
        json.dumps(FILE | {"model": FILE["model"] | {"merges": kept}})
    )
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return inner


PLAIN, RUNS = _stage_one(stage_one_pattern()), _stage_one(multiword_pattern())
_PIECES = st.sampled_from(
    [
        *_FILLER,
        "في",
        "هذا",
        "البيت",
        "وَكَتَبَ",
        "don't",
        "((bar",
        "_x",
        "x.y",
        "...",
        ").",
        ")).",
        "`:\n",
        "؛\n",
        ",",
        "-",
        '."',
        " ",
        "  ",
        "\n",
        "\t",
        ":\n\n",
        "12345",
        "camelCase",
        "HTTPServer",
        "漢字",
        "한글",
        "ไทย",
        "👨‍👩‍👧",
    ]
)


@given(st.lists(_PIECES, max_size=14), st.sampled_from(["", " "]))
@settings(max_examples=300)
def test_before_a_multi_word_merge_ids_are_those_of_the_first_stage(
    pieces: list[str], between: str
) -> None:
    text = between.join(pieces)
    assert RUNS.encode(text).ids == PLAIN.encode(text).ids
    assert MULTIWORD.decode(MULTIWORD.encode(text)) == text


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_what_a_normaliser_leaves_comes_back(form: str) -> None:
    tokenizer = Tokenizer(
        train(TEXTS, 640, RESERVED, normalisation=form, multiword=Multiword(share=0.2)).json
    )
    text = "of the e\u0301 ﷺ ﻻ ½ في هذا"
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize(form, text)
    assert len(tokenizer.encode(" of the")) == 1


def _ends(pattern: str, text: str) -> set[int]:
    """Where `pattern` cuts."""
    pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    return {end for _, (_, end) in pieces}


@given(st.lists(_PIECES, max_size=14), st.sampled_from(["", " "]))
@settings(max_examples=300)
def test_no_piece_of_the_first_stage_is_cut_by_the_longer_ones(
    pieces: list[str], between: str
) -> None:
    text = between.join(pieces)
    assert _ends(multiword_pattern(), text) <= _ends(stage_one_pattern(), text)


@pytest.mark.parametrize("signs", [");\n", ")).", "`:\n\n", " ----\n", "،\n", '"]).\n', "**:"])
def test_a_run_of_signs_and_the_line_ends_after_it_are_one_piece(signs: str) -> None:
    text = f"word{signs}"
    assert _ends(multiword_pattern(), text) <= {len("word"), len(text)}


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert MULTIWORD.decode(MULTIWORD.encode(text)) == text


@pytest.mark.parametrize(
    "unit", [" a", " م", "a", "م", "َ", " of the", "漢", " ไ", "(", " ", "\n", "x."]
)
def test_long_monotone_texts_encode_alike_in_both_libraries(unit: str) -> None:
    import fastokens

    text = unit * (2**18 // len(unit.encode()))
    inner = HuggingFaceTokenizer.from_str(MULTIWORD.json.decode())
    fast = fastokens.Tokenizer.from_json_str(MULTIWORD.json.decode())
    flat, _ = fast.encode_batch_flat([text], split_special_tokens=True)
    assert np.frombuffer(flat, np.uint32).tolist() == inner.encode(text).ids


@pytest.mark.parametrize(
    ("digits", "pieces"),
    [("triples", ["123", "4"]), ("single", ["1", "2", "3", "4"]), ("free", ["1234"])],
)
def test_digits_are_cut_as_asked_with_and_without_multi_word_items(
    digits: str, pieces: list[str]
) -> None:
    for pattern in (stage_one_pattern(digits), multiword_pattern(digits)):
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        assert [p for p, _ in split.pre_tokenize_str("a 1234")][-len(pieces) :] == pieces


def _exact(rows: list[list[int]], bounds: Bounds, first: int) -> list[tuple[int, int]]:
    """BPE one merge at a time, in plain Python."""
    merges: list[tuple[int, int]] = []
    while len(merges) < bounds.most:
        counts: dict[tuple[int, int], int] = {}
        for row in rows:
            for pair in pairwise(row):
                counts[pair] = counts.get(pair, 0) + 1
        good = {p: n for p, n in counts.items() if n >= bounds.count}
        if not good:
            break
        best = min(good, key=lambda p: (-good[p], p))
        new = first + len(merges)
        merges.append(best)
        rows = [_merged(row, best, new) for row in rows]
    return merges


def _merged(row: list[int], pair: tuple[int, int], new: int) -> list[int]:
    out: list[int] = []
    for item in row:
        if out and (out[-1], item) == pair:
            out[-1] = new
        else:
            out.append(item)
    return out


def _flat(rows: list[list[int]]) -> Sequences:
    ids = np.array([i for row in rows for i in row], np.int64)
    joined = np.array([j < len(row) - 1 for row in rows for j in range(len(row))], bool)
    documents = np.array([n for n, row in enumerate(rows) for _ in row], np.int64)
    return Sequences(ids, joined, documents)


_ROWS = st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=12), min_size=1, max_size=20)


@given(_ROWS)
@settings(max_examples=200)
def test_merges_apply_as_an_encoder_would(rows: list[list[int]]) -> None:
    merges = _exact(rows, Bounds(12, 1, 1, 99), 5)
    expected = []
    for row in rows:
        for rank, pair in enumerate(merges):
            row = _merged(row, pair, 5 + rank)
        expected += row
    sequences = apply_merges(_flat(rows), merges, 5)
    assert sequences.ids.tolist() == expected


def test_batches_of_merges_compress_as_well_as_one_at_a_time() -> None:
    rng = random.Random(3)
    rows = [[min(int(rng.expovariate(0.4)), 19) for _ in range(60)] for _ in range(80)]
    bounds = Bounds(120, 2, 1, 99)
    batched, counts = learn_merges(_flat(rows), np.zeros(20, np.int64), bounds)
    exact = _exact(rows, bounds, 20)
    assert len(batched) == len(exact) == len(counts) == 120
    assert counts[0] == max(counts)
    sizes = [len(apply_merges(_flat(rows), merges, 20).ids) for merges in (batched, exact)]
    assert sizes[0] <= sizes[1] * 1.01


def test_a_pair_of_one_document_is_never_taken() -> None:
    rows = [[0, 1] * 50, [2, 3], [2, 3], [2, 3]]
    merges, counts = learn_merges(_flat(rows), np.ones(4, np.int64), Bounds(9, 2, 3, 4))
    assert (merges, counts) == ([(2, 3)], [3])
