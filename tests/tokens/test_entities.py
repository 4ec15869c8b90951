"""Promises of names: the list, what is found in text, how they become items."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eyas.recipe import EyasError
from eyas.tokens import Tokenizer
from eyas.tokens.entities import read_names
from eyas.tokens.fit import Multiword, train

RESERVED = 16
FILLER = "river garden winter harbour and mountain of letter in window candle".split()
NAMES = [
    "Golden State Warriors",
    "Bank of England",
    "عبد الرحمن",
    "محمد بن سلمان",
    "المدينة المنورة",
]
APART = "Golden State Warriors Bank England محمد الرحمن المدينة سلمان".split()


def _texts() -> list[str]:
    rng = random.Random(2)
    texts = []
    for _ in range(50):
        words = []
        for _ in range(25):
            words += [*rng.choices(FILLER, k=6), *rng.sample(NAMES, 1), rng.choice(FILLER)]
        texts.append(" ".join(words))
    return [*texts, " ".join(APART), "x Silver Sparrow " * 200]


TEXTS = _texts()


def _trained(names: tuple[str, ...] = (), share: float = 0.2) -> tuple[Tokenizer, int, int]:
    made = train(TEXTS, 480, RESERVED, multiword=Multiword(share, names=names))
    return Tokenizer(made.json), made.entity_items, made.entities_found


def test_names_are_found_with_small_words_inside_and_in_arabic_without_capitals() -> None:
    tokenizer, _, found = _trained()
    assert found >= len(NAMES)
    for name in NAMES:
        assert len(tokenizer.encode(f" {name}")) == 1, name


def test_words_that_meet_by_chance_or_in_one_document_only_are_no_names() -> None:
    tokenizer, _, _ = _trained()
    assert len(tokenizer.encode(" Silver Sparrow")) > 1
    assert len(tokenizer.encode(" England Bank")) == 2


def test_a_given_name_is_an_item_even_if_the_text_does_not_have_it() -> None:
    tokenizer, items, _ = _trained(("river of Golden", "window harbour", "unknownword river"))
    assert len(tokenizer.encode(" river of Golden")) == 1
    assert len(tokenizer.encode(" window harbour")) == 1
    assert len(tokenizer.encode(" unknownword river")) > 1
    assert items > _trained()[1]


def test_names_that_take_words_from_each_other_make_no_item_twice() -> None:
    tokenizer, _, _ = _trained(("river garden winter", "garden winter harbour", "winter harbour"))
    assert tokenizer.vocab_size == 480
    assert len({tokenizer.decode_bytes([i]) for i in range(RESERVED, 480)}) == 480 - RESERVED


def test_the_built_in_list_has_well_known_names_of_both_languages() -> None:
    names = read_names("builtin")
    assert len(names) > 600
    assert {"United Nations", "New York Times", "الأمم المتحدة", "عمر بن الخطاب"} <= set(names)
    assert len(set(names)) == len(names)
    assert not any("#" in name or name != " ".join(name.split()) for name in names)


def test_a_list_is_replaceable_or_off_and_a_bad_one_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "names.txt"
    mine.write_text("# mine\n\n  Hill   Street \nHill Street\nX Y # why\n", "utf-8")
    assert read_names(str(mine)) == ("Hill Street", "X Y")
    assert read_names("") == ()
    with pytest.raises(EyasError, match=r"tokenizer\.entities: .*missing"):
        read_names(str(tmp_path / "missing"))
    mine.write_bytes(b"\xff\xfe")
    with pytest.raises(EyasError, match=r"UTF-8"):
        read_names(str(mine))


def test_the_line_of_a_list_that_is_no_text_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "names.txt"
    mine.write_bytes("\ufeffHill Street\nمحمد صلاح\n".encode() + b"caf\xe9 Bar\n")
    with pytest.raises(EyasError, match=r"line 3 of .*names\.txt is not UTF-8"):
        read_names(str(mine))
    mine.write_bytes(b"Hill Street\nHill\x00Street\n")
    with pytest.raises(EyasError, match=r"line 2 of .*names\.txt holds a control character"):
        read_names(str(mine))
    mine.write_bytes("\ufeffHill Street\r\n\tX Y\r\n".encode())
    assert read_names(str(mine)) == ("Hill Street", "X Y")
    with pytest.raises(EyasError, match="cannot be read"):
        read_names(str(tmp_path))


def test_a_given_name_of_more_words_than_an_item_may_have_makes_no_item() -> None:
    made = train(
        TEXTS, 480, RESERVED, multiword=Multiword(0.2, words=2, names=("river garden winter",))
    )
    tokenizer = Tokenizer(made.json)
    assert len(tokenizer.encode(" river garden winter")) > 1
    assert max(len(tokenizer.decode([i]).split()) for i in range(RESERVED, 480)) == 2
