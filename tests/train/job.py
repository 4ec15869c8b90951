"""A supervised training as a process of its own: `python -m tests.train.job RECIPE RUN_DIR`."""

import sys
from pathlib import Path

from eyas.launch import supervise
from eyas.recipe import Recipe
from eyas.store import open_store


def main(path: str, run_dir: str) -> int:
    store = open_store(Recipe.load(path).store)
    argv = ["-m", "eyas", "train", path]
    return supervise(argv, 2, store, run_dir=run_dir, job="job", beat=0.2, echo=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], str(Path(sys.argv[2]))))
