"""Sources of a plan without a token behind them: manifests made up from object sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eyas.recipe import Phase
from eyas.store import Manifest, ObjectRef, identity
from eyas.tokens.data_plan import DataPlan
from eyas.tokens.order import ORDER
from eyas.tokens.phases import Rules, Skip, lay_out
from eyas.tokens.plan_sources import PlanSources, SourceTokens
from eyas.tokens.selection import Source

__all__ = ["BLOCK", "WINDOW", "key_of", "known", "phase", "planned"]

BLOCK = 64
"""Tokens a block."""
WINDOW = 4


def known(
    sizes: Mapping[str, Sequence[int]],
    epochs: Mapping[str, float] | float = 100.0,
) -> PlanSources:
    """Sources by name with the tokens of each of their objects."""
    name = identity("made up", dict(sizes))
    references = [
        ObjectRef(f"tokens/{name[:12]}-{source}-train-{n:05d}{ending}", 2 * size, "0" * 8, size)
        for source, objects in sizes.items()
        for n, size in enumerate(objects)
        for ending in (".tok", ".blocks", ".docs.parquet")
    ]
    facts = {"dtype": "uint16", "block_bytes": 2 * BLOCK, "tokenizer": "t" * 64}
    manifest = Manifest("tokens", name, objects=tuple(references), facts=facts, version=1)
    caps = epochs if isinstance(epochs, Mapping) else dict.fromkeys(sizes, epochs)
    sources = [Source(s, "", s, name, 1, "0" * 8, 1.0, 0, float(caps[s]), 0, 0) for s in sizes]
    tokens = {s: SourceTokens(None, manifest, s) for s in sizes}  # type: ignore[arg-type]
    return PlanSources(sources, tokens, WINDOW)


def key_of(sources: PlanSources, source: str, number: int) -> str:
    """The key of a token object."""
    return f"tokens/{sources.sources[0].tokens[:12]}-{source}-train-{number:05d}.tok"


def phase(
    first_step: int, steps: int, sequence: int = 8, batch: int = 4, **weights: float
) -> Phase:
    return Phase(first_step, steps, sequence, batch, weights or {"a": 1.0})


def planned(sources: PlanSources, *phases: Phase, skips: Sequence[Skip] = ()) -> DataPlan:
    """A plan of these phases."""
    segments = lay_out(phases, sources, Rules(1, False, WINDOW), skips)
    return DataPlan(1, "t" * 64, ORDER, WINDOW, segments, tuple(skips))
