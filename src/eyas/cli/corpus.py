"""`eyas corpus STORE inspect | what-if | remove`: look at documents, ask what other limits would
have kept, take documents out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import add_json, add_store, print_json

if TYPE_CHECKING:
    from eyas.corpus import WhatIf
    from eyas.store import Manifest, Store

_VERBS = {
    "inspect": (
        "documents, kept and dropped, to look at",
        ("--reason too_few_words --language ar", "--url example.org/page --json"),
    ),
    "what-if": (
        "what other limits would have kept",
        ("gopher.min_words=30 ar.gopher.min_stop_words=1", "language_threshold=.8 --json"),
    ),
    "remove": (
        "take documents out for good, with a record",
        (
            '--domain example.org --why "asked by its owner"',
            '--file requests.txt --why "request 2026-114"',
        ),
    ),
}
EXAMPLE = "\n  ".join(
    f"eyas corpus ./runs/demo {verb} {examples[0]}" for verb, (_, examples) in _VERBS.items()
)
_EXCERPT = 400
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_DIRECTION = re.compile(r"[\u202a-\u202e\u2066-\u2069]")  # frequent in Arabic pages, and unseen
_LISTED = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="inspect|what-if|remove", required=True)
    parsers = {
        verb: verbs.add_parser(
            verb,
            help=does,
            description=f"{does[0].upper()}{does[1:]}.",
            epilog="\n".join(
                ["example:", *(f"  eyas corpus ./runs/demo {verb} {e}" for e in examples)]
            ),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for verb, (does, examples) in _VERBS.items()
    }
    _add_inspect(parsers["inspect"])
    _add_what_if(parsers["what-if"])
    _add_remove(parsers["remove"])
    for verb in parsers.values():
        add_json(verb)
        verb.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
        )


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kept", action="store_true", help="documents of the corpus only")
    which.add_argument("--dropped", action="store_true", help="dropped ones only")
    parser.add_argument("--stage", default="", help="dropped by this stage, e.g. gopher")
    parser.add_argument("--reason", default="", help="dropped for this, e.g. too_few_words")
    parser.add_argument("--language", default="", help="labelled so, e.g. ar")
    parser.add_argument("--source", default="", metavar="TEXT", help="part of the crawl file's key")
    parser.add_argument("--url", default="", metavar="TEXT", help="part of the URL")
    parser.add_argument(
        "--limit", type=_limit, default=5, help="of kept and of dropped (default 5)"
    )


def _limit(text: str) -> int:
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is not possible; 0 shows the funnel alone")
    return number


def _add_what_if(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "changes",
        nargs="+",
        metavar="KEY=VALUE",
        help="a limit of the filters, such as gopher.min_words=30, language_threshold=.5, or for "
        "one language ar.gopher.min_stop_words=1",
    )


def _add_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", nargs="+", default=[], metavar="URL", help="documents of these")
    parser.add_argument(
        "--domain", nargs="+", default=[], help="all documents of these and their subdomains"
    )
    parser.add_argument(
        "--file", type=Path, help="URLs (with ://) and domains, one a line; # begins a comment"
    )
    parser.add_argument("--why", required=True, help="kept with the record, e.g. who asked for it")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0 is one a core")


def run(args: argparse.Namespace) -> int:
    from eyas.recipe import EyasError
    from eyas.store import open_store, read_manifest

    store = open_store(args.store)
    manifest = read_manifest(store, "corpus")
    if manifest is None:
        raise EyasError(f"{args.store} holds no corpus; make one with `eyas curate RECIPE`")
    verbs = {"inspect": _inspect, "what-if": _what_if, "remove": _remove}
    return verbs[args.verb](store, manifest, args)


def _inspect(store: Store, manifest: Manifest, args: argparse.Namespace) -> int:
    from eyas.corpus import Query, inspect_documents

    asked = {k: getattr(args, k) for k in ("stage", "reason", "language", "source", "url")}
    query = Query(kept=not args.dropped, dropped=not args.kept, **asked)
    rows = inspect_documents(store, manifest, query, args.limit)
    if args.json:
        facts = {"counters": dict(manifest.counters), "facts": dict(manifest.facts)}
        print_json(facts | {"documents": rows})
        return 0
    if not any(asked.values()):
        print("\n".join(_funnel(manifest.facts["funnel"])))
    for row in rows:
        print("\n".join(["", *_document(row)]))
    if not rows and args.limit:
        print("no document is like that")
    return 0


def _funnel(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [f"{'stage':<12} {'in':>14} {'out':>14}  dropped"]
    for row in rows:
        reasons = sorted(row["reasons"].items(), key=lambda item: (-item[1], item[0]))
        said = ", ".join(f"{reason} {n:,}" for reason, n in reasons[:4])
        said += f", {len(reasons) - 4} more" if len(reasons) > 4 else ""
        lines.append(f"{row['stage']:<12} {row['in']:>14,} {row['out']:>14,}  {said}".rstrip())
    return lines


def _document(row: Mapping[str, Any]) -> list[str]:
    """Two lines about it and the start of its text, harmless to a terminal."""
    if row["kept"]:
        state = f"kept, {row['words']:,} words, {row['split']}"
    else:
        value = "" if row["value"] is None else f" {row['value']:.4g}"
        detail = f" ({row['detail']})" if row["detail"] else ""
        state = f"dropped, {row['stage']}: {row['reason']}{value}{detail}"
    text = _harmless(row["text"] or "")
    body = ["  " + line for line in text[:_EXCERPT].splitlines()]
    if len(text) > _EXCERPT:
        body[-1] += " …"
    where = f"{row['source']}#{row['offset']}"
    language = row["language"] or "no language"
    return [_harmless(row["url"] or "(no URL)"), _harmless(f"[{language}] {state}; {where}"), *body]


def _harmless(text: str) -> str:
    return _CONTROL.sub("\ufffd", _DIRECTION.sub("", text))


def _what_if(store: Store, manifest: Manifest, args: argparse.Namespace) -> int:
    from eyas.corpus import parse_change, what_if

    answer = what_if(store, manifest, map(parse_change, args.changes))
    if args.json:
        print_json(answer.to_dict())
    else:
        print("\n".join(_answer(answer)))
    return 0


def _answer(answer: WhatIf) -> list[str]:
    total = answer.total
    lines = [
        f"with {', '.join(map(str, answer.changes))}, of {answer.documents:,} measured documents",
        f"the filters keep {total.after:,} instead of {total.before:,} "
        f"({total.after - total.before:+,}: {sum(total.gained.values()):,} gained, "
        f"{sum(total.lost.values()):,} lost)",
        "",
    ]
    moved = {code: o for code, o in answer.languages.items() if o.gained or o.lost}
    if moved:
        lines.append(f"{'language':<10} {'before':>12} {'after':>12} {'change':>12}")
    for code, o in list(moved.items())[:_LISTED]:
        change = f"{o.after - o.before:+,}"
        lines.append(f"{code:<10} {o.before:>12,} {o.after:>12,} {change:>12}")
    if len(moved) > _LISTED:
        lines.append(f"{len(moved) - _LISTED} more change (--json has all)")
    if len(moved) < len(answer.languages):
        lines.append(f"languages that stay as they are: {len(answer.languages) - len(moved)}")
    lines += _reasons("gained, dropped before for", total.gained)
    lines += _reasons("lost, dropped now for", total.lost)
    for name in ("gained", "lost"):
        rows = answer.examples[name]
        if rows:
            lines += ["", f"{name}, for example"]
        lines += [_harmless(f"  [{r['language']}] {r['reason']}  {r['url']}") for r in rows]
    return [*lines, "", *_caveats(answer, total.unmeasured)]


def _reasons(title: str, reasons: Mapping[str, int]) -> list[str]:
    if not reasons:
        return []
    rows = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ["", title, *(f"  {n:>12,}  {reason}" for reason, n in rows[:_LISTED])]


def _caveats(answer: WhatIf, unmeasured: int) -> Sequence[str]:
    lines = []
    if answer.moved:
        lines.append(f"{answer.moved:,} stay dropped, for another reason")
    if unmeasured:
        lines.append(
            f"{unmeasured:,} more would reach the filters; they were never measured, since their "
            "language was too uncertain, so how many of them would stay is not known"
        )
    return [*lines, "before de-duplication, which is not done again here"]


def _remove(store: Store, manifest: Manifest, args: argparse.Namespace) -> int:
    from eyas.corpus import remove_documents
    from eyas.work import Engine

    urls, domains = list(args.url), list(args.domain)
    if args.file:
        for line in _lines(args.file):
            (urls if "://" in line else domains).append(line)
    made = remove_documents(store, urls, domains, args.why, Engine(workers=args.workers))
    before, after = manifest.counters, made.counters
    figures = {
        "manifest": made.version,
        "documents_before": before["documents"],
        "documents": after["documents"],
        "removed": after["removed"] - before.get("removed", 0),
        "removed_in_all": after["removed"],
    }
    if args.json:
        print_json(figures)
        return 0
    print(
        f"removed {figures['removed']:,.0f} documents of those that passed the filters "
        f"({figures['removed_in_all']:,.0f} in all); {figures['documents']:,.0f} remain of "
        f"{figures['documents_before']:,.0f}; corpus manifest {made.version}"
    )
    if made.version != manifest.version:
        print("older manifests and their objects are kept: `eyas tokenize` reads the new one")
    return 0


def _lines(path: Path) -> list[str]:
    from eyas.recipe import UsageError

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file: cannot read {path} ({error})") from error
    lines = (line.partition("#")[0] if "://" not in line else line for line in text.splitlines())
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
