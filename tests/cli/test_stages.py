"""What `eyas run` keeps of its stages, and what it forgets when a stage is forced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eyas.cli import main
from eyas.cli.run import _summary
from eyas.cli.stages import Flight, forget, keep_summary
from eyas.recipe import Recipe
from eyas.store import Store


def _flight(store: Store, tmp_path: Path) -> Flight:
    return Flight(Recipe.parse(f'name = "r"\nstore = "{store.url}"\n', "r.toml"), store, tmp_path)


def _row(stage: str, seconds: float, line: str) -> dict[str, object]:
    return {"stage": stage, "seconds": seconds, "line": line}


def test_a_stage_that_had_nothing_to_do_keeps_its_time(folder_store: Store, tmp_path: Path) -> None:
    first = _flight(folder_store, tmp_path)
    first.against_plan = [{"name": "memory"}]
    keep_summary(first, [_row("corpus", 80.0, "849 documents"), _row("train", 160.0, "loss 7")])
    again = [_row("corpus", 0.1, "849 documents"), _row("trace", 0.2, "10 URLs")]
    keep_summary(_flight(folder_store, tmp_path), again)
    kept = json.loads(folder_store.get("run/summary.json"))
    assert [(r["stage"], r["seconds"]) for r in kept["stages"]] == [
        ("corpus", 80.0),
        ("train", 160.0),
        ("trace", 0.2),
    ]
    assert kept["plan"] == [{"name": "memory"}]
    keep_summary(_flight(folder_store, tmp_path), [_row("corpus", 0.5, "3 documents")])
    kept = json.loads(folder_store.get("run/summary.json"))
    assert kept["stages"][0] == _row("corpus", 0.5, "3 documents")


@pytest.mark.parametrize("stage", ["plan", "judge", "export"])
def test_a_forced_stage_is_not_known_any_more(folder_store: Store, stage: str) -> None:
    folder_store.put(f"run/{stage}.json", b"{}")
    forget(folder_store, stage)
    assert not list(folder_store.list("run/"))


def test_forcing_one_stage_beside_only_another_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'name = "r"\nstore = "{tmp_path}/store"\n')
    assert main(["run", str(path), "--only", "board", "--force", "corpus"]) == 2
    assert "--force corpus" in capsys.readouterr().err


def test_the_summary_cuts_no_url() -> None:
    url = "apt://debian-reference-zh-tw/2.100/usr/share/debian-reference/" + "a-b" * 60
    assert url in _summary("r", [], [f"step 60 read: {url}, {url}"], 1.0)
