"""One file, one typed value; every problem named with its key, what was given and what is legal."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import pytest

from eyas.recipe import Recipe, UsageError, commented_recipe, parse_override

HEAD = 'name = "r"\nstore = "./s"\n'


def _problems(text: str, **overrides: object) -> str:
    with pytest.raises(UsageError) as caught:
        Recipe.parse(HEAD + text, "r.toml", overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_units_and_defaults() -> None:
    recipe = Recipe.parse(HEAD + '[train]\ntokens = "1B"\nglobal_batch = "4Mi"', "r.toml")
    assert recipe.train.tokens == 10**9
    assert recipe.train.global_batch == 4 * 2**20
    assert recipe.corpus.language_threshold == 0.65


def test_an_unknown_key_names_itself_and_the_nearest() -> None:
    assert "train.token: no such key; did you mean tokens?" in _problems("[train]\ntoken = 1")


def test_an_unknown_section_names_the_nearest() -> None:
    assert "corpos: no such key; did you mean corpus?" in _problems("[corpos]")


def test_all_problems_come_at_once() -> None:
    text = _problems('[train]\nlr = "a"\nschedule = "linear"\n[data]\nsequence = 2')
    assert "3 problems" in text
    assert 'train.lr: "a" is not legal; write a number' in text
    assert 'train.schedule: "linear" is not legal; legal are cosine, constant' in text
    assert "data.sequence: 2 is not legal; at least 8" in text


def test_a_wrong_type_says_what_to_write() -> None:
    assert "write true or false" in _problems("[model]\ntied = 1")
    assert "write a list" in _problems('[corpus]\nsources = "a.warc"')
    assert "write a whole number" in _problems("[model]\nn_layers = 2.5")
    assert "not a section" in _problems("train = 3")
    assert "finite" in _problems("[train]\nlr = inf")
    assert "train.tokens: 1" in (huge := _problems(f"[train]\ntokens = 1{'0' * 400}"))
    assert "at most 9223372036854775807" in huge


def test_impossible_combinations_are_refused() -> None:
    text = _problems("[data]\nsequence = 300\n[train]\nglobal_batch = 1000")
    assert "not a multiple of data.sequence (300); the nearest below is 900" in text
    assert "less than one step" in _problems('[train]\ntokens = "1K"')
    assert "lr_min" in _problems("[train]\nlr_min = 1.0")
    assert "no room" in _problems("[tokenizer]\nvocab_size = 512\nreserved = 300")


@pytest.mark.parametrize("name", ["..", ".", "a/b", "-x"])
def test_a_name_that_is_no_folder_of_its_own_is_refused(name: str) -> None:
    assert f'name: "{name}" is not legal' in _problems("", name=name)


def test_a_broken_file_names_its_line() -> None:
    assert "line 4" in _problems("[train]\ntokens = = 3")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such"):
        Recipe.load(tmp_path / "no-such.toml")


def test_overrides_reach_any_key() -> None:
    recipe = Recipe.parse(HEAD, "r.toml", {"train.lr": 1e-3, "store": "s3://b/p"})
    assert recipe.train.lr == 1e-3
    assert recipe.store == "s3://b/p"
    assert "train.lrr: no such key" in _problems("", **{"train.lrr": 1})
    assert "name is not a section" in _problems("", **{"name.x": 1})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("train.lr=3e-4", ("train.lr", 3e-4)),
        ("store=s3://b/p", ("store", "s3://b/p")),
        ("train.tokens=4M", ("train.tokens", "4M")),
        ("model.tied=false", ("model.tied", False)),
        ('corpus.sources=["a"]', ("corpus.sources", ["a"])),
    ],
)
def test_set_takes_toml_or_a_string(text: str, value: tuple[str, object]) -> None:
    assert parse_override(text) == value


@pytest.mark.parametrize("text", ["train.lr", "=3"])
def test_a_malformed_set_says_how(text: str) -> None:
    with pytest.raises(UsageError, match=r"SECTION\.KEY=VALUE"):
        parse_override(text)


def test_the_resolved_recipe_loads_back_equal() -> None:
    recipe = Recipe.parse(HEAD + '[corpus]\nsources = ["ب \\"x\\"", "a"]\n', "r.toml")
    assert Recipe.parse(recipe.to_toml(), "again") == recipe


def test_a_section_hash_depends_on_its_section_alone() -> None:
    one = Recipe.parse(HEAD, "r.toml")
    two = Recipe.parse(HEAD, "r.toml", {"train.lr": 1e-3})
    assert one.section_hash("corpus") == two.section_hash("corpus")
    assert one.section_hash("train") != two.section_hash("train")
    assert one.section_hash("train", "corpus") == one.section_hash("corpus", "train")
    assert one.hash != two.hash


def test_the_commented_recipe_names_every_key_and_is_good() -> None:
    text = commented_recipe("my run!")
    recipe = Recipe.parse(text, "init")
    assert recipe.name == "my-run"
    for section, cls in typing.get_type_hints(Recipe).items():
        if dataclasses.is_dataclass(cls):
            _assert_named(text, section, cls)


def _assert_named(text: str, section: str, cls: typing.Any) -> None:
    assert f"\n[{section}] " in text
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name = field.name.removesuffix("_")
        if dataclasses.is_dataclass(hints[field.name]):
            _assert_named(text, f"{section}.{name}", hints[field.name])
        else:
            assert f"{name} =" in text


def test_its_commented_defaults_are_the_defaults() -> None:
    lines = commented_recipe("x").splitlines()
    shown = [li[1:] if li.startswith("#") and not li.startswith("# ") else li for li in lines]
    kept = [line for line in shown if not line.endswith("=")]
    spoken = Recipe.parse("\n".join(kept), "uncommented")
    assert spoken == Recipe.parse(commented_recipe("x"), "init")


def test_the_schema_covers_every_key() -> None:
    schema = Recipe.schema()
    assert schema["additionalProperties"] is False
    train = schema["properties"]["train"]["properties"]
    assert train["schedule"]["enum"] == ["cosine", "constant"]
    assert train["lr"]["exclusiveMinimum"] == 0
    assert train["tokens"]["type"] == ["number", "string"]
    assert all("description" in key for key in train.values())


MIXTURE = """
[tokenizer]
from = "./other"
[data]
sequence = 8
sources = [{ name = "web", languages = ["en"], weight = 0.7 }, { name = "rest", epochs = 2 }]
[[data.milestones]]
tokens = "1M"
weights = { web = 1, rest = 3 }
global_batch = 64
[train]
global_batch = 32
"""


def test_a_mixture_is_a_list_of_tables_and_round_trips() -> None:
    recipe = Recipe.parse(HEAD + MIXTURE, "r.toml")
    assert recipe.tokenizer.from_ == "./other"
    assert [(s.name, s.weight, s.epochs) for s in recipe.data.sources] == [
        ("web", 0.7, 0.0),
        ("rest", 1.0, 2.0),
    ]
    (milestone,) = recipe.data.milestones
    assert (milestone.tokens, milestone.weights) == (10**6, {"web": 1.0, "rest": 3.0})
    assert Recipe.parse(recipe.to_toml(), "again") == recipe
    assert '[{ name = "web" ' not in commented_recipe("x")
    assert "#   languages " in commented_recipe("x")
    assert Recipe.schema()["properties"]["data"]["properties"]["sources"]["items"]["properties"]


def test_what_is_wrong_in_a_table_of_a_list_is_named() -> None:
    text = _problems('[data]\nsources = [{ name = "a", wieght = 1 }]')
    assert "data.sources[0].wieght: no such key; did you mean weight?" in text
    assert "write a list of tables" in _problems("[data]\nsources = { name = 1 }")
    assert "data.sources[0]: 3 is not a table" in _problems("[data]\nsources = [3]")
    text = _problems('[data]\nmilestones = [{ tokens = 1, weights = { a = "b" } }]')
    assert "data.milestones[0].weights" in text
    assert "write a number" in text


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ('{ name = "a b" }', "data.sources[0].name"),
        ('{ name = "a" }, { name = "a", languages = ["en"] }', "is there twice"),
        ('{ name = "a" }, { name = "b" }', "a and b both take all that is left"),
        ('{ name = "a", weight = 0 }', "every weight is 0"),
        ('{ name = "a", from = "x", languages = ["en"] }', "data.sources[0].languages"),
        ('{ name = "a", from = "msd:x" }', 'no kind of source "msd:"; did you mean mds?'),
    ],
)
def test_impossible_mixtures_are_refused(sources: str, expected: str) -> None:
    assert expected in _problems(f"[data]\nsources = [{sources}]")


@pytest.mark.parametrize(
    ("milestones", "expected"),
    [
        ("{ tokens = 5 }, { tokens = 5 }", "data.milestones[1].tokens: 5 is not after 5"),
        ("{ tokens = 5, weights = { b = 1 } }", "no source is named b; did you mean ab?"),
        ("{ tokens = 5, global_batch = 9 }", "9 tokens a step are not a multiple of 2048"),
        ("{ tokens = 5, weights = { ab = 0 } }", "every weight is 0"),
    ],
)
def test_impossible_milestones_are_refused(milestones: str, expected: str) -> None:
    text = f'[data]\nsources = [{{ name = "ab" }}]\nmilestones = [{milestones}]'
    assert expected in _problems(text)


@pytest.mark.parametrize("section", ["tokenizer", "data"])
def test_what_is_taken_from_a_store_is_not_taken_from_files(section: str) -> None:
    text = _problems(f'[{section}]\nfrom = "hf:./files"')
    assert f'{section}.from: "hf:" is no store; write s3://bucket/prefix or a folder' in text
    for legal in ("s3://bucket/run", "./a:b", "/data/run"):
        Recipe.parse(HEAD + f'[{section}]\nfrom = "{legal}"', "r.toml")


def test_the_kinds_of_foreign_sources_are_those_that_are_read() -> None:
    from eyas.tokens.foreign import KINDS

    for kind in KINDS:
        text = f'[data]\nsources = [{{ name = "a", from = "{kind}:./files" }}]'
        assert Recipe.parse(HEAD + text, "r.toml").data.sources[0].from_ == f"{kind}:./files"


def test_a_table_below_a_section_has_keys_of_its_own() -> None:
    text = '[corpus]\npreset = "fineweb"\n[corpus.gopher]\nmax_words = "200K"\nstop_words = ["و"]'
    recipe = Recipe.parse(HEAD + text, "r.toml", {"corpus.gopher.min_words": 30})
    gopher = recipe.corpus.gopher
    assert (gopher.min_words, gopher.max_words, gopher.stop_words) == (30, 200_000, ("و",))
    assert gopher.min_stop_words is None
    assert recipe.corpus.url.exclude_curated
    assert Recipe.parse(recipe.to_toml(), "again") == recipe
    again = Recipe.parse(HEAD + text, "r.toml")
    assert again.section_hash("corpus") != recipe.section_hash("corpus")


def test_what_is_wrong_in_a_table_below_a_section_is_named() -> None:
    assert "corpus.gopher.min_word: no such key; did you mean min_words?" in _problems(
        "[corpus.gopher]\nmin_word = 30"
    )
    assert "corpus.gopher.max_bullet_lines: 30 is not legal; at most 1" in _problems(
        "[corpus.gopher]\nmax_bullet_lines = 30"
    )
    assert "corpus.c4: true is not a section; write [corpus.c4]" in _problems(
        "[corpus]\nc4 = true"
    ).replace("True", "true")
    assert "write true or false" in _problems("[corpus.lines]\ndrop_numbers = 1")


def test_the_schema_reaches_the_tables_below_a_section() -> None:
    corpus = Recipe.schema()["properties"]["corpus"]["properties"]
    assert corpus["gopher"]["properties"]["max_bullet_lines"]["maximum"] == 1
    assert corpus["gopher"]["additionalProperties"] is False
    assert corpus["url"]["properties"]["max_soft_words"]["default"] == 1
    assert corpus["preset"]["enum"][0] == "refinedweb"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ('"language", "gofer"', 'there is no step "gofer"; did you mean gopher?'),
        ('"language", "gopher", "gopher"', '"gopher" is there twice'),
        ('"gopher", "language"', "language must come first"),
        ('"language", "url"', "url and language must come first, in this order"),
        ('"url", "gopher"', "language is missing"),
    ],
)
def test_steps_that_cannot_be_run_so_are_refused(steps: str, expected: str) -> None:
    assert expected in _problems(f"[corpus]\nsteps = [{steps}]")


def test_steps_may_stand_in_any_order_behind_the_language() -> None:
    text = '[corpus]\nsteps = ["url", "language", "lines", "gopher", "c4"]'
    assert Recipe.parse(HEAD + text, "r.toml").corpus.steps[2:] == ("lines", "gopher", "c4")
