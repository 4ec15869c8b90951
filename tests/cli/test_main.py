"""The command line's contract: help, exit codes, plain errors, doors that say what is to come."""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eyas.cli import main
from eyas.cli.main import COMMANDS, NOUNS, TO_COME, VERBS

DESIGN_VERBS = (
    "init run curate tokenize plan train parity eval export import serve chat launch watch "
    "diagnose trace slack board status doctor verify tune"
)
DESIGN_NOUNS = "recipe corpus tokenizer tokens checkpoints jobs studio audit"


def test_every_command_of_the_design_is_there() -> None:
    assert list(VERBS) == DESIGN_VERBS.split()
    assert list(NOUNS) == DESIGN_NOUNS.split()


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"eyas {name}" in text
    assert "example:" in text or name in TO_COME


@pytest.mark.parametrize("name", list(TO_COME))
def test_a_room_to_come_says_so_in_one_sentence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "anything", "--flag"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"eyas {name}: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in TO_COME])
def test_every_other_command_is_a_module(name: str) -> None:
    verb = importlib.import_module(f"eyas.cli.{'import_' if name == 'import' else name}")
    assert verb.EXAMPLE.split()[1] == name or "-m eyas " + name in verb.EXAMPLE
    assert callable(verb.run)


def test_an_unknown_command_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lunch"]) == 2
    assert "eyas launch" in capsys.readouterr().err


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: eyas COMMAND" in capsys.readouterr().out


def test_a_wrong_argument_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["recipe", "polish"])
    assert caught.value.code == 2
    capsys.readouterr()


def test_a_bad_recipe_is_a_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "x"\nstore = "s"\n[train]\nlrr = 1\n')
    assert main(["recipe", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "train.lrr: no such key; did you mean lr?" in error
    assert "Traceback" not in error


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot read"):
        main(["recipe", "check", str(tmp_path / "none.toml"), "--debug"])


def test_init_then_check_then_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "mine.toml"
    assert main(["init", str(path)]) == 0
    assert main(["init", str(path)]) == 1
    assert "left as it is" in capsys.readouterr().err
    assert main(["recipe", "check", str(path)]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["recipe", "show", str(path), "--json", "--set", "train.lr=1e-3"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["lr"] == 1e-3
    assert main(["recipe", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Eyas recipe"


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [(75, 75, "run again"), (93, 1, "a retry cannot help"), (1, 1, "run again")],
)
def test_a_run_whose_training_ends_early_says_whether_to_start_it_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    exit_code: int,
    said: str,
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'name = "r"\nstore = "{tmp_path}/store"\n')
    monkeypatch.setattr("eyas.launch.supervise", lambda *a, **k: code)
    out = ["--only", "train", "--out", str(tmp_path / "out")]
    assert main(["run", str(path), *out]) == exit_code
    assert said in capsys.readouterr().err


def test_a_terminal_without_utf8_shows_escapes_and_fails_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eyas", "init", str(tmp_path / "صقر.toml")],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert rb"\u0635\u0642\u0631.toml" in done.stdout


def test_logs_are_json_when_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["recipe", "schema", "--log", "json"])
    logging.getLogger("eyas.test").info("a %s", "ب")
    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert line["message"] == "a ب"
    assert line["level"] == "info"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["recipe", "schema"]])
def test_a_reader_that_has_gone_is_no_traceback(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "eyas", *arguments]
    try:
        done = subprocess.run(command, check=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode in (0, 1)  # argparse does not mind whether its help was read


@pytest.mark.parametrize("arguments", [["--help"], ["recipe", "schema"]])
def test_a_closed_stdout_is_no_failure(arguments: list[str]) -> None:
    command = ["sh", "-c", '"$0" -m eyas "$@" >&-', sys.executable, *arguments]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_store_that_holds_nothing_is_not_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / "none")]) == 1
    assert "holds nothing" in capsys.readouterr().err


def test_two_models_of_one_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "a=x", "a=y"]) == 2
    assert 'called "a"' in capsys.readouterr().err


def test_eval_of_a_recipe_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert main(["eval", str(tmp_path / "none.toml")]) == 2


@pytest.mark.parametrize("command", [["init", "/dev/null/x"], ["run", "R", "--out", "/dev/null/x"]])
def test_a_place_that_cannot_be_written_is_a_sentence(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'name = "r"\nstore = "{tmp_path}/store"\n')
    assert main([str(recipe) if part == "R" else part for part in command]) == 1
    assert "unexpected" not in capsys.readouterr().err
