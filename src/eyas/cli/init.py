"""`eyas init [DIR]`: a recipe with every key, its default and its meaning."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLE = "eyas init my-run.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="DIR",
        nargs="?",
        default=".",
        help="a folder, or the name of the new file",
    )


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError, commented_recipe

    target = Path(args.target)
    if target.suffix != ".toml":
        target = target / "recipe.toml"
    name = target.stem if target.stem != "recipe" else target.absolute().parent.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(commented_recipe(name))
    except FileExistsError as error:
        raise EyasError(f"{target} is there already; it was left as it is") from error
    except OSError as error:
        raise EyasError(f"cannot write {target}: {error.strerror}") from error
    print(f"wrote {target}; next: edit [corpus] sources, then eyas run {target}")
    return 0
