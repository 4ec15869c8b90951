"""`eyas import` and `eyas export`: what they print, as text and as JSON, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.checkpoint.networks import SHAPES, make_tokenizer, put_tokenizer, save_model

from eyas.cli import main
from eyas.store import Store, open_store


@pytest.fixture
def trained(folder_store: Store) -> Store:
    tokenizer = make_tokenizer()
    put_tokenizer(folder_store, tokenizer)
    save_model(folder_store, SHAPES["llama"], tokenizer)
    return folder_store


def test_export_and_import_say_what_they_did(
    trained: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, again = tmp_path / "out", tmp_path / "again"
    assert main(["export", trained.url, str(folder), "--licence", "MIT"]) == 0
    said = capsys.readouterr().out
    assert f"transformers loads {folder}" in said
    assert "compared on 64 tokens of seeded ids and 16 greedy tokens" in said
    assert "weights float32\n" in said
    assert "licence: MIT" in said
    assert main(["import", str(folder), str(again)]) == 0
    said = capsys.readouterr().out
    assert f"committed {again}@1-0\n" in said
    assert "llama, 37,792 parameters, files in F32" in said
    assert "licence files kept: LICENSE" in said
    assert main(["export", str(again), str(tmp_path / "third")]) == 0
    assert "licence: MIT" in capsys.readouterr().out


def test_both_speak_json(
    trained: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert main(["export", trained.url, str(folder), "--dtype", "bfloat16", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["folder"] == str(folder)
    assert said["dtype"] == "bfloat16"
    assert said["licence"] == ""
    assert said["tokenizer"] is True
    assert 0 < said["rounded"] <= 37_792
    assert 0 < said["logits_moved"] < 1
    assert said["bytes"] == sum(p.stat().st_size for p in folder.iterdir())
    assert said["files"] == sorted(p.name for p in folder.iterdir())
    assert main(["import", str(folder), str(tmp_path / "again"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["reference"] == f"{tmp_path / 'again'}@1-0"
    assert said["dtypes"] == {"default": "BF16", "others": {}}
    assert said["family"] == "llama"
    assert said["parameters"] == 37_792
    assert said["tokenizer"] == make_tokenizer().digest
    assert said["tokenizer_not_taken"] is None
    assert said["licences"] == ["LICENSE"]


def test_what_is_wrong_is_one_sentence_and_no_traceback(
    trained: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", trained.url, str(tmp_path / "out"), "--licence", "mine, all of it"]) == 2
    said = capsys.readouterr()
    assert "neither a file nor an SPDX id" in said.err
    assert "Traceback" not in said.err
    assert main(["import", str(tmp_path / "nothing"), str(tmp_path / "again")]) == 2
    assert "no Hugging Face folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert list(open_store(str(tmp_path / "again")).list()) == []
