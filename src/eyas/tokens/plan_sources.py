"""The tokens that a data plan is about: found by the recipe when a plan is made, by the plan itself
when it is read, and verified both times.

A source's tokens are a part of a tokens manifest, of the plan's own store or of another one whose
shards are read where they lie. The plan keeps the manifest's identity, version and CRC32C, and the
manifest vouches for every object, so a reused store is trusted no further than its checksums. All
sources must have been encoded with one tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eyas.recipe import DataSource, EyasError, Recipe, UsageError
from eyas.store import Corrupt, Manifest, Store, crc32c, open_store, read_manifest

from .foreign import foreign_kind
from .grid import Grid
from .order import ShuffledOrder
from .selection import Segment, Source
from .token_objects import token_objects

__all__ = ["PlanSources", "SourceTokens", "plan_tokens", "recipe_sources", "stored_sources"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SourceTokens:
    """Where the tokens of a source lie: the source `part` of `manifest` in `store`."""

    store: Store
    manifest: Manifest
    part: str


class PlanSources:
    """The sources of a plan with all that is needed to lay it out; see `phases.Known`."""

    def __init__(
        self, sources: Iterable[Source], tokens: Mapping[str, SourceTokens], window: int
    ) -> None:
        self.sources = tuple(sources)
        self._tokens = dict(tokens)
        self._window = window
        self._grids: dict[tuple[str, int], Grid] = {}
        self._objects: dict[str, dict[str, int]] = {}

    @property
    def tokenizer(self) -> str:
        """The digest of the tokenizer of all of them."""
        return str(next(iter(self._tokens.values())).manifest.facts["tokenizer"])

    def grid(self, source: int, sequence: int) -> Grid:
        """The grid of the training split of a source."""
        name = self.sources[source].name
        if (name, sequence) not in self._grids:
            tokens = self._tokens[name]
            self._grids[name, sequence] = Grid.of(tokens.manifest, tokens.part, "train", sequence)
        return self._grids[name, sequence]

    def block_count(self, key: str) -> int:
        """Blocks of a token object; 0 if no source has an object of this key."""
        for number in range(len(self.sources)):
            if (at := self._object(number, key)) is not None:
                grid = self.grid(number, 1)
                return int(grid.first_block[at + 1] - grid.first_block[at])
        return 0

    def block_samples(self, key: str, block: int, segment: Segment, stop: int) -> Integers:
        """Numbers of the samples that lie in a block of a token object, ascending, in every epoch
        that the segment reads before sample `stop`; some may lie before or after that."""
        first, last = segment.taken(segment.first_sample), segment.taken(stop)
        found = [np.zeros(0, np.int64)]
        for number, source in enumerate(segment.sources):
            at = self._object(number, key)
            if at is None or first[number] == last[number]:
                continue
            grid = self.grid(number, segment.sequence)
            order = ShuffledOrder(grid, segment.seed, self._window)
            low, high = int(first[number]), int(last[number])
            for epoch in range(low // source.samples, (high - 1) // source.samples + 1):
                indices = order.block_samples(int(grid.first_block[at]) + block, epoch)
                found.append(segment.number_of(number, indices))
        return np.sort(np.concatenate(found))

    def _object(self, source: int, key: str) -> int | None:
        """The number of a token object among those of a source."""
        name = self.sources[source].name
        if name not in self._objects:
            objects = token_objects(self._tokens[name].manifest, self._tokens[name].part, "train")
            self._objects[name] = {o.tokens.key: number for number, o in enumerate(objects)}
        return self._objects[name].get(key)


@dataclass
class _Stores:
    """The stores concerned, each opened once, and their manifests, each read once."""

    own: Store
    opened: dict[str, Store] = field(default_factory=dict)
    manifests: dict[tuple[str, int | None], tuple[Manifest, str]] = field(default_factory=dict)

    def store(self, url: str) -> Store:
        if not url:
            return self.own
        if url not in self.opened:
            self.opened[url] = open_store(url)
        return self.opened[url]

    def manifest(self, url: str, version: int | None = None) -> tuple[Manifest, str]:
        """That version of the tokens manifest, or the current one, and the CRC32C of its object.
        Raises EyasError if there is none."""
        if (url, version) not in self.manifests:
            store = self.store(url)
            manifest = read_manifest(store, "tokens", version)
            if manifest is None and version is None:
                raise EyasError(
                    f"{store.url} holds no tokens; make them with `eyas tokenize RECIPE`"
                )
            if manifest is None:
                raise EyasError(
                    f"{store.url}: version {version} of the tokens, which the data plan is about, "
                    "is not there any more; put it back, or run `eyas tokenize` again"
                )
            sealed = store.get(f"tokens/manifest-{manifest.version:06d}.json")
            self.manifests[url, version] = manifest, f"{crc32c(sealed):08x}"
        return self.manifests[url, version]


def recipe_sources(recipe: Recipe, store: Store, window: int) -> PlanSources:
    """The sources that a recipe names. Raises EyasError for tokens that are not there, UsageError
    for a source that its store does not have, or with other tokens than the others'."""
    stores = _Stores(store)
    tokens: dict[str, SourceTokens] = {}
    sources: list[Source] = []
    for wanted in _wanted(recipe, stores):
        url = _store_of(recipe, wanted)
        manifest, checksum = stores.manifest(url)
        part = _part(wanted, manifest, stores.store(url))
        tokens[wanted.name] = SourceTokens(stores.store(url), manifest, part)
        sources.append(
            Source(
                name=wanted.name,
                store=stores.store(url).url if url else "",
                part=part,
                tokens=manifest.identity,
                tokens_version=manifest.version,
                tokens_crc32c=checksum,
                weight=float(wanted.weight),
                count=0,
                epochs=float(wanted.epochs or recipe.data.epochs),
                epoch_tokens=0,
                samples=0,
            )
        )
    _check_tokenizers(tokens)
    known = PlanSources(sources, tokens, window)
    _check_not_empty(recipe, known)
    return known


def plan_tokens(store: Store, sources: Iterable[Source]) -> dict[str, SourceTokens]:
    """Where the tokens of a plan's sources lie, by name; every manifest is verified against the
    plan. Raises EyasError for what is not there any more, Corrupt for what is not the same."""
    stores = _Stores(store)
    found: dict[str, SourceTokens] = {}
    for source in sources:
        manifest, checksum = stores.manifest(source.store, source.tokens_version)
        at = stores.store(source.store)
        if (manifest.identity, checksum) != (source.tokens, source.tokens_crc32c):
            raise Corrupt(
                f"{at.url}: version {manifest.version} of the tokens is not the one that the data "
                f'plan is about (source "{source.name}"): CRC32C {checksum} instead of '
                f"{source.tokens_crc32c}; put it back, or run `eyas tokenize` again"
            )
        found[source.name] = SourceTokens(at, manifest, source.part)
    _check_tokenizers(found)
    return found


def stored_sources(store: Store, sources: Iterable[Source], window: int) -> PlanSources:
    """As `recipe_sources`, from the sources of a segment."""
    sources = tuple(sources)
    return PlanSources(sources, plan_tokens(store, sources), window)


def _wanted(recipe: Recipe, stores: _Stores) -> tuple[DataSource, ...]:
    """The recipe's sources; left out, the whole corpus or, of another store, all that it has in
    proportion to their tokens."""
    if recipe.data.sources:
        return recipe.data.sources
    if not recipe.data.from_:
        return (DataSource(name="corpus"),)
    manifest, _ = stores.manifest(recipe.data.from_)
    sizes = {
        name: float(fact["train"]["tokens"]) for name, fact in manifest.facts["sources"].items()
    }
    return tuple(DataSource(name=name, weight=size) for name, size in sizes.items())


def _store_of(recipe: Recipe, source: DataSource) -> str:
    """URL of the store that has the tokens of a source, "" for the run's own."""
    if foreign_kind(source.from_):
        return ""
    return source.from_ or recipe.data.from_


def _part(source: DataSource, manifest: Manifest, store: Store) -> str:
    """The source of a manifest that is meant: the one of the same name, or where a source is
    another store, the only one that it has."""
    names = list(manifest.facts["sources"])
    if source.name in names:
        return source.name
    if source.from_ and len(names) == 1:
        return str(names[0])
    todo = "" if source.from_ else ", or run `eyas tokenize` with this recipe"
    raise UsageError(
        f'data.sources: the tokens of {store.url} have no source "{source.name}" but '
        f"{', '.join(names)}; name one of them{todo}"
    )


def _check_tokenizers(tokens: Mapping[str, SourceTokens]) -> None:
    """All made by one tokenizer."""
    first = next(iter(tokens))
    digest = tokens[first].manifest.facts["tokenizer"]
    for name, source in tokens.items():
        if (other := source.manifest.facts["tokenizer"]) != digest:
            raise UsageError(
                f'the tokens of source "{name}" ({source.store.url}) were made by tokenizer '
                f'{other[:12]}, those of "{first}" ({tokens[first].store.url}) by {digest[:12]}: '
                "encode both with one, by [tokenizer] from"
            )


def _check_not_empty(recipe: Recipe, known: PlanSources) -> None:
    """No source that is ever taken from may be without a training token."""
    weights = [m.weights for m in recipe.data.milestones]
    for number, source in enumerate(known.sources):
        ever = source.weight or any(w.get(source.name) for w in weights)
        if ever and not known.grid(number, recipe.data.sequence).samples:
            raise EyasError(
                f'source "{source.name}" has no training document, so there is nothing to plan; '
                "leave it out, or give it text"
            )
