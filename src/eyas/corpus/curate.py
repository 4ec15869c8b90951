"""The corpus, from a recipe to a manifest: four stages, a report, then the manifest, written last.

1. `corpus.extract`: each input shard to candidates, rejects and band hashes (shares nothing);
2. `corpus.match`: band hashes, exchanged by range of hash, to pairs;
3. `corpus.cluster`: pairs to clusters, one task;
4. `corpus.write`: candidates and clusters to documents with their split (shares nothing).

Every shard is keyed by what it reads, so a new input file runs stage 1 for that file, the exchange,
and stage 4 where clusters changed; a changed seed runs stage 4 only. The output does not depend on
the number of workers, nor on what was done in an earlier, broken run.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from eyas.recipe import Recipe, UsageError
from eyas.store import Manifest, ObjectRef, Store, commit_manifest, identity, read_manifest
from eyas.work import Shard, ShardResult, Stage, code_version, run_stage

from .reading.inputs import InputFile, group_files, input_files, package_sources
from .report.funnel import Tally
from .report.report import put_report, report_facts
from .stages.exchange import BUCKETS
from .stages.match_stage import match_shards
from .steps.language import known_languages
from .steps.packs import packs_digest

__all__ = ["curate"]

_log = logging.getLogger("eyas.corpus")


def curate(recipe: Recipe, store: Store, workers: int = 0) -> Manifest:
    """Make the corpus of `recipe` in `store`, or return it if it is finished.

    `workers` processes, 0 for one a core. Package sources must have been fetched. Raises UsageError
    for sources that are not there or unknown languages, StageError for a shard that cannot be done.
    """
    _check_languages(recipe.corpus.languages)
    files = input_files(recipe, store, _fetched(recipe, store))
    stages = _stages(recipe)
    name = _identity(stages, files)
    done = read_manifest(store, "corpus")
    if done is not None and done.identity == name:
        _log.info("corpus %s is finished", name[:12])
        return done
    extract, match, cluster, write = stages
    shards = [_extract_shard(group) for group in group_files(files)]
    extracted = run_stage(store, extract, shards, workers)
    pairs = run_stage(store, match, _match_shards(extracted), workers)
    clusters = run_stage(store, cluster, [_cluster_shard(pairs)], workers)[0]
    written = run_stage(store, write, _write_shards(extracted, clusters), workers)
    return _commit(recipe, store, name, files, [*extracted, *written], clusters)


def _check_languages(languages: Sequence[str]) -> None:
    """A code that nothing is ever labelled with would drop every page without a word."""
    unknown = sorted(set(languages) - known_languages()) if languages else ()
    if unknown:
        raise UsageError(
            f"corpus.languages: nothing is ever detected as {', '.join(unknown)}; write ISO 639-1 "
            "codes such as en, ar, zh, or fastText's own such as arz"
        )


def _fetched(recipe: Recipe, store: Store) -> Manifest | None:
    packages = package_sources(recipe)
    manifest = read_manifest(store, "sources") if packages else None
    if packages and manifest is None:
        raise UsageError(
            f"{store.url} has no fetched packages yet ({packages[0]}); `eyas curate` fetches them"
        )
    if manifest is not None and manifest.facts.get("request"):
        packed = manifest.facts["request"]["sources"]
        if packed != sorted(set(packages)):
            raise UsageError(
                f"{store.url} holds the packages of other sources ({', '.join(packed)}); "
                "`eyas curate` fetches those of this recipe"
            )
    return manifest


def _stages(recipe: Recipe) -> tuple[Stage, Stage, Stage, Stage]:
    """The four stages with the recipe values that each reads. A version is raised by hand when a
    stage gives other output for the same input."""
    c = recipe.corpus
    reads = {
        "extractor": c.extractor,
        "languages": sorted(c.languages),
        "language_threshold": c.language_threshold,
        "max_page_bytes": c.max_page_bytes,
        "dedup_bands": c.dedup_bands,
        "dedup_rows": c.dedup_rows,
        "dedup_shingle": c.dedup_shingle,
        "packs": packs_digest(),
    }
    split = {"seed": c.seed, "validation_share": c.validation_share}
    return (
        Stage("corpus.extract", 1, "eyas.corpus.stages.extract_stage:run_shard", reads),
        Stage("corpus.match", 1, "eyas.corpus.stages.match_stage:run_match", {"buckets": BUCKETS}),
        Stage("corpus.cluster", 1, "eyas.corpus.stages.match_stage:run_cluster", {}),
        Stage("corpus.write", 1, "eyas.corpus.stages.write_stage:run_shard", split),
    )


def _identity(stages: Sequence[Stage], files: Sequence[InputFile]) -> str:
    settings = [(s.name, s.version, s.settings) for s in stages]
    return identity("corpus", settings, [(f.ref, f.etag, f.kind) for f in files])


def _extract_shard(group: Sequence[InputFile]) -> Shard:
    params = {"files": [dataclasses.asdict(f) for f in group]}
    name = group[0].key if len(group) == 1 else f"{group[0].key} and {len(group) - 1} more"
    return Shard(name, tuple(f.ref for f in group), params)


def _match_shards(extracted: Sequence[ShardResult]) -> list[Shard]:
    """Shards of ranges of hashes. Only inputs that have bands take part; their numbers are
    positions in `extracted`."""
    found = [(n, ref) for n, r in enumerate(extracted) for ref in _under(r, "corpus/bands/")]
    parts = match_shards(sum(ref.rows for _, ref in found))
    numbers = [n for n, _ in found]
    refs = tuple(ref for _, ref in found)
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


def _write_shards(extracted: Sequence[ShardResult], clusters: ShardResult) -> list[Shard]:
    owned = dict(zip(clusters.facts["shards"], clusters.objects, strict=True))
    shards = []
    for number, result in enumerate(extracted):
        for candidates in _under(result, "corpus/candidates/"):
            mine = (owned[number],) if number in owned else ()
            shards.append(Shard(candidates.key, (candidates, *mine)))
    return shards


def _under(result: ShardResult, prefix: str) -> tuple[ObjectRef, ...]:
    return tuple(o for o in result.objects if o.key.startswith(prefix))


def _commit(
    recipe: Recipe,
    store: Store,
    name: str,
    files: Sequence[InputFile],
    results: Sequence[ShardResult],
    clusters: ShardResult,
) -> Manifest:
    tally = Tally.merged(r.facts for r in results)
    documents = [o for r in results for o in _under(r, "corpus/documents/")]
    rejects = [o for r in results for o in _under(r, "corpus/rejects/")]
    facts = report_facts(recipe, tally, clusters.facts)
    report = put_report(store, name, recipe.name, facts)
    return commit_manifest(
        store,
        Manifest(
            room="corpus",
            identity=name,
            recipe=recipe.hash,
            code=code_version(),
            inputs=tuple(f.ref for f in files),
            objects=(*documents, *rejects, *report),
            counters=_counters(tally, results),
            facts={
                k: facts[k]
                for k in ("funnel", "languages", "rejects_by_language", "clusters", "libraries")
            },
        ),
    )


def _counters(tally: Tally, results: Sequence[ShardResult]) -> dict[str, float]:
    counters: dict[str, float] = {
        "pages_in": tally.pages,
        "documents": tally.kept.total(),
        "documents_train": sum(r.counters.get("documents_train", 0) for r in results),
        "documents_validation": sum(r.counters.get("documents_validation", 0) for r in results),
        "bytes": tally.kept_bytes.total(),
        "broken_records": 0,
        "duplicates": 0,
    }
    special = {"broken": "broken_records", "truncated": "broken_records", "duplicate": "duplicates"}
    for (_, reason, _), n in sorted(tally.rejects.items()):
        counters[f"rejects_{reason}"] = counters.get(f"rejects_{reason}", 0) + n
        if reason in special:
            counters[special[reason]] += n
    return counters
