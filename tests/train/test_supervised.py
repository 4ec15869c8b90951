"""Training as it runs in a job: supervisor, torchrun, ranks, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.train.conftest import recipe

from eyas.checkpoint import read_commit
from eyas.store import NotFound, Store, read_pieces
from eyas.tokens import make_data_plan, open_tokens, plan_digest

PATIENCE = 150


def _heartbeat(store: Store) -> dict[str, Any]:
    try:
        return json.loads(store.get("heartbeats/host0.json"))
    except NotFound:
        return {"start": 0, "step": 0, "ranks": []}


@pytest.fixture
def long_run(folder_run: Store, tmp_path: Path) -> Path:
    """A recipe that would take long, whose second rank dies at step 4 of the first attempt."""
    keys: dict[str, object] = {
        "train__tokens": 16 * 12 * 20_000,
        "data__epochs": 10_000,
        "train__rehearse_kill": 4,
        "layout__tensor": 2,
        "layout__data": 1,
    }
    made = recipe(folder_run, **keys)
    make_data_plan(made, folder_run)
    path = tmp_path / "recipe.toml"
    path.write_text(made.to_toml())
    return path


def test_it_survives_a_killed_rank_and_leaves_75_at_a_commit_when_asked_to_stop(
    folder_run: Store, long_run: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.train.job", str(long_run), str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while _heartbeat(folder_run)["start"] < 2 or _heartbeat(folder_run)["step"] < 8:
        assert time.monotonic() < end, _heartbeat(folder_run)
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 75, errors
    left = [r for r in read_pieces(folder_run, "jobs/job/journal") if r["event"] == "left"]
    assert left[0]["cause"].startswith("rank 1 was killed by signal 9 at step 4 in data")
    assert [r["codes"] for r in left] == [[1, None], [75, 75]]
    commit = read_commit(folder_run)
    assert (commit.attempt, commit.facts["complete"]) == (2, False)
    assert commit.step > 8
    assert commit.facts["digest"] == f"{plan_digest(open_tokens(folder_run), 0, commit.step):016x}"
    last = {r["step"]: r for r in read_pieces(folder_run, "metrics/000002")}
    assert sorted(last) == list(range(3, commit.step))
