"""A store with a small corpus, tokenizer, tokens and data plan, made once, copied for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tokens.made import copy_store, documents, whole

from eyas.recipe import Recipe
from eyas.store import Store, open_store

torch.set_num_threads(1)

STEPS = 8
KEYS = {
    "data.sequence": 16,
    "train.global_batch": 16 * 12,
    "train.tokens": 16 * 12 * STEPS,
    "train.lr": 3e-3,
    "train.lr_min": 1e-3,
    "train.checkpoint_every": 3,
    "model.preset": "nano-1m",
    "model.n_layers": 2,
    "model.d_model": 32,
    "model.n_heads": 4,
    "model.n_kv_heads": 1,
    "model.head_dim": 8,
    "model.d_ff": 64,
    "layout.micro_batch": 3,
    "cluster.threads": 1,
}


@pytest.fixture(scope="session")
def tokens_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "store"
    whole(open_store(str(folder)), [documents(90, source) for source in range(2)], **_dunder(KEYS))
    return folder


@pytest.fixture
def folder_run(tokens_folder: Path, folder_store: Store) -> Store:
    """A folder with tokens, ready to train in."""
    copy_store(open_store(str(tokens_folder)), folder_store)
    return folder_store


@pytest.fixture
def run_store(tokens_folder: Path, store: Store) -> Store:
    """The same on both kinds of store."""
    copy_store(open_store(str(tokens_folder)), store)
    return store


def recipe(store: Store, **keys: object) -> Recipe:
    """The recipe of the runs in these tests, `a__b` overriding `a.b`."""
    base = {"tokenizer.vocab_size": 512, "tokenizer.reserved": 16}
    text = f'name = "t"\nstore = "{store.url}"'
    changed = {name.replace("__", "."): value for name, value in keys.items()}
    return Recipe.parse(text, "test", base | KEYS | changed)


def _dunder(keys: dict[str, object]) -> dict[str, object]:
    return {name.replace(".", "__"): value for name, value in keys.items()}
