"""The tokens stage: corpus and tokenizer in, token shards and their manifest out.

One shard of work a corpus object (`encode.py`), run by `work`, each recorded in the ledger; then a
manifest of room "tokens". A finished one is not made again, a half-finished one is finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from eyas.recipe import EyasError, Recipe
from eyas.store import Manifest, ObjectRef, Store, commit_manifest, identity, read_manifest
from eyas.work import Shard, ShardResult, Stage, code_version, run_stage

from .token_objects import BLOCK_BYTES, SPLITS, token_dtype
from .tokenizer_stage import corpus_manifest, manifest_reference

__all__ = ["write_tokens"]

VERSION = 1


def write_tokens(recipe: Recipe, store: Store, workers: int = 0) -> Manifest:
    """Encode the whole corpus with the store's tokenizer; `workers` 0 is one a core.

    Facts: `tokens` and `documents` by split, `languages` (tokens by split and language), `dtype`,
    `block_bytes`, `highest_id`, `end_of_text`, `tokenizer` (its digest), `vocab_size`. Raises
    EyasError if corpus or tokenizer is missing.
    """
    corpus = corpus_manifest(store)
    tokenizer = read_manifest(store, "tokenizer")
    if tokenizer is None:
        raise EyasError(f"{store.url} holds no tokenizer; make one with `eyas tokenize RECIPE`")
    made_of = [o.crc32c for o in corpus.under("corpus/documents/")]
    name = identity("tokens", VERSION, BLOCK_BYTES, made_of, tokenizer.facts["digest"])
    current = read_manifest(store, "tokens")
    if current is not None and current.identity == name:
        return current
    (reference,) = (o for o in tokenizer.objects if o.key.endswith("-tokenizer.json"))
    stage = Stage(
        "tokens.encode", VERSION, "eyas.tokens.encode:run_shard", {"block_bytes": BLOCK_BYTES}
    )
    results = run_stage(store, stage, _shards(corpus, reference, name), workers)
    counters: Counter[str] = Counter()
    for result in results:
        counters.update({k: int(v) for k, v in result.counters.items()})
    manifest = Manifest(
        room="tokens",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(manifest_reference(store, corpus), reference),
        objects=_ordered(results),
        counters=dict(counters),
        facts=_facts(results, counters, tokenizer.facts),
    )
    return commit_manifest(store, manifest)


def _shards(corpus: Manifest, tokenizer: ObjectRef, name: str) -> list[Shard]:
    sources = corpus.under("corpus/documents/")
    return [
        Shard(source.key, (source, tokenizer), {"identity": name, "number": number})
        for number, source in enumerate(sources)
    ]


def _ordered(results: Sequence[ShardResult]) -> tuple[ObjectRef, ...]:
    """Split by split, shards by hash of their number."""
    order = sorted(
        range(len(results)), key=lambda n: xxhash.xxh3_64_intdigest(n.to_bytes(8, "little"))
    )
    return tuple(
        reference
        for split in SPLITS
        for number in order
        for reference in results[number].objects
        if f"-{split}-" in reference.key
    )


def _facts(
    results: Sequence[ShardResult], counters: Mapping[str, int], tokenizer: Mapping[str, Any]
) -> dict[str, Any]:
    languages: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for result in results:
        for split, counts in result.facts["languages"].items():
            languages[split].update(counts)
    return {
        "tokens": {split: counters.get(f"tokens_{split}", 0) for split in SPLITS},
        "documents": {split: counters.get(f"documents_{split}", 0) for split in SPLITS},
        "languages": {split: dict(sorted(counts.items())) for split, counts in languages.items()},
        "dtype": token_dtype(tokenizer["vocab_size"]).name,
        "block_bytes": BLOCK_BYTES,
        "highest_id": max((r.facts["highest_id"] for r in results), default=-1),
        "end_of_text": tokenizer["end_of_text"],
        "vocab_size": tokenizer["vocab_size"],
        "tokenizer": tokenizer["digest"],
    }
