"""`eyas recipe`: what it says of the recipes that come with eyas, and of ones that take over."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyas.cli import main
from eyas.recipe import Recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_that_comes_along_is_good(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipe", "check", str(path)]) == 0
    assert f"{path}: good; " in capsys.readouterr().out


def test_the_mixture_recipe_shows_what_there_is() -> None:
    (path,) = (path for path in RECIPES if path.stem == "jurassic-tokenizer")
    recipe = Recipe.load(path)
    assert (recipe.tokenizer.vocab_size, recipe.tokenizer.multiword) == (262_144, True)
    kinds = [source.from_.partition(":")[0] for source in recipe.data.sources]
    assert kinds == ["", "", "hf", "mds"]
    assert len(recipe.data.milestones) == 2


def test_check_needs_no_store_to_take_a_tokenizer_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.toml"
    path.write_text('name = "r"\nstore = "s"\n[tokenizer]\nfrom = "s3://bucket/out-of-reach"\n')
    assert main(["recipe", "check", str(path)]) == 0
    assert "parameters by the tokenizer of s3://bucket/out-of-reach" in capsys.readouterr().out
    assert main(["recipe", "check", str(path), "--set", "model.vocab_size=4096"]) == 0
    assert "tokenizer of" not in capsys.readouterr().out
