"""One small set of tokens, made once, read by many tests on both kinds of store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.tokens.made import BLOCK_BYTES, copy_store, documents, whole

from eyas.store import Store, open_store


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token objects in blocks of 1 KiB, so that small ones have several."""
    monkeypatch.setattr(sys.modules["eyas.tokens.tokens_stage"], "BLOCK_BYTES", BLOCK_BYTES)


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder store with corpus, tokenizer, tokens (blocks of 1 KiB) and data plan."""
    folder = tmp_path_factory.mktemp("tokens") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["eyas.tokens.tokens_stage"], "BLOCK_BYTES", BLOCK_BYTES)
        whole(open_store(str(folder)), [documents(90, source) for source in range(3)])
    return folder


@pytest.fixture(scope="session")
def mixed_folder(tmp_path_factory: pytest.TempPathFactory, made_folder: Path) -> Path:
    """As `made_folder`, planned as a mixture: the Arabic documents, the others, and the whole of
    `made_folder`, which lies in another store."""
    folder = tmp_path_factory.mktemp("mixed") / "store"
    sources = [
        {"name": "arabic", "languages": ["ar"], "weight": 1.0},
        {"name": "rest", "weight": 2.0},
        {"name": "other", "from": str(made_folder), "weight": 0.5},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["eyas.tokens.tokens_stage"], "BLOCK_BYTES", BLOCK_BYTES)
        whole(
            open_store(str(folder)),
            [documents(90, source) for source in range(3)],
            data__sources=sources,
        )
    return folder


@pytest.fixture
def mixed(folder_store: Store, mixed_folder: Path) -> Store:
    """A copy of it in a folder."""
    copy_store(open_store(str(mixed_folder)), folder_store)
    return folder_store


@pytest.fixture
def made(store: Store, made_folder: Path) -> Store:
    """A copy of it, on both kinds of store."""
    copy_store(open_store(str(made_folder)), store)
    return store


@pytest.fixture
def made_here(folder_store: Store, made_folder: Path) -> Store:
    """A copy of it in a folder."""
    copy_store(open_store(str(made_folder)), folder_store)
    return folder_store
