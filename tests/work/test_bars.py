"""Progress: a bar on a terminal after two seconds, a log line elsewhere, else silence."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys

import pytest

from eyas.work import progress

_SHORT = """
from eyas.work import progress
with progress("extract pages", total=3) as advance:
    advance(3)
"""
_LONG = """
import eyas.work.bars as p
p._DELAY = 0.0
with p.progress("extract pages", total=3) as advance:
    advance(2)
    import time
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        advance(0)
"""


def on_a_terminal(program: str) -> str:
    """What the program writes to a terminal as its stderr."""
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", program], stderr=theirs, stdout=theirs)
    os.close(theirs)
    assert done.returncode == 0
    out = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    os.close(ours)
    return out.decode()


def test_short_work_prints_nothing_on_a_terminal() -> None:
    assert on_a_terminal(_SHORT) == ""


def test_long_work_shows_a_bar_on_a_terminal() -> None:
    shown = on_a_terminal(_LONG)
    assert "extract pages" in shown
    assert "2/3" in shown


def test_there_is_no_bar_when_stderr_is_not_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", _LONG], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_long_work_is_logged_when_there_is_no_terminal(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["eyas.work.bars"], "_LOG_EVERY", 0.0)
    with caplog.at_level(logging.INFO, "eyas.work"), progress("extract pages", total=3) as advance:
        advance(2)
    assert "extract pages: 2 of 3" in caplog.text
