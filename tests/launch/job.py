"""A whole job as a process of its own, to which tests send real signals.

`python -m tests.launch.job STORE RUN_DIR BEHAVIOUR [KEY=VALUE…]` supervises two make-believe ranks.
"""

import sys
from pathlib import Path

from eyas.launch import supervise
from eyas.store import open_store

HERE = Path(__file__).parent


def launcher(argv: list[str], processes: int, logs: Path) -> list[str]:
    return [sys.executable, str(HERE / "launcher.py"), str(processes), str(logs), *argv]


def main(url: str, run_dir: str, behaviour: str, *settings: str) -> int:
    keys = {name: float(value) for name, value in (s.split("=") for s in settings)}
    keys["restarts"] = int(keys.get("restarts", 3))  # type: ignore[assignment]
    argv = [str(HERE / "rank.py"), behaviour]
    return supervise(
        argv,
        2,
        open_store(url),
        run_dir=run_dir,
        job="job",
        launcher=launcher,
        echo=False,
        **{"beat": 0.1, **keys},  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
