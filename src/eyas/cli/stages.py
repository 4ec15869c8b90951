"""The stages of `eyas run`, in the order in which things flow, each ending in a figure.

A stage is a function from the flight (recipe, store, output folder) to one line of proof. Every
stage commits what it makes and skips what is committed, so the flight can be killed anywhere and
run again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyas.recipe import EyasError, Recipe, format_bytes, format_count, format_seconds
from eyas.store import Manifest, NotFound, Store, dump_json, identity, read_manifest

if TYPE_CHECKING:
    from eyas.checkpoint import ExportReport
    from eyas.model import Model
    from eyas.tokens import DataPlan

__all__ = [
    "STAGES",
    "Flight",
    "corpus_figure",
    "export_figure",
    "forget",
    "keep_summary",
    "tokenizer_figure",
    "tokens_figure",
    "tokens_notes",
]


class TrainingEnded(EyasError):
    """The ranks left before the run was done, with this code of the supervisor."""

    def __init__(self, code: int, store: Store) -> None:
        resumable, hopeless = code == 75, code == 93
        self.exit_code = code if resumable else 1
        what = "stopped at a commit" if resumable else f"ended with code {code}"
        todo = "a retry cannot help" if hopeless else "run again to go on from the last commit"
        super().__init__(f"training {what}; the logs of its ranks are in {store.url}/jobs; {todo}")


@dataclass
class Flight:
    """What the stages share. `notes` are lines shown below the summary."""

    recipe: Recipe
    store: Store
    out: Path
    notes: list[str] = field(default_factory=list)
    against_plan: list[dict[str, Any]] = field(default_factory=list)
    model: Model | None = None

    @property
    def reference(self) -> str:
        return f"{self.store.url}@latest"

    def loaded(self) -> Model:
        """The trained model, loaded once."""
        from eyas.checkpoint import load

        if self.model is None:
            self.model = load(self.reference)
        return self.model


def sources(flight: Flight) -> str:
    from eyas.corpus import fetch_sources
    from eyas.tokens import check_sources

    check_sources(flight.recipe)
    manifest = fetch_sources(flight.recipe, flight.store)
    packages = manifest.facts.get("packages", [])
    if not packages:
        return f"{len(flight.recipe.corpus.sources)} sources of your own"
    flight.notes.append(f"sources: {', '.join(_grouped(packages))}")
    size = format_bytes(manifest.counters["bytes"])
    return (
        f"{manifest.counters['pages']:,.0f} pages of {len(packages)} packages, {size} HTML, "
        f"{len(manifest.objects)} WARC files"
    )


def _grouped(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """`name-{de,en} 2.100 (GPL-2+)`: packages of one name, version and licence together."""
    families: dict[tuple[str, str], list[str]] = {}
    for p in packages:
        families.setdefault((p["version"], p["licence"]), []).append(p["name"])
    grouped = []
    for (version, licence), names in families.items():
        stem = os.path.commonprefix(names).rpartition("-")[0]  # noqa: RUF071 names, not paths
        if len(names) > 1 and stem:
            tails = ",".join(name[len(stem) + 1 :] for name in names)
            names = [f"{stem}-{{{tails}}}"]
        grouped.append(f"{' '.join(names)} {version} ({licence})")
    return grouped


def corpus(flight: Flight) -> str:
    from eyas.corpus import curate
    from eyas.tokens import needs_corpus
    from eyas.work import Engine

    if not (flight.recipe.corpus.sources or needs_corpus(flight.recipe)):
        return "none: the data comes from elsewhere"
    manifest = curate(flight.recipe, flight.store, Engine(workers=flight.recipe.cluster.workers))
    reasons = {k[8:]: v for k, v in manifest.counters.items() if k.startswith("rejects_") and v}
    top = sorted(reasons.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {n:,.0f}" for name, n in top[:6])
    rest = sum(n for _, n in top[6:])
    flight.notes.append(
        f"rejected: {shown or 'nothing'}" + (f", other reasons {rest:,.0f}" if rest else "")
    )
    return corpus_figure(manifest)


def corpus_figure(manifest: Manifest) -> str:
    c = manifest.counters
    return (
        f"{c['pages_in']:,.0f} pages in, {c['documents']:,.0f} documents out in "
        f"{len(manifest.facts['languages'])} languages; {c.get('rejects_duplicate', 0):,.0f} "
        f"duplicates; {c['documents_validation']:,.0f} held out"
    )


def tokenizer(flight: Flight) -> str:
    from eyas.tokens import train_tokenizer

    return tokenizer_figure(train_tokenizer(flight.recipe, flight.store))


def tokenizer_figure(manifest: Manifest) -> str:
    f = manifest.facts
    return f"{f['vocab_size']:,} items, {f['bytes_per_token']:.2f} bytes a token"


def tokens(flight: Flight) -> str:
    from eyas.tokens import make_data_plan, write_tokens

    manifest = write_tokens(flight.recipe, flight.store, workers=flight.recipe.cluster.workers)
    plan = make_data_plan(flight.recipe, flight.store)
    flight.notes += tokens_notes(manifest, plan)
    return tokens_figure(manifest, plan)


def tokens_figure(manifest: Manifest | None, plan: DataPlan) -> str:
    planned = f"data plan {plan.version}, {plan.steps} steps"
    if manifest is None:
        return f"nothing to encode; {planned}"
    split = manifest.facts["tokens"]
    return f"{split['train']:,} training and {split['validation']:,} held-out tokens; {planned}"


def tokens_notes(manifest: Manifest | None, plan: DataPlan) -> list[str]:
    """What each source has and how often it is read, where there are several; what was left out.
    What the plan itself has to say (`DataPlan.notes`) is a warning when it is made."""
    notes = []
    read = plan.epochs()
    if len(read) > 1:
        for source in plan.segments[-1].sources:
            notes.append(
                f"source {source.name}: {source.epoch_tokens:,} training tokens, read "
                f"{read[source.name]:.2f} times" + (f", from {source.store}" * bool(source.store))
            )
    if manifest is not None and (left := manifest.counters.get("left_out")):
        notes.append(f"{left:,.0f} documents are left out: no source takes their language")
    if manifest is not None and (broken := manifest.counters.get("broken")):
        notes.append(f"{broken:,.0f} records of foreign files could not be read")
    return notes


def plan(flight: Flight) -> str:
    """Made once, before the run; kept, so that the run is held against what was said before it."""
    from eyas.plan import make_plan
    from eyas.tokens import tokenizer_size

    made = _read_json(flight.store, "run/plan.json")
    if made is None or made["recipe"] != _plan_hash(flight.recipe):
        planned = make_plan(flight.recipe, vocab_size=tokenizer_size(flight.recipe))
        made = {"recipe": _plan_hash(flight.recipe), "plan": planned.to_dict()}
        flight.store.put("run/plan.json", dump_json(made))
    p = made["plan"]
    return (
        f"{p['parameters']:,} parameters, tensor {p['layout']['tensor']} x data "
        f"{p['layout']['data']}; {format_bytes(p['memory_total'])} a rank, "
        f"{format_seconds(p['seconds'])} for {format_count(flight.recipe.train.tokens)} tokens"
    )


def _plan_hash(recipe: Recipe) -> str:
    return recipe.section_hash("tokenizer", "data", "model", "train", "layout", "cluster")


def train(flight: Flight) -> str:
    from eyas.launch import supervise
    from eyas.tokens import open_tokens, plan_digest
    from eyas.train import run_report

    recipe, store = flight.recipe, flight.store
    report = run_report(recipe, store)
    if report is None:
        with tempfile.TemporaryDirectory(prefix="eyas-run-") as folder:
            resolved = Path(folder) / "recipe.toml"
            resolved.write_text(recipe.to_toml(), encoding="utf-8")
            argv = ["-m", "eyas", "train", str(resolved)]
            code = supervise(argv, recipe.cluster.processes, store, run_dir=folder)
        if code:
            raise TrainingEnded(code, store)
        report = run_report(recipe, store)
    if report is None:
        raise EyasError(f"{store.url} holds no finished run although training reported success")
    undisturbed = plan_digest(open_tokens(store), 0, report.steps)
    if report.digest != undisturbed:
        raise EyasError(
            f"consumed data differs: the run's digest is {report.digest:016x}, the plan's "
            f"{undisturbed:016x}; this is a fault of eyas, please report it with the store's run/"
        )
    _hold_against_plan(flight, report.to_dict())
    restarts = report.attempts - 1
    killed = f"{restarts} restart{'s' if restarts > 1 else ''}, " if restarts else ""
    return (
        f"loss {report.first_loss:.3f} to {report.last_loss:.3f} in {report.steps} steps; {killed}"
        f"data digest {report.digest:016x} equals an undisturbed run's"
    )


def _hold_against_plan(flight: Flight, actual: Mapping[str, Any]) -> None:
    from eyas.plan import compare

    made = _read_json(flight.store, "run/plan.json")
    if made is not None:
        rows = compare(made["plan"], actual)
        flight.against_plan = [row.to_dict() for row in rows]
        figures = (f"{r.name} {r.planned_text} planned, {r.actual_text} taken" for r in rows)
        flight.notes.append("plan against run: " + "; ".join(figures))


def _once(flight: Flight, stage: str, make: Callable[[], tuple[str, list[str]]], *of: Any) -> str:
    """The line and notes of a stage whose result depends on the last commit and `of`; what was
    said of the same commit before is said again without work."""
    from eyas.checkpoint import list_commits

    commits = list_commits(flight.store)
    made_from = identity(stage, commits[-1].key if commits else None, *of)
    key = f"run/{stage}.json"
    known = _read_json(flight.store, key)
    if known is None or known["identity"] != made_from:
        line, notes = make()
        known = {"identity": made_from, "line": line, "notes": notes}
        flight.store.put(key, dump_json(known))
    flight.notes += known["notes"]
    return str(known["line"])


def judge(flight: Flight) -> str:
    return _once(flight, "judge", lambda: _judge(flight), flight.recipe.section_hash("judge"))


def _judge(flight: Flight) -> tuple[str, list[str]]:
    from eyas.checkpoint import newest_whole
    from eyas.judge import evaluate, samples, write_report

    if read_manifest(flight.store, "corpus") is None:
        return "no corpus, so no held-out text to judge on", []
    keys = flight.recipe.judge
    report = evaluate(flight.loaded(), flight.store, keys.max_bytes)
    commit = newest_whole(flight.store)
    if commit is not None:
        write_report(flight.store, report, commit.step, commit.attempt)
    languages = sorted(report.languages, key=lambda row: -row.bytes)
    shown = (f"{r.language} {r.bits_per_byte:.2f}/{r.xz_bits_per_byte:.2f}" for r in languages[:8])
    notes = ["bits a byte, model/xz: " + ", ".join(shown)]
    for sample in samples(flight.loaded(), keys.prompts, keys.sample_tokens):
        notes.append(f"sample (T={sample.temperature:g}): {sample.prompt}│{sample.text!r}")
    total = report.total
    line = (
        f"{total.bits_per_byte:.3f} bits a byte on held-out text, xz {total.xz_bits_per_byte:.3f}, "
        f"{len(report.languages)} languages"
    )
    return line, notes


def export(flight: Flight) -> str:
    folder = flight.out / "export"
    if not (folder / "SHA256SUMS").exists():
        flight.store.delete(["run/export.json"])
    licence = flight.recipe.model.licence
    return _once(flight, "export", lambda: (_export(flight, folder), []), str(folder), licence)


def _export(flight: Flight, folder: Path) -> str:
    import shutil

    from eyas.checkpoint import export_hf

    if folder.exists():
        shutil.rmtree(folder)
    return export_figure(export_hf(flight.reference, folder))


def export_figure(report: ExportReport) -> str:
    return (
        f"transformers loads {report.folder}; largest logit difference "
        f"{report.max_logit_difference:.1e}, greedy text "
        f"{'equal' if report.greedy_equal else 'DIFFERS'}"
    )


def trace(flight: Flight) -> str:
    from eyas.tokens import open_tokens

    opened = open_tokens(flight.store)
    step = opened.steps // 2
    urls = list(dict.fromkeys(row.url for row in opened.trace(step)))
    flight.notes.append(f"step {step} read: " + ", ".join(urls[:2]) + (", …" if urls[2:] else ""))
    return f"{len(urls)} URLs behind step {step}"


def serve(flight: Flight) -> str:
    from eyas.serve import start_server

    models = {flight.recipe.name: flight.loaded()}
    prompt = flight.recipe.judge.prompts[0] if flight.recipe.judge.prompts else "The"
    body = {"model": flight.recipe.name, "prompt": prompt, "max_tokens": 8, "temperature": 0}
    server = start_server(models, host="127.0.0.1", port=0)
    start = time.monotonic()
    try:
        request = urllib.request.Request(  # noqa: S310 our own URL
            f"{server.url}/v1/completions", dump_json(body), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 our own URL
            answer = json.load(response)
    finally:
        server.stop()
    usage, seconds = answer["usage"], time.monotonic() - start
    return (
        f"POST /v1/completions answered {answer['choices'][0]['text']!r}: "
        f"{usage['completion_tokens']} tokens in {seconds:.2f} s"
    )


def board(flight: Flight) -> str:
    from eyas.board import write_board

    return str(write_board([flight.store], flight.out / "board.html"))


STAGES: dict[str, Callable[[Flight], str]] = {
    "sources": sources,
    "corpus": corpus,
    "tokenizer": tokenizer,
    "tokens": tokens,
    "plan": plan,
    "train": train,
    "judge": judge,
    "export": export,
    "trace": trace,
    "serve": serve,
    "board": board,
}
"""In order."""

SUMMARY = "run/summary.json"
FORCED = {"sources": "sources", "corpus": "corpus", "tokenizer": "tokenizer", "tokens": "tokens"}


def forget(store: Store, stage: str) -> None:
    """Make a finished stage run again: its manifests and ledger go, its data objects stay.

    Raises EyasError for `train`, whose checkpoints are work paid for.
    """
    if stage == "train":
        raise EyasError(
            "train is never forced: its checkpoints are paid for; train into another store "
            "(--set store=…), or remove checkpoints/ and metrics/ from this one yourself"
        )
    if stage == "plan" and next(store.list("checkpoints/commits/"), None) is not None:
        raise EyasError(
            "the plan was made before this run and is held against it; plan anew with `eyas plan`, "
            "or in another store"
        )
    if stage in ("plan", "judge", "export"):
        store.delete([f"run/{stage}.json"])
    if stage in FORCED:
        store.delete([o.key for o in store.list(f"{FORCED[stage]}/manifest-")])
        store.delete([o.key for o in store.list(f"work/{FORCED[stage]}.")])
    if stage == "corpus":  # what tells of time is written once
        for kind in ("report", "cost"):
            store.delete([o.key for o in store.list(f"corpus/{kind}-")])
        store.delete([o.key for o in store.list("work/inputs/")])


def keep_summary(flight: Flight, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep what the board shows of the stages. A stage that was left out or had nothing to do keeps
    its line and the time that it took when it worked."""
    before = _read_json(flight.store, SUMMARY) or {}
    known = {row["stage"]: row for row in before.get("stages", [])}
    for row in rows:
        old = known.get(row["stage"])
        if old is None or old["line"] != row["line"] or old["seconds"] < row["seconds"]:
            known[row["stage"]] = row
    stages = [known[name] for name in STAGES if name in known]
    plan = flight.against_plan or before.get("plan", [])
    flight.store.put(SUMMARY, dump_json({"stages": stages, "plan": plan}))


def _read_json(store: Store, key: str) -> dict[str, Any] | None:
    try:
        value = json.loads(store.get(key))
    except NotFound:
        return None
    except ValueError:
        print(f"{key} is damaged and is made again", file=sys.stderr)
        return None
    return value if isinstance(value, dict) else None
