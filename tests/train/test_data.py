"""What the trainer makes of its batches: documents kept apart, ranks with unequal parts, ramps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gloo import run_ranks
from tests.tokens.made import copy_store
from tests.train.conftest import recipe
from tests.train.ranks import _double_loss, double_run
from tests.train.test_parity import GROUPED, KEYS

import eyas.train.engine as engine_module
from eyas.recipe import UsageError
from eyas.shape import Layout
from eyas.store import Store, open_store, read_pieces
from eyas.tokens import make_data_plan, open_tokens, plan_digest
from eyas.train import Engine, Mesh, train

PATIENCE = 120.0
RAMP: dict[str, Any] = {
    "train__global_batch": 16 * 2,
    "train__tokens": 16 * (2 * 3 + 4 * 4),
    "data__milestones": [{"tokens": 16 * 2 * 3, "global_batch": 16 * 4}],
    "data__document_mask": True,
    "layout__micro_batch": 1,
}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """One rank in float64."""
    monkeypatch.setattr(engine_module, "projected_loss", _double_loss)
    return Engine(GROUPED, Mesh(Layout(1, 1, 2)), KEYS, torch.float64)


def test_with_the_mask_packed_documents_are_what_they_are_alone(engine: Engine) -> None:
    """Three documents in a row, then padding; and a row that goes on with the last of them."""
    ids = torch.randint(0, 97, (2, 25), generator=torch.Generator().manual_seed(3))
    documents = torch.tensor([[0] * 7 + [1] * 5 + [2] * 9 + [-1] * 4, [2] * 10 + [3] * 15])
    mask = torch.ones(2, 24, dtype=torch.bool)
    mask[0, 20:] = False
    packed = engine.evaluate(ids, mask, documents)
    alone = [0.0, 0]
    for row, first, stop in ((0, 0, 7), (0, 7, 12), (0, 12, 20), (1, 0, 10), (1, 10, 24)):
        piece = ids[row : row + 1, first : stop + 1]
        loss, count = engine.evaluate(piece, torch.ones(1, stop - first, dtype=torch.bool))
        alone = [alone[0] + loss, alone[1] + count]
    assert packed[1] == alone[1]
    assert packed[0] == pytest.approx(alone[0], rel=1e-12)
    assert engine.evaluate(ids, mask)[0] != pytest.approx(packed[0], rel=1e-6)


def test_a_step_on_nothing_but_padding_changes_nothing_but_decay(engine: Engine) -> None:
    ids, mask = torch.zeros(2, 25, dtype=torch.int64), torch.zeros(2, 24, dtype=torch.bool)
    before = engine.masters.weights.clone()
    done = engine.step(0, ids, mask, 0.0, [3.0], torch.full((2, 25), -1))
    assert (done.loss, done.tokens, done.grad_norm, done.sums) == (0.0, 0, 0.0, (3.0,))
    assert torch.equal(engine.masters.weights, before)


def _run(tokens_folder: Path, folder: Path, world: int, **keys: Any) -> tuple[Store, list[float]]:
    """The loss of every step of a run in float64."""
    store = open_store(str(folder / f"{world}"))
    copy_store(open_store(str(tokens_folder)), store)
    made = recipe(store, layout__data=world, **keys)
    make_data_plan(made, store)
    results = run_ranks(double_run, world, store.url, made.to_toml(), timeout=PATIENCE)
    expected = plan_digest(open_tokens(store), 0, open_tokens(store).steps)
    assert {result["digest"] for result in results} == {f"{expected:016x}"}
    return store, [record["loss"] for record in read_pieces(store, "metrics")]


def test_unequal_parts_a_ramp_and_a_rank_without_rows_come_to_the_same(
    tokens_folder: Path, tmp_path: Path
) -> None:
    """Two sequences a step, then four, on one rank and on three."""
    alone, losses = _run(tokens_folder, tmp_path, 1, **RAMP)
    assert [s.batch for s in open_tokens(alone).plan.segments] == [2, 4]
    assert len(losses) == 7
    _, shared = _run(tokens_folder, tmp_path, 3, **RAMP, data__ragged=True)
    assert shared == pytest.approx(losses, rel=1e-9)


def test_the_recipe_s_document_mask_reaches_the_network(folder_run: Store, tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"))
    copy_store(folder_run, other)
    masked = recipe(other, data__document_mask=True)
    make_data_plan(masked, other)
    with_mask, without = train(masked, other), train(recipe(folder_run), folder_run)
    assert with_mask.digest == without.digest
    assert with_mask.first_loss != without.first_loss
    assert with_mask.validation_loss != without.validation_loss


def test_a_later_batch_that_the_ranks_do_not_divide_is_refused_before_the_first_step(
    folder_run: Store,
) -> None:
    keys = RAMP | {"data__milestones": [{"tokens": 16 * 2 * 3, "global_batch": 16 * 3}]}
    made = recipe(folder_run, **keys, train__warmup_tokens=0)
    make_data_plan(made, folder_run)
    tokens = open_tokens(folder_run)
    tokens.check_world(1)
    with pytest.raises(UsageError, match=r"3 sequences .* 2 data-parallel ranks"):
        tokens.check_world(2)
    open_tokens(folder_run, ragged=True).check_world(2)
