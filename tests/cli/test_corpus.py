"""Promises of `eyas corpus`: what it prints can be acted on, and nothing in a page acts on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.corpus.report import made, stored
from tests.texts import write_jsonl

from eyas.cli import main
from eyas.cli.corpus import _document
from eyas.corpus import curate
from eyas.recipe import Recipe
from eyas.store import open_store
from eyas.work import Engine


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = open_store(str(tmp_path_factory.mktemp("corpus") / "store"))
    stored.commit(store, made.recipe(), [range(400)])
    return store.url


def test_inspect_shows_the_funnel_and_some_of_each_kind(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", corpus, "inspect", "--limit", "2"]) == 0
    shown = capsys.readouterr().out
    assert "language                400            320  uncertain_language 80" in shown
    assert shown.count("] kept, 3 words, train; crawl/part-0.warc.gz#") == 2
    assert shown.count("] dropped, ") == 2
    assert "\x1b" not in shown


def test_inspect_by_reason_says_what_failed(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--reason", "too_few_words", "--language", "ar", "--limit", "1"]
    assert main(["corpus", corpus, "inspect", *args]) == 0
    shown = capsys.readouterr().out
    assert "[ar] dropped, gopher: too_few_words " in shown
    assert " (arabic); crawl/" in shown
    assert "stage  " not in shown


def test_marks_of_direction_in_arabic_text_are_not_shown_as_damage() -> None:
    row = {"kept": True, "words": 1, "split": "train", "language": "ar", "source": "a", "offset": 0}
    shown = _document(row | {"url": "", "text": "\u202bأمر \u2068ls\u2069\u202c \x1b[2J"})
    assert shown[0] == "(no URL)"
    assert shown[-1] == "  أمر ls \ufffd[2J"


def test_inspect_as_json_has_whole_rows(corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", corpus, "inspect", "--dropped", "--limit", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["documents"]) == 3
    assert report["documents"][0]["text"].endswith("\x1b[31m in en")
    assert report["facts"]["funnel"]


def test_what_if_tells_before_after_reasons_and_caveats(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", corpus, "what-if", "gopher.min_words=300", "language_threshold=.5"]) == 0
    shown = capsys.readouterr().out
    assert "with gopher.min_words=300, language_threshold=0.5, of 320 measured documents" in shown
    assert "lost, dropped now for" in shown
    assert "gopher/too_few_words  https://" in shown
    assert "80 more would reach the filters; they were never measured" in shown
    assert shown.endswith("before de-duplication, which is not done again here\n")


def test_what_if_takes_options_behind_its_changes(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", corpus, "what-if", "--json", "ar.gopher.min_words=300"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["languages"]["ar"]["after"] == 0


@pytest.mark.parametrize("verb", ["inspect", "what-if", "remove"])
def test_the_help_of_every_verb_has_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["corpus", "x", verb, "--help"])
    assert f"example:\n  eyas corpus ./runs/demo {verb} " in capsys.readouterr().out


def test_a_limit_below_nothing_is_wrong_usage(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["corpus", corpus, "inspect", "--limit", "-1"])
    assert "0 shows the funnel alone" in capsys.readouterr().err
    assert main(["corpus", corpus, "inspect", "--limit", "0"]) == 0
    assert "no document is like that" not in capsys.readouterr().out


def test_a_key_that_cannot_be_answered_is_wrong_usage(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", corpus, "what-if", "gopher.stop_words=1"]) == 2
    assert "recorded values cannot answer" in capsys.readouterr().err


def test_remove_needs_a_reason_and_something_to_remove(
    corpus: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        main(["corpus", corpus, "remove", "--domain", "en.test"])
    capsys.readouterr()
    assert main(["corpus", corpus, "remove", "--why", "asked"]) == 2
    assert "nothing to remove" in capsys.readouterr().err
    args = ["--why", "asked", "--file", str(tmp_path / "none.txt")]
    assert main(["corpus", corpus, "remove", *args]) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.slow
def test_remove_takes_documents_out_by_file_and_keeps_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"sources": [str(write_jsonl(tmp_path / "pages.jsonl", 12))]}
    recipe = Recipe.build({"name": "t", "store": str(tmp_path / "store"), "corpus": keys})
    curate(recipe, open_store(recipe.store), Engine(workers=1))
    asked = tmp_path / "asked.txt"
    asked.write_text("# of March\nhttps://en.test/3\n\nnowhere.example  # a domain\n", "utf-8")
    args = ["--file", str(asked), "--url", "https://en.test/4", "--why", "asked", "--workers", "1"]
    assert main(["corpus", recipe.store, "remove", *args, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["removed"], figures["documents"], figures["manifest"]) == (2, 10, 2)
    assert main(["corpus", recipe.store, "inspect", "--stage", "removed", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["documents"]
    assert sorted(row["url"] for row in rows) == ["https://en.test/3", "https://en.test/4"]
    assert not any(row["text"] for row in rows)


def test_a_store_without_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", str(tmp_path), "inspect"]) == 1
    assert "make one with `eyas curate RECIPE`" in capsys.readouterr().err
