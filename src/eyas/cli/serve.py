"""`eyas serve NAME=CHECKPOINT… | RECIPE`: OpenAI-compatible completions over HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .arguments import add_set, overrides

EXAMPLE = "eyas serve demo=./runs/demo@latest --port 8000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="NAME=CHECKPOINT | RECIPE", nargs="+")
    add_set(parser)
    parser.add_argument("--host", default=None, help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=None, help="port; 0 takes a free one")
    parser.add_argument(
        "--api-key-env", default=None, help="name of the environment variable that holds the key"
    )


def run(args: argparse.Namespace) -> int:
    from eyas.checkpoint import load
    from eyas.recipe import Recipe, Serve, UsageError
    from eyas.serve import serve

    keys = Serve()
    named: dict[str, str] = {}
    for text in args.models:
        name, equals, reference = text.partition("=")
        if not equals:
            if not (text.endswith(".toml") and Path(text).is_file()):
                raise UsageError(f'"{text}" is neither NAME=CHECKPOINT nor a recipe file')
            recipe = Recipe.load(text, overrides(args))
            keys, name, reference = recipe.serve, recipe.name, recipe.store
        if name in named:
            raise UsageError(f'two models are called "{name}"; give each a name of its own')
        named[name] = reference
    host = keys.host if args.host is None else args.host
    port = keys.port if args.port is None else args.port
    variable = keys.api_key_env if args.api_key_env is None else args.api_key_env
    models = {name: load(reference) for name, reference in named.items()}
    serve(models, host=host, port=port, api_key=key_from(variable), max_tokens=keys.max_tokens)
    return 0


def key_from(variable: str) -> str | None:
    """The key in that environment variable; None where no variable is named."""
    from eyas.recipe import EyasError

    if not variable:
        return None
    value = os.environ.get(variable)
    if not value:
        raise EyasError(f"the environment variable {variable}, which names the API key, is not set")
    return value
