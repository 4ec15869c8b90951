"""A real browser draws the page, without network and in both colour schemes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.board.realistic import finished_run

from eyas.board import write_board

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,2400",
]

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")


def shoot(url: str, folder: Path, name: str) -> bytes:
    picture = folder / f"{name}.png"
    profile = f"--user-data-dir={folder / name}"
    command = [str(CHROMIUM), *FLAGS, profile, f"--screenshot={picture}", url]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return picture.read_bytes()


def test_a_browser_draws_the_page(tmp_path: Path) -> None:
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>blank</title>")
    page = write_board([finished_run(tmp_path / "run")], tmp_path / "board.html")
    empty = shoot(blank.as_uri(), tmp_path, "empty")
    drawn = shoot(page.as_uri(), tmp_path, "drawn")
    assert drawn.startswith(b"\x89PNG")
    assert drawn[16:24] == empty[16:24]  # the same width and height
    assert len(drawn) > 8 * len(empty)
