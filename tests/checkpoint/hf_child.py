"""A process that converts a checkpoint under a memory limit, and says what it used.

    python -m tests.checkpoint.hf_child WARM_FOLDER ALLOWED import FOLDER STORE
    python -m tests.checkpoint.hf_child WARM_FOLDER ALLOWED export STORE FOLDER
    python -m tests.checkpoint.hf_child WARM_FOLDER ALLOWED load FOLDER

A small checkpoint goes the same way first, so that every library is loaded. Then the data segment
(all private writable memory, touched or not) may grow by ALLOWED bytes more: whatever goes beyond
fails to be allocated. `peak` is how far resident memory rose (VmHWM, reset before).
"""

from __future__ import annotations

import json
import re
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from eyas.checkpoint import export_hf, hf_check, import_hf, load
from eyas.store import open_store


def status(name: str) -> int:
    """A line of /proc/self/status, bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found
    return int(found[1]) * 1024


def act(verb: str, *places: str) -> None:
    if verb == "import":
        import_hf(places[0], open_store(places[1]))
    elif verb == "export":
        report = export_hf(places[0], places[1])
        assert report.greedy_equal
        assert report.rounded == 0
        assert report.max_logit_difference < 1e-3
        assert report.compared_on.endswith("block by block")
    else:
        load(places[0])


def main(warm: str, allowed: str, verb: str, *places: str) -> None:
    torch.set_num_threads(1)
    threading.stack_size(2**20)  # stacks of the store's readers count as data, all 8 MiB of each
    hf_check.WHOLE = 0
    with tempfile.TemporaryDirectory() as folder:
        act("import", warm, f"{folder}/store")
        act("export", f"{folder}/store", f"{folder}/out")
    resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + int(allowed),) * 2)
    before, began = status("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")
    act(verb, *places)
    print(json.dumps({"peak": status("VmHWM") - before, "cpu_s": time.process_time() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
