"""Before the first step: what cannot run is refused, the attempt is taken, the network built, and
the state of the newest whole commit loaded."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eyas.checkpoint import (
    CheckpointError,
    Commit,
    latest_attempt,
    list_commits,
    load_newest,
    newest_whole,
    take_attempt,
)
from eyas.plan import choose_layout
from eyas.recipe import Recipe, UsageError, planned_steps
from eyas.shape import Layout, ModelShape, model_shape, slice_holders
from eyas.store import Corrupt, Store
from eyas.tokens import (
    Tokens,
    check_model_vocabulary,
    check_recipe_plan,
    open_tokens,
    read_data_plan,
)
from eyas.work import code_version

from .clock import Clock
from .engine import Engine
from .mesh import Mesh, rank_and_world
from .metrics import Metrics
from .progress import Progress, TrainResult
from .rank_files import RankFiles

__all__ = ["Run", "deciding_keys", "prepare", "resume", "run_report"]

_log = logging.getLogger("eyas.train")
_NOT_DECIDING = ("tokens", "global_batch", "checkpoint_every", "rehearse_kill")  # or in the plan

Wanted = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Run:
    """What stays the same over a rank's run."""

    recipe: Recipe
    store: Store
    files: RankFiles
    mesh: Mesh
    shape: ModelShape
    tokens: Tokens
    engine: Engine
    metrics: Metrics
    attempt: int
    steps: int

    @property
    def clock(self) -> Clock:
        return self.mesh.clock


def run_report(recipe: Recipe, store: Store) -> TrainResult | None:
    """What the finished run of this recipe has come to, None if it is not finished. Raises
    UsageError if the store holds the finished run of another recipe."""
    commit = newest_whole(store)
    if commit is None:
        return None
    facts = commit.facts
    if not facts.get("complete") or facts["step"] < planned_steps(recipe):
        return None
    tokens = open_tokens(store)
    check_recipe_plan(recipe, tokens.plan)
    try:
        _check_commit(store, model_shape(recipe, tokens.tokenizer.vocab_size), tokens, facts)
    except _Rewound:
        return None
    if changed := _changed_keys(recipe, facts):
        raise UsageError(
            f"{store.url} holds a finished run with {changed}; use another store, or set it back"
        )
    return TrainResult.of(facts, latest_attempt(store))


def deciding_keys(recipe: Recipe) -> dict[str, Any]:
    """The keys of `[train]` that decide what a step does, for a commit's facts."""
    keys = dataclasses.asdict(recipe.train)
    return {name: keys[name] for name in keys if name not in _NOT_DECIDING}


def prepare(recipe: Recipe, store: Store, files: RankFiles, dtype: torch.dtype) -> Run | None:
    """Everything checked and built, the attempt taken; None if there is nothing left to do."""
    files.phase("loading")
    tokens = _planned_tokens(recipe, store)
    shape = model_shape(recipe, tokens.tokenizer.vocab_size)
    check_model_vocabulary(tokens, shape.vocab_size, tokens.tokenizer_digest)
    layout = _layout(recipe, shape)
    tokens.check_world(layout.data)
    mesh = Mesh(layout, _sharing(shape, layout), Clock(files.phase))
    mesh.layout = dataclasses.replace(layout, micro_batch=mesh.broadcast(layout.micro_batch))
    version = mesh.broadcast(tokens.plan.version)
    if version != tokens.plan.version:  # the plan was amended while the ranks started
        tokens = _planned_tokens(recipe, store, version)
    finished = mesh.rank == 0 and run_report(recipe, store) is not None
    if mesh.broadcast(int(finished)):
        mesh.leave()
        return None
    attempt = mesh.broadcast(_attempt(recipe, store) if mesh.rank == 0 else 0)
    return Run(
        recipe=recipe,
        store=store,
        files=files,
        mesh=mesh,
        shape=shape,
        tokens=tokens,
        engine=Engine(shape, mesh, recipe.train, dtype),
        metrics=Metrics(store, attempt, active=mesh.rank == 0),
        attempt=attempt,
        steps=tokens.steps,
    )


def resume(run: Run) -> Progress:
    """From the newest commit that is whole on every rank, or from the initial weights: without a
    commit, and where the data plan goes back to before all of them."""
    run.files.phase("loading")
    refused: list[UsageError] = []
    rewound: list[_Rewound] = []

    def wanted(commit: Commit) -> Wanted:
        try:
            _check_commit(run.store, run.shape, run.tokens, commit.facts)
        except UsageError as error:
            refused.append(error)
            raise
        except _Rewound as error:
            rewound.append(error)
            raise
        return run.engine.masters.wanted()

    try:
        found = load_newest(run.store, wanted)
    except (CheckpointError, Corrupt):
        if refused:
            raise refused[0] from None
        if not rewound or not _are_all(run, len(rewound)):
            raise
        found = None
        if run.mesh.rank == 0:
            _log.warning("no checkpoint is as old as that: the run begins anew")
    if found is None:
        progress = Progress()
    else:
        commit, tensors = found
        run.engine.masters.adopt(tensors, commit.step)
        changed = _changed_keys(run.recipe, commit.facts)
        if changed and run.mesh.rank == 0:
            _log.warning("the run had %s until step %d; the recipe's now", changed, commit.step)
        progress = Progress.of(commit.facts)
    idle = run.clock.take()
    return progress.spent(_process_seconds(), dict.fromkeys(idle, 0.0))


def _are_all(run: Run, commits: int) -> bool:
    """Whether the store holds so many commits."""
    found = len(list_commits(run.store)) if run.mesh.rank == 0 else 0
    return run.mesh.broadcast(found) == commits


def _planned_tokens(recipe: Recipe, store: Store, version: int | None = None) -> Tokens:
    """The tokens under that version of the data plan, or the current one, which must be what the
    recipe asks for."""
    tokens = open_tokens(store, version, ragged=recipe.data.ragged)
    check_recipe_plan(recipe, tokens.plan)
    return tokens


def _layout(recipe: Recipe, shape: ModelShape) -> Layout:
    """The recipe's layout for the ranks there are; what it leaves open, as `eyas plan` chooses."""
    world = rank_and_world()[1]
    cluster = dataclasses.replace(recipe.cluster, processes=world)
    try:
        return choose_layout(dataclasses.replace(recipe, cluster=cluster), shape.vocab_size)
    except UsageError as error:
        planned = recipe.cluster.processes
        if world == planned:
            raise
        raise UsageError(
            f"{error}; the recipe has cluster.processes = {planned}: start it with `eyas run`, or "
            f"with torchrun --standalone --nproc-per-node {planned} -m eyas train"
        ) from error


def _sharing(shape: ModelShape, layout: Layout) -> int:
    """How many neighbouring tensor ranks hold the same kv heads."""
    return slice_holders(shape, layout.tensor)["blocks.0.attention.key.weight"]


def _attempt(recipe: Recipe, store: Store) -> int:
    payload = {"host": socket.gethostname(), "pid": os.getpid(), "recipe": recipe.hash}
    return take_attempt(store, payload | {"world": rank_and_world()[1], "code": code_version()})


def _changed_keys(recipe: Recipe, facts: Mapping[str, Any]) -> str:
    """What the commit was made with, where the recipe differs: "train.lr 0.1 (now 0.2)"."""
    now = deciding_keys(recipe)
    before = facts.get("train", {})
    return ", ".join(
        f"train.{name} {value} (now {now[name]})"
        for name, value in before.items()
        if now.get(name, value) != value
    )


def _check_commit(
    store: Store, shape: ModelShape, tokens: Tokens, facts: Mapping[str, Any]
) -> None:
    """A run goes on only as what it was: same network, same tokenizer, and a data plan that agrees
    on everything consumed so far. Raises UsageError; _Rewound if an older commit may do."""
    held = dataclasses.replace(ModelShape.from_dict(facts["shape"]), name=shape.name)
    if held != shape:
        raise UsageError(
            f"{store.url} holds a run of another shape ({facts['shape']}); use another store, "
            "or set model back"
        )
    if facts["tokenizer"] != tokens.tokenizer_digest:
        raise UsageError(
            f"{store.url} holds a run with tokenizer {facts['tokenizer'][:12]}, its tokens are "
            f"now of {tokens.tokenizer_digest[:12]}; use another store for the new ones"
        )
    plan, step = tokens.plan, facts["step"]
    if facts["data_plan"] == plan.version:
        return
    before = read_data_plan(store, facts["data_plan"])
    if plan.agrees(before, step):
        return
    back = plan.goes_back(before)
    if back is not None:
        raise _Rewound(
            f"the checkpoint of step {step} was made under data plan {before.version}; plan "
            f"{plan.version} goes back to step {back} and skips samples from there on"
        )
    raise UsageError(
        f"data plan {plan.version} differs from plan {before.version} in steps that the run in "
        f"{store.url} has done; use another store for the new plan"
    )


class _Rewound(Corrupt):
    """A checkpoint that is of no use under the current data plan; `load_newest` goes back to the
    one before it, as from a damaged one."""


def _process_seconds() -> float:
    """Since this process was started: imports and set-up included."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
