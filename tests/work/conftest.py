"""Marks left by stages that run in worker processes (see stages.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("EYAS_TEST_MARKS", str(folder))
    return folder


@pytest.fixture
def runs(marks: Path) -> Callable[[], Counter[str]]:
    """How often each shard has run since the last call."""
    seen: set[str] = set()

    def count() -> Counter[str]:
        new = {p.name for p in marks.glob("run-*")} - seen
        seen.update(new)
        return Counter(name.split("-")[1] for name in new)

    return count
