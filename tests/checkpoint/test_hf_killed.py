"""What is left of an import and of an export that were killed: nothing that looks whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from eyas.checkpoint import (
    CheckpointError,
    export_hf,
    import_hf,
    list_commits,
    load,
    load_slices,
)
from eyas.store import Store, open_store

from .networks import SHAPES, make_tokenizer, put_tokenizer, save_model, weights

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(str(tmp_path_factory.mktemp("trained") / "store"))
    put_tokenizer(store, make_tokenizer())
    save_model(store, SHAPES["falcon-40b"], make_tokenizer())
    return store


@pytest.fixture(scope="module")
def exported(trained: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_hf(trained.url, tmp_path_factory.mktemp("exported") / "hf").folder


def killed(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.checkpoint.hf_killed", *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("point", ["middle", "index", "tokenizer", "commit"])
def test_an_import_that_is_killed_commits_nothing_and_can_be_done_again(
    exported: Path, tmp_path: Path, point: str
) -> None:
    store = open_store(str(tmp_path / "store"))
    killed("import", str(exported), store.url, point)
    assert any("attempts" in o.key for o in store.list())
    assert list_commits(store) == []
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load(store.url)
    commit = import_hf(exported, store)
    found = load_slices(store, commit, {n: i.whole for n, i in commit.tensors.items()})
    expected = weights(SHAPES["falcon-40b"])
    assert found.keys() == {f"model.{name}" for name in expected}
    assert all(torch.equal(found[f"model.{n}"], t) for n, t in expected.items())
    assert load(store.url).tokenizer is not None


@pytest.mark.parametrize("point", ["middle", "compare", "sums", "rename"])
def test_an_export_that_is_killed_leaves_no_folder_and_can_be_done_again(
    trained: Store, tmp_path: Path, point: str
) -> None:
    killed("export", trained.url, str(tmp_path / "out"), point)
    left = [p.name for p in tmp_path.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".tmp-out-")
    report = export_hf(trained.url, tmp_path / "out")
    ids = [[1, 2, 3, 4]]
    assert torch.equal(load(str(report.folder)).logits(ids), load(trained.url).logits(ids))
