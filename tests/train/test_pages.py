"""Memory that is freed stays with the process."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

PAGE = resource.getpagesize()
BYTES = 64 * 2**20
ROUNDS = 4

# Huge pages off: with them a block that comes anew costs few faults as well.
_PROGRAM = f"""
import os, resource, sys
os.environ["THP_MEM_ALLOC_ENABLE"] = "0"
import torch
if sys.argv[1] == "kept":
    from eyas.train.pages import keep_pages
    keep_pages()
for _ in range({ROUNDS}):
    torch.ones({BYTES} // 4)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    torch.ones({BYTES} // 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return int(done.stdout)


def test_a_block_taken_again_costs_no_page_faults() -> None:
    pages = ROUNDS * BYTES // PAGE
    assert _faults("stock") > pages // 2  # or there is nothing to be kept on this machine
    assert _faults("kept") < pages // 100
