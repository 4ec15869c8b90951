"""The training run of one rank, from the store and back to it.

What is consumed at a step is pure in (data plan, step), initial weights are pure in the seed, and a
commit holds everything else (masters, moments, progress); so a run that was killed anywhere goes on
from its newest whole commit and ends with the same bits as one that was not, and under another
layout with the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from eyas.checkpoint import Fenced, latest_attempt, save
from eyas.recipe import EyasError, Recipe
from eyas.store import Store, StoreError
from eyas.tokens import Batch, open_tokens
from eyas.work import code_version

from .mesh import rank_and_world
from .ownership import owned_names
from .prepare import Run, deciding_keys, prepare, resume, run_report
from .progress import Progress, TrainResult, from_limbs, to_limbs
from .rank_files import RankFiles
from .schedule import learning_rate

__all__ = ["train"]

_log = logging.getLogger("eyas.train")
_VALIDATION_STEPS = 4


def train(
    recipe: Recipe,
    store: Store,
    files: RankFiles | None = None,
    stop: Callable[[], bool] = lambda: False,
    dtype: torch.dtype = torch.float32,
) -> TrainResult:
    """Run `recipe.train` to its end, or until `stop()` is true on any rank and the step is finished
    and committed (then `complete` is False). Collective over the ranks that torchrun started; the
    result is the same on all but for seconds, which are each rank's own.

    `dtype` is that of weights and moments. Raises UsageError before the first step for what cannot
    run, NonFinite before a bad update, Fenced if a newer attempt has started.
    """
    run = prepare(recipe, store, files or RankFiles(rank_and_world()[0]), dtype)
    if run is None:
        report = run_report(recipe, store)
        assert report is not None
        return report
    progress = resume(run)
    _tell(run, "from step %d of %d, attempt %d", progress.step, run.steps, run.attempt)
    try:
        facts = _loop(run, progress, stop)
    except BaseException:
        with contextlib.suppress(EyasError):
            run.metrics.flush()
        raise
    run.files.phase("ending")
    run.mesh.leave()
    return TrainResult.of(facts, run.attempt)


def _loop(run: Run, progress: Progress, stop: Callable[[], bool]) -> dict[str, Any]:
    """Step after step to the end, or to where it is asked to stop; the facts of the last commit."""
    every, data = run.recipe.train.checkpoint_every, (run.mesh.data_rank, run.mesh.layout.data)
    with run.tokens.stream(progress.step, run.steps, *data) as batches:
        while progress.step < run.steps:
            run.files.step(progress.step)
            _rehearse_kill(run, progress.step)
            progress, stopping = _step(run, progress, batches, stop)
            if stopping:
                break
            if progress.step < run.steps and progress.step % every == 0:
                _, progress = _commit(run, progress)
    return _commit(run, progress)[0]


def _step(
    run: Run, progress: Progress, batches: Iterator[Batch], stop: Callable[[], bool]
) -> tuple[Progress, bool]:
    """One step, and whether any rank was asked to stop."""
    number, began = progress.step, time.perf_counter()
    with run.clock.phase("data"):
        batch = next(batches)
    segment = run.tokens.plan.segment(number)
    lr = learning_rate(segment.tokens_before(number + 1), run.recipe.train)
    counts = [len(batch.samples), *to_limbs(batch.digest)]
    if run.mesh.tensor_rank:
        counts = [0] * len(counts)
    done = run.engine.step(
        number,
        batch.ids,
        batch.loss_mask,
        lr,
        [stop(), _overtaken(run), *counts],
        batch.document_ids if segment.document_mask else None,
    )
    stopping, outdated, samples, *limbs = (int(n) for n in done.sums)
    if outdated:
        raise Fenced(f"attempt {run.attempt} ends: a newer attempt of this run has started")
    phases = run.clock.take()
    seconds = time.perf_counter() - began
    progress = progress.after(done, samples, from_limbs(limbs)).spent(seconds, phases)
    run.metrics.add(
        number,
        loss=done.loss,
        lr=lr,
        grad_norm=done.grad_norm,
        tokens=progress.tokens,
        tokens_per_s=done.tokens / seconds,
        seconds={name: round(value, 6) for name, value in phases.items()},
        digest=f"{progress.digest:016x}",
        rss=_peak_rss(),
        time=round(time.time(), 3),
    )
    if run.metrics.due:
        run.metrics.try_flush()
        _tell(run, "step %d loss %.4f, %.0f tokens/s", number, done.loss, done.tokens / seconds)
    return progress, stopping > 0


def _commit(run: Run, progress: Progress) -> tuple[dict[str, Any], Progress]:
    """Save masters, moments and progress as the commit of this step; its facts."""
    began = time.perf_counter()
    run.metrics.flush()
    complete = progress.step == run.steps
    validation = _validation_loss(run) if complete else None
    memory = [int(row[0]) for row in run.mesh.gather([_peak_rss()])]
    facts = progress.facts() | {
        "complete": complete,
        "validation_loss": validation,
        "peak_rss": memory,
        "attempt": run.attempt,
        "data_plan": run.tokens.plan.version,
        "recipe": run.recipe.hash,
        "train": deciding_keys(run.recipe),
        "code": code_version(),
        "tokenizer": run.tokens.tokenizer_digest,
        "shape": run.shape.to_dict(),
        "layout": dataclasses.asdict(run.mesh.layout),
        "world": run.mesh.layout.world,
    }
    with run.clock.phase("checkpoint"):
        owned = owned_names(run.shape, run.mesh.layout, run.mesh.rank)
        slices = run.engine.masters.slices(owned)
        save(run.store, run.attempt, progress.step, slices, facts)
    progress = progress.spent(time.perf_counter() - began, run.clock.take())
    _tell(run, "committed step %d, loss %.4f", progress.step, progress.last_loss)
    return facts, progress


def _overtaken(run: Run) -> bool:
    """Whether a newer attempt has started, looked up by rank 0 whenever metrics are due. A store
    that does not answer is no reason to end a run: the next commit asks again."""
    if not run.metrics.due:
        return False
    try:
        return latest_attempt(run.store) > run.attempt
    except StoreError as error:
        _log.warning("attempts not looked up: %s", error)
        return False


def _validation_loss(run: Run) -> float | None:
    """Mean loss a token over the first few batches held out, without z-loss."""
    version, ragged = run.tokens.plan.version, run.tokens.ragged
    held_out = open_tokens(run.store, version, split="validation", ragged=ragged)
    masked = held_out.plan.segments[-1].document_mask
    total, count = 0.0, 0
    for step in range(min(_VALIDATION_STEPS, held_out.steps)):
        batch = held_out.batch(step, run.mesh.data_rank, run.mesh.layout.data)
        documents = batch.document_ids if masked else None
        loss, tokens = run.engine.evaluate(batch.ids, batch.loss_mask, documents)
        total, count = total + loss, count + tokens
    return total / count if count else None


def _rehearse_kill(run: Run, step: int) -> None:
    """`train.rehearse_kill`: the last rank of the first attempt dies without a word."""
    wanted = run.recipe.train.rehearse_kill
    last = run.mesh.rank == run.mesh.layout.world - 1
    if wanted and step == wanted and run.attempt == 1 and last:
        _log.warning("rehearsing a crash: rank %d kills itself at step %d", run.mesh.rank, step)
        os.kill(os.getpid(), signal.SIGKILL)


def _peak_rss() -> int:
    """Bytes, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tell(run: Run, message: str, *values: Any) -> None:
    """On rank 0."""
    if run.mesh.rank == 0:
        _log.info(message, *values)
