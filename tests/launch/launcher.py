"""A launcher in place of torchrun: starts `python SCRIPT RANK …` for each rank in a session of its
own, its output below LOGS, ends the others when one fails, and collapses exit codes to 1.

`python launcher.py PROCESSES LOGS SCRIPT ARGUMENT…`
"""

import signal
import subprocess
import sys
import time
from pathlib import Path


def main(processes: int, logs: Path, script: str, arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    ranks = []
    for rank in range(processes):
        folder = logs / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        with (folder / "stdout.log").open("wb") as output:
            command = [sys.executable, script, str(rank), *arguments]
            ranks.append(subprocess.Popen(command, stdout=output, start_new_session=True))
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [(n, code) for n, code in enumerate(codes) if code]
        if failed:
            first = min(failed, key=lambda pair: (pair[1] > 0, pair[0]))
            print(f"failed (exitcode: {first[1]}) local_rank: {first[0]} (pid: 0)", flush=True)
            for rank in ranks:
                rank.terminate()
            for rank in ranks:
                rank.wait()
            return 1
        if None not in codes:
            return 0
        time.sleep(0.02)


if __name__ == "__main__":
    count, folder, script, *rest = sys.argv[1:]
    sys.exit(main(int(count), Path(folder), script, rest))
