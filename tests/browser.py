"""A real browser for tests: Chromium, driven by playwright, with what it complained about.

The browser is the machine's own, or is installed by apt-get where the tests may do that (as root);
elsewhere the test is skipped with the reason.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["chromium", "launched", "opened"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def chromium() -> str:
    """Where Chromium is. Skips the test where there is none and none can be installed."""
    found = _found() or _installed()
    if not found:
        pytest.skip("there is no Chromium, and apt-get cannot install it here")
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """A browser to open pages in."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Any, page: Path, width: int = 1200, dark: bool = False
) -> Iterator[tuple[Any, list[str]]]:
    """The page of a file without network, and the list of errors that the browser reports."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        offline=True,
    )
    try:
        tab = context.new_page()
        problems: list[str] = []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda said: problems.append(said.text) if said.type != "log" else None)
        tab.goto(page.as_uri())
        yield tab, problems
    finally:
        context.close()


def _found() -> str:
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


@functools.cache
def _installed() -> str:
    """Where it is after an attempt to install it; empty if that is not possible."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return ""
    command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, capture_output=True, timeout=280, check=False)
    return _found()
