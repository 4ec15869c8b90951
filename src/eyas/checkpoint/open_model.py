"""Load: a reference in, a model that answers out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from eyas.model import Model, network_from
from eyas.shape import ModelShape, parameter_table
from eyas.store import Store, manifest_versions, read_manifest
from eyas.tokens import Tokenizer, load_tokenizer
from eyas.work import progress

from .commit import Commit, read_commit, resolve
from .errors import CheckpointError
from .hf_folder import is_hf_folder, open_hf_folder
from .newest import load_newest
from .read_slices import Wanted, load_slices

__all__ = ["MASTER", "find_tokenizer", "load", "shape_of"]

MASTER = "model."

_log = logging.getLogger("eyas.checkpoint")


def load(ref: str, device: str | torch.device = "cpu") -> Model:
    """The model at `STORE[@latest|@STEP|@ATTEMPT-STEP]` or in a Hugging Face folder, float32.

    "latest" is the newest whole checkpoint: a damaged one is reported and the one before is taken.
    The tokenizer is the store's one with the digest that the commit names; a checkpoint without one
    gives a model that is asked in token ids. Raises CheckpointError, Corrupt, UsageError.
    """
    if is_hf_folder(ref):
        return _load_folder(ref, device)
    store, selector = resolve(ref)
    if selector == "latest":
        found = load_newest(store, _masters)
        if found is None:
            raise CheckpointError(f"{store.url} holds no checkpoint")
        commit, tensors = found
    else:
        commit = read_commit(store, selector)
        tensors = load_slices(store, commit, _masters(commit))
    named = {name.removeprefix(MASTER): tensor for name, tensor in tensors.items()}
    return _model(shape_of(commit), named, find_tokenizer(store, commit), device)


def shape_of(commit: Commit) -> ModelShape:
    """The network that a commit holds. Raises CheckpointError if it does not say."""
    if not isinstance(commit.facts.get("shape"), Mapping):
        raise CheckpointError(f'{commit.key} names no model: its facts have no "shape"')
    return ModelShape.from_dict(commit.facts["shape"])


def find_tokenizer(store: Store, commit: Commit) -> Tokenizer | None:
    """The tokenizer whose digest the commit names, newest manifest first; None if it names none.
    Raises CheckpointError if the store does not have it."""
    digest = commit.facts.get("tokenizer")
    if not digest:
        return None
    for version in reversed(manifest_versions(store, "tokenizer")):
        manifest = read_manifest(store, "tokenizer", version)
        if manifest is not None and manifest.facts.get("digest") == digest:
            return load_tokenizer(store, manifest)
    raise CheckpointError(
        f"{store.url}: {commit.key} was trained with the tokenizer {str(digest)[:12]}…, "
        "which this store does not hold"
    )


def _masters(commit: Commit) -> Wanted:
    names = parameter_table(shape_of(commit))
    missing = [name for name in names if MASTER + name not in commit.tensors]
    if missing:
        raise CheckpointError(
            f"{commit.key} lacks {MASTER}{missing[0]} and {len(missing) - 1} more"
        )
    return {MASTER + name: commit.tensors[MASTER + name].whole for name in names}


def _load_folder(folder: str, device: str | torch.device) -> Model:
    opened = open_hf_folder(folder)
    tensors: dict[str, torch.Tensor] = {}
    with progress("load", opened.size, unit="bytes") as advance:
        for link in opened.links.links:
            tensors |= opened.read(link)
            advance(opened.weights[link.theirs].size)
    tokenizer, why_not = opened.tokenizer()
    if why_not:
        _log.warning("%s: its tokenizer is not used: %s", folder, why_not)
    return _model(opened.shape, tensors, tokenizer, device)


def _model(shape: ModelShape, tensors: dict[str, Any], tokenizer: Any, device: Any) -> Model:
    """Moves one tensor at a time, so that a device never holds what the host has not let go."""
    for name in list(tensors):
        tensors[name] = tensors[name].to(device=device, dtype=torch.float32)
    return Model(shape, network_from(shape, tensors), tokenizer)
