"""Promises: with healing an answer does not depend on where the tokenizer cut the prompt, and the
end of the prompt is not told twice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from tests.tokens.handmade import handmade, of_words
from torch import Tensor

from eyas.model import Model
from eyas.shape import ModelShape
from eyas.tokens import Tokenizer

torch.set_num_threads(1)

TOKENIZER = Tokenizer(
    of_words("we live", " in the United", " States", " garden", "نحن", " في البيت")
)


class Reciter(torch.nn.Module):
    """Knows one sequence of ids by heart: after a token it says the next one; after a token that is
    not in the sequence, the end of the text."""

    def __init__(self, known: Sequence[int], size: int) -> None:
        super().__init__()
        assert len(set(known[1:])) == len(known) - 1
        self.embedding = torch.nn.Embedding(size, size)
        self.embedding.weight.data = torch.eye(size)
        self.after = torch.zeros(size, size)
        self.after[:, known[-1]] = 1.0
        for one, two in itertools.pairwise(known):
            self.after[one, two] = 9.0

    @property
    def head_weight_VD(self) -> Tensor:
        return self.embedding.weight

    def features(self, ids_BT: Tensor, cache: object = None, document_ids: object = None) -> Tensor:
        return self.after[ids_BT]


def reciter(text: str, tokenizer: Tokenizer = TOKENIZER) -> Model:
    known = [tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text]
    shape = ModelShape(
        name="recites",
        n_layers=1,
        d_model=8,
        n_heads=1,
        n_kv_heads=1,
        head_dim=8,
        d_ff=8,
        vocab_size=tokenizer.vocab_size,
        max_sequence=24,
    )
    return Model(shape, Reciter(known, shape.vocab_size), tokenizer)  # type: ignore[arg-type]


TEXT = "we live in the United States"
MODEL = reciter(TEXT)


def test_without_healing_the_answer_is_lost_where_an_item_goes_on() -> None:
    assert MODEL.generate("we live in the", 30) == ""
    assert MODEL.generate("we live in the", 30, heal=True) == " United States"


@pytest.mark.parametrize("cut", range(len(TEXT)))
def test_wherever_the_prompt_ends_the_answer_goes_on_from_there(cut: int) -> None:
    assert MODEL.generate(TEXT[:cut], 30, heal=True) == TEXT[cut:]
    assert "".join(MODEL.stream(TEXT[:cut], 30, heal=True)) == TEXT[cut:]


@pytest.mark.parametrize("cut", range(12))
def test_arabic_goes_on_within_its_words(cut: int) -> None:
    text = "نحن في البيت"
    assert reciter(text).generate(text[:cut], 30, heal=True) == text[cut:]


def test_a_tail_may_begin_inside_a_character() -> None:
    feh, yeh = "ف".encode(), "ي".encode()
    pairs = [(b" ", feh[:1]), (feh[1:], yeh[:1]), (feh[1:] + yeh[:1], yeh[1:])]
    tokenizer = Tokenizer(handmade(pairs))
    ids = tokenizer.encode("a ف")
    assert tokenizer.heal(ids) == (ids[:-1], feh[1:])
    assert list(reciter("a في", tokenizer).stream("a ف", 9, heal=True)) == ["ي"]


def test_what_is_told_again_is_in_no_piece_and_does_not_count() -> None:
    first, *others = MODEL.pieces("we live in the", 2, heal=True)
    assert first.text == " United"
    assert first.ids == (TOKENIZER.items.index(b" in the United"),)
    answer = MODEL.complete("we live in the", 2, heal=True, logprobs=1)
    assert answer.text == "".join(piece.text for piece in [first, *others])
    assert (len(answer.ids), answer.finish_reason) == (2, "length")
    assert answer.prompt_tokens == len(TOKENIZER.encode("we live in the"))
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 2


def test_a_prompt_told_again_as_it_was_costs_no_token() -> None:
    model = reciter("we live in the garden")
    assert model.complete("we live in the", 1, heal=True).ids == tuple(TOKENIZER.encode(" garden"))
    assert model.generate("we live in the", 30, heal=True) == " garden"


def test_a_stop_string_is_looked_for_in_the_answer_only() -> None:
    assert MODEL.generate("we live in the", 30, stop=" the", heal=True) == " United States"
    assert MODEL.generate("we live in the", 30, stop="ed St", heal=True) == " Unit"


def test_sampling_keeps_to_the_prompt() -> None:
    for seed in range(5):
        text = MODEL.generate("we live in", 1, temperature=5.0, seed=seed, heal=True)
        assert "\ufffd" in text or text.isascii()
        pieces = list(MODEL.pieces("we live in", 1, 5.0, seed, heal=True))
        assert sum(len(piece.ids) for piece in pieces) <= 1


def test_an_answer_of_no_tokens_is_empty() -> None:
    assert MODEL.generate("we live in the", 0, heal=True) == ""
