"""`eyas chat CHECKPOINT|URL`: talk to a model in the terminal; a line in, a completion out."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from .serve import key_from

EXAMPLE = "eyas chat ./runs/demo@latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="CHECKPOINT|URL", help="STORE[@STEP], or http://host:port")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument(
        "--api-key-env", default="", help="name of the environment variable that holds a URL's key"
    )


def run(args: argparse.Namespace) -> int:
    if args.model.startswith(("http://", "https://")):
        url = args.model.rstrip("/").removesuffix("/v1")
        key = key_from(args.api_key_env)
        answer = _remote(url, key, args.max_tokens, args.temperature)
    else:
        answer = _local(args.model, args.max_tokens, args.temperature)
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return 0
        if line.strip():
            for piece in answer(line):
                print(piece, end="", flush=True)
            print()


def _local(reference: str, tokens: int, temperature: float) -> Callable[[str], Iterator[str]]:
    from eyas.checkpoint import load

    model = load(reference)
    return lambda text: model.stream(text, max_tokens=tokens, temperature=temperature)


def _remote(
    url: str, key: str | None, tokens: int, temperature: float
) -> Callable[[str], Iterator[str]]:
    from eyas.recipe import EyasError

    def ask(path: str, body: dict[str, object] | None = None) -> Any:
        data = json.dumps(body).encode() if body else None
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url + path, data, headers)  # noqa: S310 http(s), checked
        try:
            with urllib.request.urlopen(request) as response:  # noqa: S310 the same
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise EyasError(f"{url}{path} answered {error.code}: {_reason(error)}") from error
        except (OSError, ValueError) as error:
            raise EyasError(f"no answer from {url}{path}: {error}") from error

    name = ask("/v1/models")["data"][0]["id"]

    def answer(text: str) -> Iterator[str]:
        body = {"model": name, "prompt": text, "max_tokens": tokens, "temperature": temperature}
        yield str(ask("/v1/completions", dict(body))["choices"][0]["text"])

    return answer


def _reason(error: urllib.error.HTTPError) -> str:
    """The server's own sentence, in OpenAI's form, or what the status means."""
    try:
        return str(json.load(error)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason
