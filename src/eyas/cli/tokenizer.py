"""`eyas tokenizer STORE inspect|compare [OTHER…]`: what was learned, and whether it is better.

Text from items goes last in its line and is isolated (U+2068, U+2069), so that Arabic is shown from
right to left by itself and does not turn the figures beside it around.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import add_json, add_store, print_json

if TYPE_CHECKING:
    from eyas.tokens import Tokenizer

EXAMPLE = "eyas tokenizer ./runs/demo compare ./runs/other tokenizer.json"

_LANGUAGES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "verb",
        choices=("inspect", "compare"),
        help="inspect: figures on held-out text of this store; compare: those of others beside it",
    )
    parser.add_argument(
        "others", metavar="OTHER", nargs="*", help="compare: a store or a tokenizer.json"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import UsageError

    if args.verb == "inspect" and args.others:
        raise UsageError(f"inspect takes one store, not {args.others[0]} is for compare")
    if args.verb == "compare" and not args.others:
        raise UsageError("compare wants another store or a tokenizer.json to compare with")
    found: Any = _inspect(args.store) if args.verb == "inspect" else _compare(args)
    if args.json:
        print_json(found)
    elif args.verb == "inspect":
        print(_inspection(found))
    else:
        print(_comparison(found))
    return 0


def _inspect(url: str) -> dict[str, Any]:
    from eyas.recipe import EyasError
    from eyas.store import open_store, read_manifest
    from eyas.tokens import held_out_sample, inspect, load_tokenizer
    from eyas.work import progress

    store = open_store(url)
    manifest = read_manifest(store, "tokenizer")
    if manifest is None:
        raise EyasError(f"{url} holds no tokenizer; make one with `eyas tokenize RECIPE`")
    tokenizer = load_tokenizer(store, manifest)
    split, documents = held_out_sample(store)
    with progress("inspect tokenizer", total=sum(len(d.text.encode()) for d in documents)) as step:
        report = inspect(tokenizer, documents, manifest.facts["reserved"], step)
    head = {"store": url, "version": manifest.version, "digest": tokenizer.digest}
    listed = {"entities": manifest.facts["entities"]} if "entities" in manifest.facts else {}
    return {**head, "measured_on": split, **report, **listed}


def _compare(args: argparse.Namespace) -> dict[str, Any]:
    from eyas.store import open_store
    from eyas.tokens import compare, held_out_sample
    from eyas.work import progress

    names = list(dict.fromkeys([args.store, *args.others]))
    tokenizers = {name: _open(name) for name in names}
    split, documents = held_out_sample(open_store(args.store))
    size = sum(len(d.text.encode()) for d in documents)
    with progress("compare tokenizers", total=size * len(names)) as step:
        rows = compare(tokenizers, documents, step)
    head = {"store": args.store, "measured_on": split, "documents": len(documents), "bytes": size}
    return {**head, "tokenizers": rows}


def _open(name: str) -> Tokenizer:
    """A tokenizer.json, or the tokenizer of a store."""
    from eyas.recipe import UsageError
    from eyas.store import open_store
    from eyas.tokens import Tokenizer, load_tokenizer

    path = Path(name)
    if path.is_file():
        return Tokenizer(path.read_bytes())
    if path.suffix == ".json":
        raise UsageError(f"there is no file {name}")
    return load_tokenizer(open_store(name))


def _inspection(r: Mapping[str, Any]) -> str:
    lines = [
        f"tokenizer {r['digest'][:12]}, version {r['version']} in {r['store']}",
        "",
        f"items        {r['vocab_size']:,}; {r['reserved']:,} of them reserved, "
        f"{r['multiword_items']:,} of several words "
        f"({r['multiword_items'] / r['vocab_size']:.1%}), {r['name_items']:,} of those names",
        f"measured on  {r['documents']:,} documents, {r['bytes']:,} bytes of the "
        f"{r['measured_on']} split",
        f"there        {r['unused_items']:,} items do not occur, {r['rare_items']:,} do once or "
        f"twice; {r['multiword_tokens']:.1%} of the tokens are of several words",
        *_listed_names(r.get("entities")),
        f"round trip   {_round_trip(r)}",
        f"encoded by   {_encoded_by(r['encoder'])}",
        "",
        *_table("language", r["languages"]),
        *_row("total", r),
        "",
        *_table("domain", r["domains"]),
        "",
        "longest items, bytes first",
        *(f"{len(item.encode()):>6}  {_shown(item)}" for item in r["longest"]),
    ]
    if r["names"]:
        lines += ["", "names", *(f"        {_shown(name)}" for name in r["names"])]
    lines += ["", "examples"]
    lines += [f"{name:<8}{_isolated('|'.join(map(_flat, e)))}" for name, e in r["examples"].items()]
    return "\n".join(lines)


def _listed_names(e: Mapping[str, Any] | None) -> list[str]:
    """What became of the list of names, of a multi-word tokenizer that had one."""
    if not e or not e["listed"]:
        return []
    return [
        f"name list    {e['single_items']:,} of {e['listed']:,} are one item; where they stand in "
        f"the text, {e['occurrences_single']:,} of {e['occurrences']:,} times"
    ]


def _round_trip(r: Mapping[str, Any]) -> str:
    back, documents = r["round_trip"], r["documents"]
    if back["documents"] == documents:
        return f"all {documents:,} documents, {back['bytes']:,} bytes, come back as they were"
    return f"{documents - back['documents']:,} of {documents:,} documents come back changed"


def _encoded_by(proof: Mapping[str, Any]) -> str:
    if proof["differences"]:
        return f"tokenizers, since fastokens differed on {proof['differences']:,} texts"
    if not proof["fast"]:
        return "tokenizers, the reference"
    return (
        f"fastokens; {proof['compared']:,} of {proof['texts']:,} texts by tokenizers, the "
        "reference, too: the same ids"
    )


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    head = f"{title:<28}{'documents':>10}{'bytes':>13}{'bytes/token':>13}{'tokens/word':>13}"
    return [head, *(line for name, row in rows.items() for line in _row(name, row))]


def _row(name: str, row: Mapping[str, Any]) -> list[str]:
    return [
        f"{_cut(name, 27):<28}{row['documents']:>10,}{row['bytes']:>13,}"
        f"{row['bytes_per_token']:>13.3f}{row['fertility']:>13.3f}"
    ]


def _comparison(r: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = r["tokenizers"]
    languages = list(rows[0]["languages"])[:_LANGUAGES]
    width = max(10, *(len(row["name"]) for row in rows)) + 2
    head = f"{'tokenizer':<{width}}{'items':>10}{'bytes/token':>13}{'ratio':>8}{'tokens/word':>13}"
    lines = [head + "".join(f"{name:>8}" for name in languages)]
    for row in rows:
        line = (
            f"{row['name']:<{width}}{row['vocab_size']:>10,}{row['bytes_per_token']:>13.3f}"
            f"{row['ratio']:>8.3f}{row['fertility']:>13.3f}"
        )
        lines.append(line + "".join(f"{row['languages'][name]:>8.3f}" for name in languages))
    return "\n".join(
        [
            *lines,
            "",
            f"{r['documents']:,} documents, {r['bytes']:,} bytes of the {r['measured_on']} split "
            f"of {r['store']}; a language's column is bytes a token, ratio is to the first line",
        ]
    )


def _shown(item: str) -> str:
    return _isolated(f"“{_flat(item)}”")


def _isolated(text: str) -> str:
    """One run of text, whatever direction is around it."""
    return f"\u2068{text}\u2069"


def _flat(text: str) -> str:
    """On one line, with nothing that a terminal obeys."""
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else f"<{ord(c):X}>" for c in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
