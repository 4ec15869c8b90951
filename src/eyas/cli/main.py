"""From a command line to one verb.

The table below is all that `eyas --help` needs, so it loads no room and no torch (a test says which
modules it may load). A verb is a module of this folder with `EXAMPLE`, `add_arguments(parser)` and
`run(args) -> exit code`, imported when it is asked for. Errors of the user's making are one plain
sentence on stderr; a traceback comes only with --debug.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

__all__ = ["COMMANDS", "TO_COME", "main"]

VERBS = {
    "init": "a commented recipe to start from",
    "run": "every stage in order on this machine; finished stages are skipped",
    "curate": "the corpus: crawl to clean, de-duplicated documents",
    "tokenize": "train the tokenizer, write token shards and the data plan",
    "plan": "layout, memory, throughput and time, before the run",
    "train": "train here; under torchrun, every rank runs this same command",
    "parity": "same loss under every layout, or the first module that differs",
    "eval": "bits per byte by language on held-out text",
    "export": "a checkpoint as a Hugging Face folder",
    "import": "a Hugging Face folder as a checkpoint",
    "serve": "an OpenAI-compatible HTTP API, one or several models",
    "chat": "talk to a model in the terminal",
    "launch": "snapshot, image, gate, job, in one command",
    "watch": "the watchdog",
    "diagnose": "what killed or stalled a run, from any logs",
    "trace": "the documents (URLs) behind a training step",
    "slack": "the audit bot",
    "board": "the web page",
    "status": "what is done, running, missing in a store",
    "doctor": "what a store can do: conditional writes, checksums, listing, clock, speed",
    "verify": "walk every manifest and checksum of a store",
    "tune": "measure kernels here and keep the winners",
}
NOUNS = {
    "recipe": "check, show, schema",
    "corpus": "inspect, what-if, remove",
    "tokenizer": "inspect, compare",
    "tokens": "stats, verify, skip",
    "checkpoints": "list, verify, gc",
    "jobs": "list, show, logs, stop",
    "studio": "keys, files, custom models",
    "audit": "votes, ratings, export",
}
COMMANDS = VERBS | NOUNS

TO_COME = {
    "parity": "comparing layouts step by step comes with the finished trainer",
    "launch": "jobs on Slurm, SageMaker and EC2 come with the launcher; `eyas run` works here",
    "watch": "the watchdog is not built yet; the supervisor inside a run restarts dead ranks",
    "diagnose": "the table of failure signatures is not built yet; read jobs/ in the store",
    "slack": "the audit bot is not built yet; `eyas chat` and `eyas serve` question a model",
    "tune": "there are no kernels of ours to tune yet; training uses PyTorch's",
    "jobs": "the job journal comes with the launcher; `eyas status` shows what runs",
    "studio": "keys, files and custom models come with the studio; `eyas serve` takes one key",
    "audit": "votes and ratings come with the audit bot",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    try:
        try:
            return _command(list(sys.argv[1:] if argv is None else argv))
        finally:
            _flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _flush() -> None:
    """Now, while an error of writing can be told; there is no stdout where it was closed."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _command(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from eyas import __version__

        print(f"eyas {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        return _unknown(name)
    return _dispatch(name, rest)


def _dispatch(name: str, rest: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"eyas {name}",
        description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if name in TO_COME:
        parser.epilog = f"Not built yet: {TO_COME[name]}."
        parser.add_argument("arguments", nargs="*")
        parser.parse_known_args(rest)
        print(f"eyas {name}: {TO_COME[name]}.", file=sys.stderr)
        return 1
    verb = importlib.import_module(f"eyas.cli.{'import_' if name == 'import' else name}")
    parser.epilog = f"example:\n  {verb.EXAMPLE}"
    verb.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks and debug logs")
    parser.add_argument(
        "--log", choices=("text", "json"), default=os.environ.get("EYAS_LOG", "text"),
        help="form of log lines on stderr (also EYAS_LOG)",
    )  # fmt: skip
    args = parser.parse_args(rest)
    return _guarded(name, verb.run, args)


def _guarded(name: str, run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError

    from .logs import set_up

    set_up(args.log, debug=args.debug)
    try:
        code = int(run(args))
        _flush()
        return code
    except EyasError as error:
        if args.debug:
            raise
        print(f"eyas {name}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"eyas {name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if args.debug:
            raise
        print(
            f"eyas {name}: unexpected {type(error).__name__}: {error} "
            "(run again with --debug for the traceback)",
            file=sys.stderr,
        )
        return 1


def _unknown(name: str) -> int:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"; did you mean `eyas {close[0]}`?" if close else "; `eyas --help` lists all"
    print(f"eyas: no command {name!r}{hint}", file=sys.stderr)
    return 2


def _overview() -> str:
    def rows(table: dict[str, str]) -> str:
        return "\n".join(f"  {name:<12} {text}" for name, text in table.items())

    return (
        "eyas: raise a foundation model, from a raw web crawl to a served, audited model.\n\n"
        "usage: eyas COMMAND …   (`eyas COMMAND --help` has an example)\n\n"
        f"verbs\n{rows(VERBS)}\n\n"
        f"nouns\n{rows(NOUNS)}\n\n"
        "exit codes: 0 done, 1 failed, 2 wrong usage, 75 checkpointed (start me again)\n"
        "start with: eyas init demo.toml; eyas run demo.toml"
    )
