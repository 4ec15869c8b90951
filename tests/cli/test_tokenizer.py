"""Promises of `eyas tokenizer`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tokens.handmade import of_words
from tests.tokens.made import commit_corpus, document, documents, recipe

from eyas.cli import main
from eyas.store import open_store
from eyas.tokens import train_tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a corpus and a tokenizer."""
    store = open_store(str(tmp_path_factory.mktemp("made") / "store"))
    commit_corpus(store, [documents(60, source, words=30) for source in range(2)])
    train_tokenizer(recipe(store), store)
    return store.url


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("other") / "tokenizer.json"
    path.write_bytes(of_words("the river", " في البيت"))
    return str(path)


def test_inspect_tells_figures_items_examples_and_the_round_trip(
    made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", made, "inspect"]) == 0
    shown = capsys.readouterr().out
    held_out = [d for s in range(2) for d in documents(60, s, 30) if d["split"] == "validation"]
    size = sum(d["bytes"] for d in held_out)
    assert f"all {len(held_out)} documents, {size:,} bytes, come back as they were" in shown
    assert "512; 16 of them reserved" in shown
    assert "encoded by   " in shown
    for line in ("en ", "ar ", "total ", "en.test ", "ar.test "):
        assert f"\n{line}" in shown
    assert any(c in shown for c in "النهكت")


def test_inspect_tells_what_became_of_the_list_of_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(tmp_path / "store"))
    commit_corpus(store, [documents(60, source, words=30) for source in range(2)])
    names = tmp_path / "names.txt"
    names.write_text("Nobody Knows\n", "utf-8")
    keys = {"tokenizer__multiword": True, "tokenizer__entities": str(names)}
    train_tokenizer(recipe(store, **keys), store)
    assert main(["tokenizer", store.url, "inspect"]) == 0
    shown = capsys.readouterr().out
    assert "\nname list    0 of 1 are one item; where they stand in the text, 0 of 0 times" in shown


def test_what_is_shown_of_a_text_is_isolated_and_on_one_line(
    made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tokenizer", made, "inspect"])
    shown = capsys.readouterr().out
    arabic = [line for line in shown.splitlines() if any("\u0621" <= c <= "\u064a" for c in line)]
    assert arabic
    for line in arabic:
        before, _, rest = line.partition("\u2068")
        assert rest.endswith("\u2069")
        assert before.isascii()
        assert rest[:-1].isprintable()


def test_inspect_as_json_holds_the_whole_report(
    made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", made, "inspect", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measured_on"] == "validation"
    assert report["round_trip"]["documents"] == report["documents"]
    assert set(report["languages"]) == {"en", "ar"}
    assert {"longest", "names", "domains", "unused_items", "rare_items"} <= set(report)


def test_compare_measures_all_on_the_first_store_s_documents(
    made: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", made, "compare", other, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second = report["tokenizers"]
    assert [first["name"], second["name"]] == [made, other]
    assert first["ratio"] == 1.0
    assert second["ratio"] == pytest.approx(
        second["bytes_per_token"] / first["bytes_per_token"], abs=1e-3
    )
    assert main(["tokenizer", made, "compare", other]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == "tokenizer items bytes/token ratio tokens/word en ar".split()
    assert shown[2].split()[:2] == [other, f"{second['vocab_size']}"]
    assert f"{report['documents']} documents" in shown[-1]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["inspect", "more"], 2, "inspect takes one store"),
        (["compare"], 2, "compare wants another store or a tokenizer.json"),
        (["compare", "missing.json"], 2, "there is no file missing.json"),
    ],
)
def test_a_wrong_call_is_told_in_a_sentence(
    made: str, arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", made, *arguments]) == code
    assert sentence in capsys.readouterr().err


def test_a_store_without_a_tokenizer_says_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(tmp_path / "empty"))
    commit_corpus(store, [[document(1, words=5)]])
    assert main(["tokenizer", store.url, "inspect"]) == 1
    assert "eyas tokenize RECIPE" in capsys.readouterr().err
