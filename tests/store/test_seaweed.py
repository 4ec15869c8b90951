"""The real server that the tests and the demo run against."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import seaweed

from eyas.store import open_store

PUT = "from eyas.store import open_store; open_store('s3://eyas/kept').put('k', b'kept')"
GET = "from eyas.store import open_store; print(open_store('s3://eyas/kept').get('k'))"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.seaweed", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_command_runs_with_the_server_and_a_given_folder_keeps_its_data(tmp_path: Path) -> None:
    done = _run("--dir", str(tmp_path), "--", sys.executable, "-c", PUT + "; raise SystemExit(7)")
    assert (done.returncode, done.stderr) == (7, "")
    done = _run("--dir", str(tmp_path), "--", sys.executable, "-c", GET)
    assert (done.returncode, done.stdout) == (0, "b'kept'\n")


def test_one_folder_has_one_server(tmp_path: Path) -> None:
    with (tmp_path / "eyas.lock").open("w") as lock:
        seaweed.fcntl.flock(lock, seaweed.fcntl.LOCK_EX)
        done = _run("--dir", str(tmp_path), "--", "true")
    assert done.returncode == 1
    assert "another server runs on" in done.stderr


def test_two_servers_at_once_are_strangers(seaweed: seaweed.Seaweed) -> None:  # type: ignore[name-defined]
    open_store("s3://eyas/two").put("k", b"of the first")
    done = _run("--", sys.executable, "-c", GET.replace("kept", "two"))
    assert "no object k" in done.stderr
    assert open_store("s3://eyas/two").get("k") == b"of the first"


def test_no_command_is_wrong_usage() -> None:
    assert _run("--").returncode == 2
