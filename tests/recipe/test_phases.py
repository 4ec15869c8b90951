"""Promises of milestones: what changes when."""

from __future__ import annotations

from typing import Any

from eyas.recipe import Phase, Recipe, planned_steps, recipe_phases


def _recipe(text: str, **train: Any) -> Recipe:
    keys = {"tokens": 10_000, "global_batch": 320} | train
    lines = "\n".join(f"{name} = {value}" for name, value in keys.items())
    return Recipe.parse(
        f'name = "t"\nstore = "./t"\n[train]\n{lines}\n[data]\nsequence = 32\n{text}', "test"
    )


def test_train_tokens_are_reached_by_whole_steps_rounded_down() -> None:
    assert recipe_phases(_recipe("")) == [Phase(0, 31, 32, 10, {})]
    assert planned_steps(_recipe("", tokens=320)) == 1


def test_a_milestone_begins_with_the_first_step_at_which_so_many_tokens_were_seen() -> None:
    recipe = _recipe(
        """
        [[data.sources]]
        name = "a"
        languages = ["en"]
        [[data.sources]]
        name = "b"
        [[data.milestones]]
        tokens = 3_200
        global_batch = 640
        [[data.milestones]]
        tokens = 3_201
        weights = { b = 3 }
        [[data.milestones]]
        tokens = 6_401
        sequence = 64
        """
    )
    assert recipe_phases(recipe, {"a": 1.0, "b": 0.0}) == [
        Phase(0, 10, 32, 10, {"a": 1.0, "b": 0.0}),
        Phase(10, 1, 32, 20, {"a": 1.0, "b": 0.0}),
        Phase(11, 5, 32, 20, {"a": 1.0, "b": 3}),
        Phase(16, 4, 64, 10, {"a": 1.0, "b": 3}),
    ]
    assert planned_steps(recipe) == 20


def test_milestones_that_come_together_or_too_late_or_change_nothing_leave_no_phase() -> None:
    recipe = _recipe(
        """
        [[data.milestones]]
        tokens = 1
        global_batch = 640
        [[data.milestones]]
        tokens = 2
        global_batch = 1280
        [[data.milestones]]
        tokens = 5_000
        global_batch = 1280
        [[data.milestones]]
        tokens = 1_000_000
        global_batch = 32
        """
    )
    assert recipe_phases(recipe) == [Phase(0, 1, 32, 10, {}), Phase(1, 7, 32, 40, {})]
