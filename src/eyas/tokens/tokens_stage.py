"""The tokens stage: sources and tokenizer in, token shards and their manifest out.

The recipe's `data.sources` say what is encoded: parts of the own corpus by language, and foreign
data; sources that are other stores are read where they lie and are no work here. One shard of work
a corpus object, or a piece of a foreign file (`encode.py`), run by `work`, each recorded in the
ledger; then a manifest of room "tokens". A finished one is not made again, a half-finished one is
finished.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from eyas.recipe import DataSource, EyasError, Recipe, UsageError
from eyas.store import (
    Manifest,
    ObjectRef,
    Store,
    commit_manifest,
    dump_json,
    identity,
    open_store,
    put_object,
    read_manifest,
)
from eyas.work import (
    Engine,
    Shard,
    ShardResult,
    Stage,
    Workers,
    code_version,
    complete,
    run_stage,
)

from .foreign import Piece, Place, check_place, foreign_kind, pieces_of
from .token_objects import BLOCK_BYTES, SPLITS, by_shard, token_dtype
from .tokenizer_stage import corpus_manifest, manifest_reference

__all__ = ["check_sources", "needs_corpus", "write_tokens"]

VERSION = 2
SHARD_BYTES = 256 * 2**20
_CORPUS = "corpus"


@dataclass(frozen=True)
class _Foreign:
    """A foreign source as it was found."""

    source: DataSource
    place: Place
    pieces: Sequence[Piece]

    @property
    def kind(self) -> str:
        return foreign_kind(self.source.from_)

    def identity(self, share: float, tokenizer: str) -> str:
        """Of its token shards."""
        made_of = [self.source.name, self.kind, self.place.home, self.pieces, share]
        return _identity(made_of, tokenizer)


@dataclass(frozen=True)
class _Work:
    """All that is to be encoded, `names` in the order of the recipe. `corpus` is None if no source
    takes from it."""

    names: Sequence[str]
    own: Sequence[DataSource]
    corpus: Manifest | None
    foreign: Sequence[_Foreign]
    share: float

    @property
    def objects(self) -> tuple[ObjectRef, ...]:
        return self.corpus.under("corpus/documents/") if self.corpus else ()

    def own_identity(self, tokenizer: str) -> str:
        """Of the token shards of the sources that take from the corpus."""
        own = [(source.name, source.languages) for source in self.own]
        return _identity([own, [o.crc32c for o in self.objects]], tokenizer)

    def identity(self, tokenizer: str) -> str:
        """Of all token shards: of each part, so that what is added leaves the others as they
        are."""
        parts = [found.identity(self.share, tokenizer) for found in self.foreign]
        return identity("tokens", self.names, self.own_identity(tokenizer), parts)


def _identity(made_of: Sequence[Any], tokenizer: str) -> str:
    return identity("tokens", VERSION, BLOCK_BYTES, SHARD_BYTES, made_of, tokenizer)


def check_sources(recipe: Recipe) -> None:
    """Whether there is anything where the recipe's sources are said to lie: asked before hours are
    spent on a corpus or a tokenizer. Raises UsageError for a foreign source, EyasError for a store
    without tokens."""
    for source in recipe.data.sources:
        if foreign_kind(source.from_):
            check_place(_key(source), source.from_)
    for url in _other_stores(recipe):
        store = open_store(url)
        if read_manifest(store, "tokens") is None:
            raise EyasError(f"{store.url} holds no tokens; make them with `eyas tokenize RECIPE`")


def _key(source: DataSource) -> str:
    """What errors call it."""
    return f'data.sources "{source.name}"'


def needs_corpus(recipe: Recipe) -> bool:
    """Whether a source takes documents of the run's own corpus."""
    return any(not source.from_ for source in _encoded_sources(recipe))


def _encoded_sources(recipe: Recipe) -> tuple[DataSource, ...]:
    """The sources of which this store will hold token shards, in the order of the recipe: foreign
    ones and parts of the own corpus. A recipe without sources has one, "corpus"."""
    if recipe.data.from_:
        return ()
    sources = recipe.data.sources or (DataSource(name=_CORPUS),)
    return tuple(s for s in sources if not s.from_ or foreign_kind(s.from_))


def _other_stores(recipe: Recipe) -> list[str]:
    """URLs of the stores whose token shards are read where they lie."""
    urls = [recipe.data.from_, *(s.from_ for s in recipe.data.sources)]
    return [url for url in dict.fromkeys(urls) if url and not foreign_kind(url)]


def write_tokens(recipe: Recipe, store: Store, workers: int = 0) -> Manifest | None:
    """Encode every source that is not another store's, with the store's tokenizer; `workers` 0 is
    one a core. None if there is no such source.

    Facts: `tokens` and `documents` by split, `sources` (by name and split: `tokens`, `documents`,
    `bytes` of text, and `languages` with the same three), `languages` (tokens by split and
    language), `dtype`, `block_bytes`, `highest_id`, `end_of_text`, `tokenizer` (its digest),
    `vocab_size`. Counter `left_out`: documents of the corpus that no source takes; `broken`:
    records of foreign files that could not be read. Raises EyasError if corpus or tokenizer is
    missing, a foreign source has nothing to read, a file is broken, ids do not fit the tokenizer,
    or another store's tokens were made by another tokenizer than this store's.
    """
    sources = _encoded_sources(recipe)
    tokenizer = read_manifest(store, "tokenizer")
    if tokenizer is not None:
        for url in _other_stores(recipe):
            _check_tokenizer(store, tokenizer, url)
    if not sources:
        return None
    if tokenizer is None:
        raise EyasError(f"{store.url} holds no tokenizer; make one with `eyas tokenize RECIPE`")
    work = _find_work(recipe, store, sources)
    name = work.identity(tokenizer.facts["digest"])
    current = read_manifest(store, "tokens")
    if current is not None and current.identity == name:
        return current
    return commit_manifest(store, _encoded(recipe, store, work, tokenizer, name, workers))


def _encoded(
    recipe: Recipe, store: Store, work: _Work, tokenizer: Manifest, name: str, workers: int
) -> Manifest:
    """Run what has not been run, and add up."""
    (reference,) = (o for o in tokenizer.objects if o.key.endswith("-tokenizer.json"))
    digest = tokenizer.facts["digest"]
    settings = {"block_bytes": BLOCK_BYTES, "shard_bytes": SHARD_BYTES}
    stage = Stage("tokens.encode", VERSION, "eyas.tokens.encode:run_shard", settings)
    shards = [*_corpus_shards(work, reference, digest), *_foreign_shards(work, reference, digest)]
    numbers = [shard.params["number"] for shard in shards]
    with Workers(store, Engine(workers=workers)) as crew:
        results = complete(stage.name, run_stage(crew, stage, shards))
    counters: Counter[str] = Counter()
    for result in results:
        counters.update({k: int(v) for k, v in result.counters.items()})
    corpus = [manifest_reference(store, work.corpus)] if work.corpus else []
    listed = _list_inputs(store, work, digest)
    return Manifest(
        room="tokens",
        identity=name,
        recipe=recipe.hash,
        code=code_version(),
        inputs=(*corpus, reference, *listed),
        objects=(*_ordered(work.names, results, numbers), *listed),
        counters=dict(counters),
        facts=_facts(work.names, results, counters, tokenizer.facts),
    )


def _check_tokenizer(store: Store, tokenizer: Manifest, url: str) -> None:
    """Said before anything is encoded: all sources of a run are ids of one tokenizer."""
    tokens = read_manifest(open_store(url), "tokens")
    if tokens is not None and tokens.facts["tokenizer"] != tokenizer.facts["digest"]:
        raise UsageError(
            f"the tokens of {url} were made by tokenizer {tokens.facts['tokenizer'][:12]}, the one "
            f"of {store.url} is {tokenizer.facts['digest'][:12]}; set tokenizer.from to {url}"
        )


def _find_work(recipe: Recipe, store: Store, sources: Sequence[DataSource]) -> _Work:
    own = [source for source in sources if not source.from_]
    foreign = []
    for source in sources:
        if source.from_:
            foreign.append(_Foreign(source, *pieces_of(_key(source), source.from_)))
    corpus = corpus_manifest(store) if own else None
    return _Work([s.name for s in sources], own, corpus, foreign, recipe.corpus.validation_share)


def _corpus_shards(work: _Work, tokenizer: ObjectRef, digest: str) -> list[Shard]:
    name = work.own_identity(digest)
    sources = [{"name": source.name, "languages": source.languages} for source in work.own]
    return [
        Shard(
            reference.key,
            (reference, tokenizer),
            {"identity": name, "number": number, "sources": sources},
        )
        for number, reference in enumerate(work.objects)
    ]


def _foreign_shards(work: _Work, tokenizer: ObjectRef, digest: str) -> Iterator[Shard]:
    for found in work.foreign:
        name = found.identity(work.share, digest)
        for number, piece in enumerate(found.pieces):
            params = {
                "identity": name,
                "number": number,
                "source": found.source.name,
                "kind": found.kind,
                "validation_share": work.share,
                "home": found.place.home,
                "piece": dataclasses.asdict(piece),
            }
            yield Shard(f"{found.place.home}/{piece.key}", (tokenizer,), params)


def _list_inputs(store: Store, work: _Work, digest: str) -> list[ObjectRef]:
    """The files of each foreign source, however many, as one object that vouches for them: a row
    a file with its URL, size and etag."""
    references = []
    for found in work.foreign:
        files = {
            piece.key: {
                "url": f"{found.place.home}/{piece.key}",
                "size": piece.size,
                "etag": piece.etag,
            }
            for piece in found.pieces
        }
        name = found.identity(work.share, digest)
        key = f"tokens/{name[:12]}-{found.source.name}-inputs.json"
        data = dump_json({"from": found.source.from_, "files": list(files.values())})
        references.append(put_object(store, key, data, rows=len(files)))
    return references


def _ordered(
    names: Sequence[str], results: Sequence[ShardResult], numbers: Sequence[int]
) -> tuple[ObjectRef, ...]:
    """Source by source and split by split, shards by hash of their number."""
    places = sorted(
        range(len(results)),
        key=lambda i: xxhash.xxh3_64_intdigest(int(numbers[i]).to_bytes(8, "little")),
    )
    found = by_shard(itertools.chain.from_iterable(results[i].objects for i in places))
    return tuple(o for name in names for split in SPLITS for o in found.get((name, split), ()))


def _facts(
    names: Sequence[str],
    results: Sequence[ShardResult],
    counters: Mapping[str, int],
    tokenizer: Mapping[str, Any],
) -> dict[str, Any]:
    sources = {
        name: {
            split: _split_facts([r.facts["sources"].get(name, {}).get(split, {}) for r in results])
            for split in SPLITS
        }
        for name in names
    }
    languages: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    for splits in sources.values():
        for split, facts in splits.items():
            counts = {name: sums["tokens"] for name, sums in facts["languages"].items()}
            languages[split].update(counts)
    return {
        "tokens": {split: counters.get(f"tokens_{split}", 0) for split in SPLITS},
        "documents": {split: counters.get(f"documents_{split}", 0) for split in SPLITS},
        "sources": sources,
        "languages": {split: dict(sorted(counts.items())) for split, counts in languages.items()},
        "dtype": token_dtype(tokenizer["vocab_size"]).name,
        "block_bytes": BLOCK_BYTES,
        "highest_id": max((r.facts["highest_id"] for r in results), default=-1),
        "end_of_text": tokenizer["end_of_text"],
        "vocab_size": tokenizer["vocab_size"],
        "tokenizer": tokenizer["digest"],
    }


def _split_facts(tallies: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Of one source and split: documents, tokens and bytes, in all and by language."""
    kinds = ("documents", "tokens", "bytes")
    languages: dict[str, Counter[str]] = {}
    for tally in tallies:
        for name, sums in tally.items():
            languages.setdefault(name, Counter()).update(dict(zip(kinds, sums, strict=True)))
    total = {kind: sum(counts[kind] for counts in languages.values()) for kind in kinds}
    by_language = {name: dict(counts) for name, counts in sorted(languages.items())}
    return total | {"languages": by_language}
