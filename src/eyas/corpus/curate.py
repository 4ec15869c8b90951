"""The corpus, from a recipe to a manifest: a graph of stages, a report, then the manifest, last.

1. `corpus.extract`: each input shard to texts with their language, and rejects;
2. `corpus.filter`: texts to candidates, measured values and rejects;
3. `corpus.bands`: candidates to band hashes;
4. `corpus.remove`: which candidates are to be taken out, if any were asked to be;
5. `corpus.match`: band hashes, exchanged by range of hash, to pairs;
6. `corpus.cluster`: pairs to clusters, one task;
7. `corpus.write`: candidates, clusters and removals to documents with their split.

All but 5 and 6 share nothing. Every shard is keyed by what it reads, so whatever changes (a new
input file, a threshold, a seed, a removal) runs from the first stage that reads it, for the shards
that it touches. The output does not depend on the engine, the number of workers or of jobs that
share the work, nor on what was done in an earlier, broken run.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Iterable, Mapping, Sequence

from eyas.recipe import EyasError, Recipe
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    commit_manifest,
    manifest_versions,
    read_manifest,
)
from eyas.work import (
    Engine,
    NotYet,
    Shard,
    ShardResult,
    Workers,
    code_version,
    complete,
    run_stage,
    shard_key,
)

from .plan import Plan, make_plan, put_inputs, recorded_plan, with_removals
from .reading.inputs import InputFile, group_files
from .removals import record_removal
from .report.cost import StageWork, cost_facts
from .report.funnel import Tally
from .report.heads import with_heads
from .report.report import put_report, report_facts
from .stages.match_stage import match_shards

__all__ = ["curate", "remove_documents"]

_TEXTS, _CANDIDATES, _REJECTS = "corpus/texts/", "corpus/candidates/", "corpus/rejects/"
_FACTS = ("funnel", "languages", "rejects_by_language", "clusters", "libraries")
_PATIENCE = 60.0  # seconds between two looks at what other jobs have done, at most
_HERE = Engine()
_log = logging.getLogger("eyas.corpus")
_Results = Sequence[ShardResult | None]


def curate(
    recipe: Recipe,
    store: Store,
    engine: Engine = _HERE,
    wait: bool = False,
) -> Manifest:
    """Make the corpus of `recipe` in `store`, or return it if it is finished.

    Package sources must have been fetched. With a share of the work (`engine.share`) this runs its
    part of every stage whose input is there; if others still hold some, it raises NotYet, or with
    `wait` looks again until nothing is left. Raises UsageError for sources that are not there or
    unknown languages, StageError for a shard that cannot be done.
    """
    plan = make_plan(recipe, store)
    done = read_manifest(store, "corpus")
    if done is not None and done.identity == plan.identity:
        _log.info("corpus %s is finished", plan.identity[:12])
        return done
    while True:
        results = _finished(store, plan, engine, wait)
        asked = with_removals(store, plan)
        if asked.identity == plan.identity:
            made = _commit(store, plan, recipe.hash, results)
            asked = with_removals(store, plan)
            if asked.identity == plan.identity:
                return made
        _log.info("a removal came in meanwhile: going on without what it names")
        plan = asked


def remove_documents(
    store: Store,
    urls: Iterable[str],
    domains: Iterable[str],
    why: str,
    engine: Engine = _HERE,
) -> Manifest:
    """Take documents out by URL or domain, for good, and return the corpus without them.

    Only what holds such a document is written again, from what earlier stages left in the store:
    the sources are not needed. Raises UsageError if nothing or no reason is named, EyasError if
    there is no corpus.
    """
    _standing(store)
    number = record_removal(store, urls, domains, why)
    _log.info("removal %d is recorded", number)
    while True:
        done = _standing(store)
        plan = recorded_plan(store, done)
        if plan.identity == done.identity:
            return done
        results = _finished(store, plan, engine, wait=False)
        if manifest_versions(store, "corpus")[-1] == done.version:  # else from the newer one
            _commit(store, plan, done.recipe, results)


def _standing(store: Store) -> Manifest:
    manifest = read_manifest(store, "corpus")
    if manifest is None:
        raise EyasError(f"{store.url} holds no corpus; make one with `eyas curate RECIPE`")
    return manifest


def _finished(store: Store, plan: Plan, engine: Engine, wait: bool) -> dict[str, StageWork]:
    """All stages of the plan. With `wait`, what others hold is waited for, with back-off."""
    known: dict[str, ShardResult] = {}
    pause = 1.0
    while True:
        try:
            with Workers(store, engine) as workers:
                return _run(plan, workers, known)
        except NotYet as error:
            if not wait:
                raise
            _log.info("%s; looking again in %.0f s", error, pause)
            time.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 jobs look at different times
            pause = min(_PATIENCE, 1.5 * pause)


class _Work:
    """The stages of a plan as far as they have been run; `done` goes by their short names. What is
    in `known`, by its key, is not looked up again, so that a job that waits asks for little."""

    def __init__(self, plan: Plan, workers: Workers, known: dict[str, ShardResult]) -> None:
        self._plan = plan
        self._workers = workers
        self._known = known
        self._begun: dict[str, tuple[Sequence[Shard | None], _Results]] = {}
        self.done: dict[str, StageWork] = {}

    def begin(self, name: str, shards: Sequence[Shard | None]) -> _Results:
        """Run what can be run of a stage; None for what is another job's."""
        stage = self._plan.stages[name]
        keys = [shard_key(stage, shard) if shard else "" for shard in shards]
        asked = [None if k in self._known else s for k, s in zip(keys, shards, strict=True)]
        found = run_stage(self._workers, stage, asked) if any(asked) else []
        self._known |= {k: r for k, r in zip(keys, found, strict=bool(found)) if r}
        results = [self._known.get(key) for key in keys]
        self._begun[name] = shards, results
        return results

    def finish(self, *names: str) -> None:
        """Raises NotYet if another job still holds a shard of one of these stages."""
        for name in names:
            shards, results = self._begun[name]
            whole = complete(self._plan.stages[name].name, results)
            self.done[name] = StageWork(name, [s for s in shards if s], whole)

    def exchange(self, name: str, shards: Sequence[Shard]) -> Sequence[ShardResult]:
        """Results of a stage that all others must have come to."""
        self.begin(name, shards)
        self.finish(name)
        return self.done[name].results


def _run(plan: Plan, workers: Workers, known: dict[str, ShardResult]) -> dict[str, StageWork]:
    """Every stage's shards and results. All that shares nothing is run before the first stage that
    needs what every job has done. Raises NotYet."""
    work = _Work(plan, workers, known)
    extracted = work.begin("extract", [_extract_shard(group) for group in group_files(plan.files)])
    filtered = work.begin("filter", _shards(extracted, _TEXTS))
    work.begin("bands", _shards(filtered, _CANDIDATES))
    work.begin("remove", _remove_shards(filtered, plan.removal_set))
    work.finish("extract", "filter", "bands", "remove")
    pairs = work.exchange("match", _match_shards(work.done["bands"].results))
    (clusters,) = work.exchange("cluster", [_cluster_shard(pairs)])
    work.exchange("write", _write_shards(work.done, clusters))
    return work.done


def _extract_shard(group: Sequence[InputFile]) -> Shard:
    params = {"files": [dataclasses.asdict(f) for f in group]}
    name = group[0].key if len(group) == 1 else f"{group[0].key} and {len(group) - 1} more"
    return Shard(name, tuple(f.ref for f in group), params)


def _shards(results: _Results, prefix: str) -> list[Shard | None]:
    """One an object under `prefix`; None for what another job has not made yet."""
    shards: list[Shard | None] = []
    for result in results:
        if result is None:
            shards.append(None)
        else:
            shards += [Shard(ref.key, (ref,)) for ref in _under(result, prefix)]
    return shards


def _remove_shards(filtered: _Results, removal_set: ObjectRef | None) -> list[Shard | None]:
    """Candidates and rejects to look for removals in; none if nothing is removed."""
    if removal_set is None:
        return []
    found = [*_shards(filtered, _CANDIDATES), *_shards(filtered, _REJECTS)]
    return [s and dataclasses.replace(s, inputs=(*s.inputs, removal_set)) for s in found]


def _match_shards(bands: Sequence[ShardResult]) -> list[Shard]:
    """Shards of ranges of hashes. The numbers of their inputs are positions in `bands`, and so in
    the list of all candidates."""
    refs = tuple(ref for result in bands for ref in result.objects)
    parts = match_shards(sum(ref.rows for ref in refs))
    numbers = list(range(len(refs)))
    return [
        Shard(
            f"hashes {part + 1} of {parts}",
            refs,
            {"part": part, "parts": parts, "numbers": numbers},
        )
        for part in range(parts)
    ]


def _cluster_shard(pairs: Sequence[ShardResult]) -> Shard:
    return Shard("all pairs", tuple(ref for r in pairs for ref in r.objects))


def _write_shards(done: Mapping[str, StageWork], clusters: ShardResult) -> list[Shard]:
    owned = dict(zip(clusters.facts["shards"], clusters.objects, strict=True))
    candidates = _all_under(done["filter"], _CANDIDATES)
    removed = {n: r.objects for n, r in enumerate(done["remove"].results[: len(candidates)])}
    return [
        Shard(ref.key, (ref, *([owned[n]] if n in owned else ()), *removed.get(n, ())))
        for n, ref in enumerate(candidates)
    ]


def _under(result: ShardResult, prefix: str) -> tuple[ObjectRef, ...]:
    return tuple(o for o in result.objects if o.key.startswith(prefix))


def _all_under(work: StageWork, prefix: str) -> list[ObjectRef]:
    return [ref for result in work.results for ref in _under(result, prefix)]


def _commit(store: Store, plan: Plan, recipe: str, done: Mapping[str, StageWork]) -> Manifest:
    standing = read_manifest(store, "corpus")
    if standing is not None and standing.identity == plan.identity:
        return standing  # another job that shared the work was first
    tally = _tally(plan, done)
    clusters = with_heads(
        store, done["cluster"].results[0].facts, _all_under(done["filter"], _CANDIDATES),
        hidden=lambda url: bool(plan.removals.number(url)),
    )  # fmt: skip
    facts = report_facts(plan.recipe, plan.ruleset, tally, clusters)
    cost = cost_facts(done.values(), tally.pages, plan.recipe.corpus.cpu_hour_price)
    objects = (
        *_all_under(done["write"], "corpus/documents/"),
        *_rejects(done),
        *_all_under(done["filter"], "corpus/values/"),
        put_inputs(store, plan),
        *put_report(store, plan.identity, plan.name, facts, cost),
    )
    manifest = Manifest(
        room="corpus",
        identity=plan.identity,
        recipe=recipe,
        code=code_version(),
        inputs=tuple(f.ref for f in plan.files),
        objects=objects,
        counters=_counters(tally, done["write"].results),
        facts={k: facts[k] for k in _FACTS} | {"before_removals": plan.before_removals},
    )
    return commit_manifest(store, manifest)


def _tally(plan: Plan, done: Mapping[str, StageWork]) -> Tally:
    """All shards' counts; no sample shows what was removed."""
    read = ("extract", "filter", "write")
    tally = Tally.merged(r.facts for name in read for r in done[name].results)
    for group, rows in tally.samples.items():
        tally.samples[group] = [row for row in rows if not plan.removals.number(row["url"])]
    return tally


def _rejects(done: Mapping[str, StageWork]) -> list[ObjectRef]:
    """Of all stages; those of the filters in which a removal was found, without its text."""
    candidates = len(_all_under(done["filter"], _CANDIDATES))
    filtered = _all_under(done["filter"], _REJECTS)
    for number, result in enumerate(done["remove"].results[candidates:]):
        filtered[number : number + 1] = result.objects or filtered[number : number + 1]
    return [
        *_all_under(done["extract"], _REJECTS),
        *filtered,
        *_all_under(done["write"], _REJECTS),
    ]


def _counters(tally: Tally, written: Sequence[ShardResult]) -> dict[str, float]:
    counters: dict[str, float] = {
        "pages_in": tally.pages,
        "documents": tally.kept.total(),
        "documents_train": sum(r.counters.get("documents_train", 0) for r in written),
        "documents_validation": sum(r.counters.get("documents_validation", 0) for r in written),
        "bytes": tally.kept_bytes.total(),
        "broken_records": 0,
        "duplicates": 0,
        "removed": 0,
    }
    special = {
        "broken": "broken_records",
        "truncated": "broken_records",
        "duplicate": "duplicates",
        "removed": "removed",
    }
    for (_, reason, _), n in sorted(tally.rejects.items()):
        counters[f"rejects_{reason}"] = counters.get(f"rejects_{reason}", 0) + n
        if reason in special:
            counters[special[reason]] += n
    return counters
