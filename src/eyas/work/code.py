"""Which code made this: recorded in every manifest and ledger record, never hashed."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import eyas

__all__ = ["code_version"]


@functools.cache
def code_version() -> str:
    """`git describe` of the tree that this package is tracked in, else the package version."""
    here = Path(eyas.__file__).parent
    if _git(here, "ls-files", "--error-unmatch", "__init__.py") is None:
        return eyas.__version__
    return _git(here, "describe", "--always", "--dirty", "--tags") or eyas.__version__


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
