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
from eyas.shape import model_shape, parameters
from eyas.store import Store, open_store, read_manifest
from eyas.tokens import load_tokenizer, open_tokens, read_data_plan

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


def test_stats_is_a_table_of_sources_splits_and_languages(
    recipe_file: Path, folder_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", str(recipe_file)]) == 0
    manifest = read_manifest(folder_store, "tokens")
    assert manifest is not None
    capsys.readouterr()
    assert main(["tokens", folder_store.url, "stats"]) == 0
    text = capsys.readouterr().out
    assert "{" not in text
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["source", "split", "documents", "tokens", "bytes", "epochs"]
    assert [row[:2] for row in rows[1:5]] == [
        [name, split] for name in ("arabic", "web") for split in ("train", "validation")
    ]
    fact = manifest.facts["sources"]["web"]["train"]
    epochs = f"{read_data_plan(folder_store).epochs()['web']:.2f}"
    counts = [f"{fact[kind]:,}" for kind in ("documents", "tokens", "bytes")]
    assert rows[3] == ["web", "train", *counts, epochs]
    assert "left out    120 documents" in text
    assert "broken      1 records" in text


def test_stats_and_verify_name_the_stores_in_which_the_tokens_lie(
    recipe_file: Path, folder_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", str(recipe_file)]) == 0
    there = f"{tmp_path}/elsewhere"
    other = tmp_path / "other.toml"
    other.write_text(
        f'name = "o"\nstore = "{there}"\n[data]\nfrom = "{folder_store.url}"\n'
        "sequence = 32\n[train]\nglobal_batch = 384\ntokens = 3840\n"
    )
    assert main(["tokenize", str(other)]) == 0
    capsys.readouterr()
    assert main(["tokens", there, "stats"]) == 0
    assert f"of {folder_store.url}" in capsys.readouterr().out
    assert main(["tokens", there, "verify"]) == 0
    said = capsys.readouterr().out
    assert said == f"0 objects whole; verify those of {folder_store.url} there\n"
    assert main(["plan", str(other), "--json"]) == 0
    shape = model_shape(Recipe.load(other), 512)
    assert json.loads(capsys.readouterr().out)["parameters"] == parameters(shape)


def test_a_note_of_the_plan_is_said_once(
    recipe_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", str(recipe_file), "--set", "train.tokens=12288"]) == 0
    said = capfd.readouterr()
    assert (said.out + said.err).count("from there on it is left out") == 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("hf:{0}/nowhere", 'data.sources "web": there is nothing at {0}/nowhere'),
        ("{0}/nowhere", "{0}/nowhere holds no tokens"),
    ],
)
def test_a_source_that_is_not_there_is_said_before_a_tokenizer_is_trained(
    recipe_file: Path,
    folder_store: Store,
    capsys: pytest.CaptureFixture[str],
    written: str,
    expected: str,
) -> None:
    folder = recipe_file.parent
    text = recipe_file.read_text().replace(f"hf:{folder}/web", written.format(folder))
    recipe_file.write_text(text)
    assert main(["tokenize", str(recipe_file)]) != 0
    assert expected.format(folder) in capsys.readouterr().err
    assert read_manifest(folder_store, "tokenizer") is None


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


def test_a_folder_of_json_lines_is_all_that_a_run_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    for n in range(2):
        texts = [d["text"] for d in documents(90, n, words=40)]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{n}.jsonl").write_text(lines)
    path = tmp_path / "r.toml"
    path.write_text(
        f'name = "j"\nstore = "{tmp_path}/store"\n[tokenizer]\nvocab_size = 512\nreserved = 16\n'
        f'[data]\nsequence = 32\n[[data.sources]]\nname = "lines"\nfrom = "hf:{folder}"\n'
        "[train]\nglobal_batch = 384\ntokens = 3840\n"
    )
    assert main(["tokenize", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    store = open_store(f"{tmp_path}/store")
    assert said["tokenizer"]["digest"] == load_tokenizer(store).digest
    assert said["tokenizer"]["trained_on"].keys() == {"und"}
    assert said["steps"] == open_tokens(store).steps == 10
    before = {info.key for info in store.list()}
    assert main(["tokenize", str(path)]) == 0
    assert {info.key for info in store.list()} == before
    assert main(["tokens", store.url, "verify"]) == 0
    assert main(["verify", store.url]) == 0
