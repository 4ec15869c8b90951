"""How much more memory a call takes at its peak than before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["megabytes_more"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def megabytes_more(call: Callable[[], object]) -> float:
    """Megabytes of resident memory that `call` adds at its peak; skips where Linux does not say."""
    try:
        _RESET.write_text("5", encoding="ascii")
        before = _value("VmRSS")
    except (OSError, TypeError):
        pytest.skip("this system does not tell the peak of resident memory")
    call()
    return (_value("VmHWM") - before) / 1024


def _value(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
    if found is None:
        raise TypeError(name)
    return int(found[1])
