"""Samples come as they are, and come again."""

from __future__ import annotations

from tests.judge.made import random_model

from eyas.judge import samples


def test_every_prompt_gives_a_greedy_and_a_sampled_continuation() -> None:
    model = random_model()
    found = samples(model, ["The falcon", "الصقر"], 12)
    assert [(s.prompt, s.temperature) for s in found] == [
        ("The falcon", 0.0),
        ("The falcon", 0.8),
        ("الصقر", 0.0),
        ("الصقر", 0.8),
    ]
    assert found[0].text == model.generate("The falcon", 12)
    assert found[3].text == model.generate("الصقر", 12, temperature=0.8, seed=found[3].seed)


def test_the_same_seed_says_the_same_and_another_something_else() -> None:
    model = random_model()
    assert samples(model, ["x"], 12, seed=4) == samples(model, ["x"], 12, seed=4)
    assert samples(model, ["x"], 12, seed=4)[1].text != samples(model, ["x"], 12, seed=5)[1].text
