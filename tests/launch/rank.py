"""A rank of a make-believe job: speaks the supervisor's file protocol, then does what it is told.

`python rank.py RANK BEHAVIOUR`; RANK is also taken from the environment (torchrun). Behaviours may
depend on the start, read from the name of EYAS_RUN_DIR (start-001, start-002, …).
"""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["EYAS_RUN_DIR"])
START = int(FOLDER.name.split("-")[1])


def beat(rank: int, step: int, phase: str) -> None:
    path = FOLDER / f"rank-{rank}.beat"
    line = {"rank": rank, "pid": os.getpid(), "step": step, "phase": phase}
    line |= {"time": time.time(), "monotonic": time.monotonic()}
    path.with_suffix(".new").write_text(json.dumps(line))
    path.with_suffix(".new").rename(path)


def leave(rank: int, code: int) -> None:
    (FOLDER / f"rank-{rank}.exit").write_text(str(code))
    sys.exit(code)


def stand_still() -> None:
    while True:
        signal.pause()


def main(rank: int, behaviour: str) -> None:
    with (FOLDER / f"rank-{rank}.stacks").open("w") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        stopped: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
        print(f"hello from rank {rank} of start {START}", flush=True)
        beat(rank, 7, "compute")
        while len(list(FOLDER.glob("rank-*.beat"))) < 2:  # nobody acts before both are there
            time.sleep(0.01)
        name, _, number = behaviour.partition(":")
        if name == "killed" and int(number) >= START and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "code" and rank == 1:
            leave(rank, int(number))
        lonely = (name == "killed" and int(number) >= START) or behaviour == "code:93"
        while lonely:  # until the launcher tells it that its neighbour is gone
            if stopped:
                leave(rank, 1)
            time.sleep(0.01)
        if name == "hangs" and START == 1 and rank == 1:
            stand_still()
        if name == "stopped" and START == 1 and rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        if name in ("hangs", "stopped") and START == 1:
            while True:
                beat(rank, 7, "compute")
                time.sleep(0.05)
        if name == "stubborn":
            stand_still()
        if name == "works":
            step = 0
            while not stopped:
                step += 1
                beat(rank, step, "compute")
                time.sleep(0.02)
            leave(rank, 75)
        leave(rank, 75 if name == "code" and number == "75" else 0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(os.environ.get("RANK", arguments[0])), arguments[-1])
