"""Whole runs: what they leave in the store, and that no death changes what they come to."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gloo import Outcome, outcomes, run_ranks
from tests.tokens.made import copy_store
from tests.train.conftest import STEPS, recipe
from tests.train.ranks import whole_run

from eyas.checkpoint import (
    Fenced,
    latest_attempt,
    list_commits,
    load_slices,
    read_commit,
    take_attempt,
)
from eyas.recipe import Recipe, UsageError
from eyas.store import Store, StoreError, open_store, read_pieces
from eyas.tokens import Batch, Stream, make_data_plan, open_tokens, plan_digest
from eyas.train import NonFinite, run_rank, run_report, train
from eyas.train.metrics import Metrics

PATIENCE = 120.0
COUNTED = ("digest", "tokens", "samples", "first_loss", "last_loss", "validation_loss", "complete")
LAYOUTS = {"dp2": (1, 2), "tp2": (2, 1), "dp2tp2": (2, 2)}


def _recipe(store: Store, layout: str, **keys: object) -> Recipe:
    tensor, data = LAYOUTS.get(layout, (1, 1))
    return recipe(store, layout__tensor=tensor, layout__data=data, **keys)


def _world(layout: str) -> int:
    tensor, data = LAYOUTS.get(layout, (1, 1))
    return tensor * data


def _run(store: Store, layout: str, **keys: object) -> dict[str, Any]:
    text = _recipe(store, layout, **keys).to_toml()
    ranks = run_ranks(whole_run, _world(layout), store.url, text, timeout=PATIENCE)
    for rank in ranks:
        assert {n: rank[n] for n in COUNTED} == {n: ranks[0][n] for n in COUNTED}
    return ranks[0]


def _faulty(store: Store, layout: str, fault: str, **keys: object) -> list[Outcome]:
    text = _recipe(store, layout, **keys).to_toml()
    return outcomes(whole_run, _world(layout), store.url, text, fault, timeout=PATIENCE)


def _state(store: Store) -> dict[str, torch.Tensor]:
    """Every tensor of the newest commit."""
    commit = read_commit(store)
    return load_slices(store, commit, {name: t.whole for name, t in commit.tensors.items()})


def _losses(store: Store) -> dict[int, float]:
    """The loss of each step in its last attempt."""
    return {r["step"]: r["loss"] for r in read_pieces(store, "metrics")}


@pytest.fixture(scope="session")
def undisturbed(
    tokens_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, Any], Store]]:
    """A run from beginning to end in one attempt, for each layout."""
    done = {}
    for layout in ("one", *LAYOUTS):
        store = open_store(str(tmp_path_factory.mktemp(layout) / "store"))
        copy_store(open_store(str(tokens_folder)), store)
        done[layout] = (_run(store, layout), store)
    return done


Undisturbed = dict[str, tuple[dict[str, Any], Store]]


def test_the_loss_falls_and_every_figure_is_kept(run_store: Store) -> None:
    keys: dict[str, object] = {"train__tokens": 16 * 12 * 30, "data__epochs": 50, "train__lr": 1e-2}
    make_data_plan(_recipe(run_store, "dp2", **keys), run_store)
    report = _run(run_store, "dp2", **keys)
    assert report["last_loss"] < report["first_loss"] - 0.5
    assert report["steps"] == 30
    records = list(read_pieces(run_store, "metrics"))
    assert [r["step"] for r in records] == list(range(30))
    assert records[0]["loss"] == report["first_loss"]
    assert records[-1]["loss"] == report["last_loss"]
    assert records[-1]["digest"] == report["digest"]
    assert records[-1]["tokens"] == report["tokens"] <= 30 * 16 * 12
    assert set(records[0]["seconds"]) >= {"data", "compute", "communication", "optimizer"}
    assert report["peak_memory"] > 2**20
    assert 0 < report["validation_loss"] < report["first_loss"]
    facts = read_commit(run_store).facts
    assert (facts["complete"], facts["world"], facts["data_plan"]) == (True, 2, 2)


def test_the_digest_is_that_of_the_plan_whatever_the_layout(undisturbed: Undisturbed) -> None:
    for report, store in undisturbed.values():
        expected = plan_digest(open_tokens(store), 0, STEPS)
        assert report["digest"] == f"{expected:016x}"


def test_layouts_agree_on_the_losses(undisturbed: Undisturbed) -> None:
    alone = _losses(undisturbed["one"][1])
    for layout in LAYOUTS:
        losses = _losses(undisturbed[layout][1])
        assert losses.keys() == alone.keys()
        for step, loss in losses.items():
            assert loss == pytest.approx(alone[step], rel=1e-5), (layout, step)


def test_metrics_are_pieces_that_never_change(undisturbed: Undisturbed) -> None:
    store = undisturbed["dp2"][1]
    keys = [info.key for info in store.list("metrics/")]
    assert keys == [f"metrics/000001/{first:012d}.jsonl" for first in (0, 3, 6)]


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        ("one", "kill:0"),
        ("dp2", "kill:4"),
        ("dp2", "kill-put:0"),
        ("dp2", "kill-put:3"),
        ("tp2", "kill-put:1"),
        ("dp2tp2", "kill:4"),
    ],
)
def test_a_run_killed_anywhere_ends_with_the_same_bits(
    folder_run: Store, undisturbed: Undisturbed, layout: str, fault: str
) -> None:
    ended = _faulty(folder_run, layout, fault)
    assert ended[-1].exitcode == -9
    assert all(rank.error for rank in ended[:-1]), "the others must not hang or go on"
    report = _run(folder_run, layout)
    expected, reference = undisturbed[layout]
    assert report["attempts"] == 2
    assert {n: report[n] for n in COUNTED} == {n: expected[n] for n in COUNTED}
    assert _losses(folder_run) == _losses(reference)
    state, wanted = _state(folder_run), _state(reference)
    assert state.keys() == wanted.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, wanted[name]), name


def test_a_run_stopped_and_resumed_under_other_layouts_has_the_same_data(
    folder_run: Store, undisturbed: Undisturbed
) -> None:
    for layout, fault in [("dp2", "stop:1"), ("tp2", "stop:2")]:
        ended = _faulty(folder_run, layout, fault)
        assert [rank.result["complete"] for rank in ended] == [False] * _world(layout)
    steps = [(c.attempt, c.step) for c in list_commits(folder_run)]
    assert steps == [(1, 2), (2, 3), (2, 5)]
    report = _run(folder_run, "one")
    expected, reference = undisturbed["one"]
    for name in ("digest", "tokens", "samples"):
        assert report[name] == expected[name]
    losses = _losses(folder_run)
    for step, loss in _losses(reference).items():
        assert losses[step] == pytest.approx(loss, rel=1e-5)


def test_a_finished_run_is_left_alone(folder_run: Store, undisturbed: Undisturbed) -> None:
    report, reference = undisturbed["one"]
    copy_store(reference, folder_run)
    before = [info.key for info in folder_run.list()]
    again = train(_recipe(folder_run, "one"), folder_run)
    assert again.to_dict() == report
    assert [info.key for info in folder_run.list()] == before
    assert run_report(_recipe(folder_run, "one"), folder_run) == again


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model__n_layers", 3, "another shape"),
        ("train__lr", 1e-2, r"train.lr 0.003 \(now 0.01\)"),
        ("train__seed", 2, "train.seed 1"),
        ("train__tokens", 16 * 12 * 7, "steps 8 instead of 7"),
    ],
)
def test_a_finished_run_is_not_taken_for_another_recipes(
    folder_run: Store, undisturbed: Undisturbed, key: str, value: object, said: str
) -> None:
    copy_store(undisturbed["one"][1], folder_run)
    with pytest.raises(UsageError, match=said):
        run_report(_recipe(folder_run, "one", **{key: value}), folder_run)


def test_a_finished_run_is_not_taken_for_one_on_other_data(
    folder_run: Store, undisturbed: Undisturbed
) -> None:
    copy_store(undisturbed["one"][1], folder_run)
    other = _recipe(folder_run, "one", data__seed=2)
    make_data_plan(other, folder_run)
    with pytest.raises(UsageError, match="data plan 2 differs from plan 1"):
        run_report(other, folder_run)


def test_keys_changed_in_the_middle_of_a_run_are_told(
    folder_run: Store, caplog: pytest.LogCaptureFixture
) -> None:
    train(_recipe(folder_run, "one"), folder_run, stop=lambda: True)
    with caplog.at_level("WARNING", "eyas.train"):
        train(_recipe(folder_run, "one", train__lr=1e-2), folder_run, stop=lambda: True)
    assert "train.lr 0.003 (now 0.01) until step 1" in caplog.text


def test_nan_halts_before_the_update_and_is_not_retried(
    folder_run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = _faulty(folder_run, "dp2", "nan:4")
    assert [rank.error for rank in ended] == ["NonFinite", "NonFinite"]
    assert "step 4" in ended[0].trace
    assert [c.step for c in list_commits(folder_run)] == [3]
    assert all(bool(tensor.isfinite().all()) for tensor in _state(folder_run).values())
    assert max(_losses(folder_run)) == 3, "what was measured before is kept"
    assert NonFinite.exit_code == 93


def test_a_leftover_of_an_older_attempt_stops(folder_run: Store) -> None:
    calls = iter(range(100))

    def overtaken() -> bool:
        if next(calls) == 1:
            take_attempt(folder_run, {})
        return False

    with pytest.raises(Fenced):
        train(_recipe(folder_run, "one"), folder_run, stop=overtaken)
    assert list_commits(folder_run) == []


def test_a_run_does_not_go_on_as_another_one(
    folder_run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = train(_recipe(folder_run, "one"), folder_run, stop=lambda: True)
    assert not stopped.complete
    with pytest.raises(UsageError, match="another shape"):
        train(_recipe(folder_run, "one", model__n_layers=3), folder_run)
    with pytest.raises(UsageError, match=r"7 steps|8 instead|steps 8"):
        train(_recipe(folder_run, "one", train__tokens=16 * 12 * 7), folder_run)
    other = _recipe(folder_run, "one", data__seed=2)
    make_data_plan(other, folder_run)
    monkeypatch.setenv("EYAS_RUN_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="data plan 2 differs from plan 1"):
        run_rank(other, folder_run)
    assert (tmp_path / "rank-0.exit").read_text() == "93"


def test_ctrl_c_stops_at_a_commit_and_a_second_one_at_once(
    folder_run: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    steps = iter(range(STEPS))

    def batch_then_ctrl_c(stream: Stream[Batch]) -> Batch:
        if next(steps) == 1:
            signal.raise_signal(signal.SIGINT)
        return plain(stream)

    plain = Stream.__next__
    monkeypatch.setattr(Stream, "__next__", batch_then_ctrl_c)
    try:
        assert run_rank(_recipe(folder_run, "one"), folder_run) == 75
        assert [c.step for c in list_commits(folder_run)] == [2]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def test_a_longer_run_goes_on_from_a_finished_one(
    folder_run: Store, undisturbed: Undisturbed
) -> None:
    copy_store(undisturbed["one"][1], folder_run)
    longer = _recipe(folder_run, "one", train__tokens=16 * 12 * (STEPS + 2))
    make_data_plan(longer, folder_run)
    assert run_report(longer, folder_run) is None
    result = train(longer, folder_run)
    assert (result.steps, result.attempts, result.complete) == (STEPS + 2, 2, True)
    assert latest_attempt(folder_run) == 2
    assert f"{result.digest:016x}" != undisturbed["one"][0]["digest"]


def test_a_run_cut_short_at_a_commit_is_finished_there(
    folder_run: Store, undisturbed: Undisturbed
) -> None:
    shorter = _recipe(folder_run, "one", train__tokens=16 * 12 * 3)
    stop = iter([False, False, True])
    train(_recipe(folder_run, "one"), folder_run, stop=lambda: next(stop))
    make_data_plan(shorter, folder_run)
    too_short = _recipe(folder_run, "one", train__tokens=16 * 12 * 2)
    make_data_plan(too_short, folder_run)
    with pytest.raises(UsageError, match="differs"):
        train(too_short, folder_run)
    make_data_plan(shorter, folder_run)
    result = train(shorter, folder_run)
    assert (result.steps, result.complete) == (3, True)
    assert run_report(shorter, folder_run) == result


@pytest.mark.parametrize("preset", ["falcon-rw-1b", "jurassic-large", "llama-1b"])
def test_other_shapes_stop_as_tensor_parallel_and_go_on_as_data_parallel(
    preset: str, tokens_folder: Path, tmp_path: Path
) -> None:
    keys: dict[str, object] = {"model__preset": preset, "model__n_kv_heads": 4}
    stores = [open_store(str(tmp_path / name)) for name in ("whole", "stopped")]
    for store in stores:
        copy_store(open_store(str(tokens_folder)), store)
    alone = _run(stores[0], "one", **keys)
    stopped = _faulty(stores[1], "tp2", "stop:3", **keys)
    assert [o.exitcode for o in stopped] == [0, 0]
    assert read_commit(stores[1]).step < STEPS
    resumed = _run(stores[1], "dp2", model__licence="mit", **keys)
    assert resumed["digest"] == alone["digest"]
    assert resumed["last_loss"] == pytest.approx(alone["last_loss"], rel=1e-5)
    whole, other = _state(stores[0]), _state(stores[1])
    assert whole.keys() == other.keys()
    for name, tensor in whole.items():
        # AdamW divides by the root of what may be rounding only (all of it in the bias of a key
        # without rotary positions), so single numbers may differ more.
        assert (other[name] - tensor).norm() <= 1e-3 * tensor.norm() + 1e-4, name


class _Unwilling:
    """A store that refuses metrics a few times."""

    def __init__(self, store: Store, refusals: int) -> None:
        self._store, self._left = store, refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes) -> None:
        if self._left:
            self._left -= 1
            raise StoreError("not now")
        self._store.put(key, data)


def test_metrics_that_a_store_refuses_are_kept_for_the_next_time(folder_store: Store) -> None:
    metrics = Metrics(_Unwilling(folder_store, 1), 1, active=True)  # type: ignore[arg-type]
    metrics.add(4, loss=1.0)
    metrics.try_flush()
    metrics.add(5, loss=2.0)
    metrics.try_flush()
    assert [r["step"] for r in read_pieces(folder_store, "metrics/000001")] == [4, 5]


def test_a_damaged_commit_is_passed_over(
    folder_run: Store, undisturbed: Undisturbed, caplog: pytest.LogCaptureFixture
) -> None:
    copy_store(undisturbed["one"][1], folder_run)
    key = list_commits(folder_run)[-1].key
    folder_run.put(key, folder_run.get(key)[:-9])
    with caplog.at_level("ERROR"):
        result = train(_recipe(folder_run, "one"), folder_run)
    assert "damaged" in caplog.text
    assert json.loads(json.dumps(result.to_dict()))["digest"] == undisturbed["one"][0]["digest"]
