"""What `eyas tokenize` says of sources, and what `eyas run` leaves out when data is elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tokens.made import commit_corpus, documents

from eyas.cli import main
from eyas.cli.stages import Flight, corpus, judge
from eyas.recipe import Recipe
from eyas.store import Store, open_store, read_manifest
from eyas.tokens import load_tokenizer, open_tokens

_RECIPE = """
name = "t"
store = "{store}"
[tokenizer]
vocab_size = 512
reserved = 16
[data]
sequence = 32
[[data.sources]]
name = "arabic"
languages = ["ar"]
epochs = 1.0
[[data.sources]]
name = "web"
from = "hf:{folder}"
weight = 0.5
[train]
global_batch = 384
tokens = 6144
"""


@pytest.fixture
def recipe_file(folder_store: Store, tmp_path: Path) -> Path:
    commit_corpus(folder_store, [documents(90, source) for source in range(2)])
    folder = tmp_path / "web"
    folder.mkdir()
    texts = [f"text number {i} of the web" for i in range(400)] + [None]
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet")
    path = tmp_path / "r.toml"
    path.write_text(_RECIPE.format(store=folder_store.url, folder=folder))
    return path


def test_tokenize_says_what_each_source_has_and_what_was_left_out(
    recipe_file: Path, folder_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", str(recipe_file)]) == 0
    text = capsys.readouterr().out
    manifest = read_manifest(folder_store, "tokens")
    assert manifest is not None
    for name in ("arabic", "web"):
        count = manifest.facts["sources"][name]["train"]["tokens"]
        assert f"source {name}: {count:,} training tokens, read " in text
    assert "120 documents are left out: no source takes their language" in text
    assert "1 records of foreign files could not be read" in text
    assert main(["tokenize", str(recipe_file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tokens"]["sources"].keys() == {"arabic", "web"}
    assert said["epochs"].keys() == {"arabic", "web"}
    assert said["tokens"]["left_out"] == 120
    assert said["notes"]


def test_a_run_whose_data_is_elsewhere_needs_no_corpus(folder_store: Store, tmp_path: Path) -> None:
    text = f'name = "r"\nstore = "{folder_store.url}"\n[data]\nfrom = "{tmp_path}/other"\n'
    flight = Flight(Recipe.parse(text, "r.toml"), folder_store, tmp_path)
    assert corpus(flight) == "none: the data comes from elsewhere"
    assert judge(flight) == "no corpus, so no held-out text to judge on"
    assert read_manifest(folder_store, "corpus") is None


def test_data_of_another_store_comes_with_its_tokenizer(
    recipe_file: Path, folder_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", str(recipe_file)]) == 0
    other = tmp_path / "other.toml"
    other.write_text(
        f'name = "o"\nstore = "{tmp_path}/other"\n[data]\nfrom = "{folder_store.url}"\n'
        "sequence = 32\n[train]\nglobal_batch = 384\ntokens = 3840\n"
    )
    capsys.readouterr()
    assert main(["tokenize", str(other), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    store = open_store(f"{tmp_path}/other")
    assert said["tokens"] is None
    assert read_manifest(store, "tokens") is None
    assert load_tokenizer(store).digest == load_tokenizer(folder_store).digest
    tokens = open_tokens(store)
    assert tokens.steps == 10
    assert tokens.tokenizer_digest == load_tokenizer(store).digest
    assert {row.source for step in range(10) for row in tokens.trace(step)} == {"arabic", "web"}
    assert main(["tokens", store.url, "verify"]) == 0
