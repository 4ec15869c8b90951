"""The whole flight on a reader's own pages: every stage proves itself, a rank is really killed,
and a second run does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from lxml import html as lxml_html
from tests.texts import write_html, write_jsonl
from tests.tokens.made import documents, whole

from eyas.recipe import Recipe
from eyas.shape import model_shape, parameters
from eyas.store import open_store

STAGES = [
    "sources",
    "corpus",
    "tokenizer",
    "tokens",
    "plan",
    "train",
    "judge",
    "export",
    "trace",
    "serve",
    "board",
]

RECIPE = """
name = "flight"
store = "{store}"
[corpus]
sources = ["{pages}/html", "{pages}/ar.jsonl", "{pages}/en.jsonl"]
language_threshold = 0.3
validation_share = 0.15
[tokenizer]
vocab_size = 896
[data]
sequence = 64
epochs = 8
[model]
preset = "nano-1m"
[train]
tokens = 4096
global_batch = 512
lr = 3e-3
checkpoint_every = 2
rehearse_kill = {kill}
[layout]
{layout}
[cluster]
processes = 2
threads = 1
workers = 2
[judge]
max_bytes = 20000
prompts = ["The river", "النهر"]
sample_tokens = 8
"""


def _run(recipe: Path, out: Path, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "eyas", "run", str(recipe), "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def recipe_file(folder: Path, store: str, layout: str, rehearse_kill: int) -> Path:
    """A recipe and 110 pages in `folder`, ten of them twice."""
    pages = folder / "pages"
    write_html(pages / "html", 60)
    write_jsonl(pages / "ar.jsonl", 30, "ar")
    write_jsonl(pages / "en.jsonl", 20, first=50)  # 10 of them are the HTML pages again
    recipe = folder / f"{Path(store).name}.toml"
    text = RECIPE.format(store=store, pages=pages, layout=layout, kill=rehearse_kill)
    recipe.write_text(text, encoding="utf-8")
    return recipe


def _flight(tmp_path: Path, store: str, layout: str, environment: dict[str, str]) -> None:
    recipe = recipe_file(tmp_path, store, layout, rehearse_kill=5)
    report = _run(recipe, tmp_path / "out", environment)
    lines = {row["stage"]: row["line"] for row in report["stages"]}
    assert list(lines) == STAGES
    assert "110 pages in" in lines["corpus"]
    assert "896 items" in lines["tokenizer"]
    assert "equals an undisturbed run's" in lines["train"]
    assert "1 restart," in lines["train"], "the rehearsed kill did not happen"
    assert "greedy text equal" in lines["export"]
    assert "URLs behind step" in lines["trace"]
    assert "8 tokens in" in lines["serve"]
    page = lxml_html.parse(lines["board"])
    assert page.findall(".//svg"), "the board shows no curve"
    again = _run(recipe, tmp_path / "out", environment)
    same = {row["stage"]: row["line"] for row in again["stages"]}
    for stage in ("sources", "corpus", "tokenizer", "tokens", "plan", "train", "judge", "trace"):
        assert same[stage] == lines[stage], f"{stage} did something else the second time"


@pytest.mark.slow
def test_the_whole_flight_in_a_folder(tmp_path: Path) -> None:
    _flight(tmp_path, str(tmp_path / "store"), "data = 2", {})
    shown = tomllib.loads((tmp_path / "store" / "recipe.toml").read_text())
    assert shown["name"] == "flight"


@pytest.mark.slow
def test_the_whole_flight_on_s3_with_tensor_parallelism(tmp_path: Path, s3_store: Any) -> None:
    _flight(tmp_path, f"{s3_store.url}/flight", "data = 1\ntensor = 2", {})


ELSEWHERE = """
name = "elsewhere"
store = "{store}"
[data]
from = "{other}"
sequence = 32
[model]
preset = "nano-1m"
[train]
tokens = 2304
global_batch = 384
lr = 3e-3
checkpoint_every = 3
[cluster]
threads = 1
"""


@pytest.mark.slow
def test_a_flight_on_the_tokens_and_the_tokenizer_of_another_store(tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"))
    sources = [{"name": "arabic", "languages": ["ar"]}, {"name": "rest"}]
    whole(other, [documents(90, source) for source in range(2)], data__sources=sources)
    recipe = tmp_path / "elsewhere.toml"
    recipe.write_text(ELSEWHERE.format(store=tmp_path / "store", other=other.url))
    report = _run(recipe, tmp_path / "out", {})
    lines = {row["stage"]: row["line"] for row in report["stages"]}
    assert list(lines) == STAGES
    assert lines["corpus"] == "none: the data comes from elsewhere"
    assert "512 items" in lines["tokenizer"]
    assert lines["tokens"] == "nothing to encode; data plan 1, 6 steps"
    assert "equals an undisturbed run's" in lines["train"]
    assert "greedy text equal" in lines["export"]
    assert "POST /v1/completions answered" in lines["serve"]
    assert [note for note in report["notes"] if note.startswith("source arabic: ")]
    planned = json.loads((tmp_path / "store" / "run" / "plan.json").read_text())["plan"]
    exported = json.loads((tmp_path / "out" / "export" / "config.json").read_text())
    assert exported["vocab_size"] == 512
    shape = model_shape(Recipe.load(recipe), 512)
    assert planned["parameters"] == parameters(shape)
