"""Which code made this."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import eyas
from eyas.work import code_version


def _copy(to: Path) -> None:
    shutil.copytree(Path(eyas.__file__).parent, to / "eyas")


def _version_in(folder: Path) -> str:
    program = "import sys; sys.path.insert(0, '.'); import eyas.work as w; print(w.code_version())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_code_outside_git_has_the_package_version(tmp_path: Path) -> None:
    _copy(tmp_path)
    assert _version_in(tmp_path) == eyas.__version__


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_in_git_has_its_description_and_says_if_it_was_changed(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    _copy(tmp_path)
    assert _version_in(tmp_path) == eyas.__version__, "not tracked: another project's repository"
    subprocess.run([*git, "add", "eyas"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-qm", "all"], cwd=tmp_path, check=True)
    subprocess.run([*git, "tag", "v9"], cwd=tmp_path, check=True)
    assert _version_in(tmp_path) == "v9"
    with (tmp_path / "eyas" / "__init__.py").open("a") as file:
        file.write("# changed\n")
    assert _version_in(tmp_path) == "v9-dirty"


def test_the_version_is_a_short_word() -> None:
    assert code_version().split() == [code_version()]
