"""Runs under a data plan that changes: skips, rewinds, ramps."""

from __future__ import annotations

import dataclasses

import pytest
from tests.gloo import run_ranks
from tests.tokens.made import copy_store
from tests.train.conftest import STEPS, recipe
from tests.train.ranks import whole_run

from eyas.checkpoint import list_commits, newest_whole
from eyas.cli.main import main
from eyas.recipe import Milestone, UsageError
from eyas.store import Corrupt, Store, open_store, read_pieces
from eyas.tokens import (
    make_data_plan,
    open_tokens,
    plan_digest,
    read_data_plan,
    skip_samples,
)
from eyas.train import run_report, train

PATIENCE = 120.0


def _digest(store: Store, *parts: tuple[int, int, int]) -> int:
    """What steps `first` to `stop` - 1 of plan versions consume in all."""
    found = (plan_digest(open_tokens(store, version), a, b) for version, a, b in parts)
    return sum(found) % 2**64


def test_a_run_goes_on_under_a_plan_that_skips_what_is_to_come(folder_run: Store) -> None:
    stop = iter([False, False, False, True])
    train(recipe(folder_run), folder_run, stop=lambda: next(stop))
    skip_samples(folder_run, 60, 66, 4)
    result = train(recipe(folder_run), folder_run)
    assert (result.complete, result.steps, result.samples) == (True, STEPS, STEPS * 12)
    assert result.digest == _digest(folder_run, (1, 0, 4), (2, 4, STEPS))
    assert result.digest == _digest(folder_run, (2, 0, STEPS))
    assert result.digest != _digest(folder_run, (1, 0, STEPS))


def test_a_rewind_goes_back_to_a_checkpoint_before_it_and_skips(
    folder_run: Store, caplog: pytest.LogCaptureFixture
) -> None:
    mine = recipe(folder_run)
    first = train(mine, folder_run)
    assert [c.step for c in list_commits(folder_run)] == [3, 6, 8]
    skip_samples(folder_run, 60, 66, 5)
    assert run_report(mine, folder_run) is None
    result = train(mine, folder_run)
    assert "goes back to step 5" in caplog.text
    assert (result.complete, result.attempts) == (True, 2)
    assert result.digest == _digest(folder_run, (2, 0, STEPS)) != first.digest
    assert [r["step"] for r in read_pieces(folder_run, "metrics/000002")] == [3, 4, 5, 6, 7]
    assert run_report(mine, folder_run) == result


def test_a_rewind_to_before_every_checkpoint_begins_anew(
    folder_run: Store, caplog: pytest.LogCaptureFixture
) -> None:
    mine = recipe(folder_run)
    stop = iter([False, False, False, True])
    train(mine, folder_run, stop=lambda: next(stop))
    assert [c.step for c in list_commits(folder_run)] == [3, 4]
    skip_samples(folder_run, 30, 33, 2)
    result = train(mine, folder_run)
    assert "the run begins anew" in caplog.text
    assert (result.complete, result.steps, result.samples) == (True, STEPS, STEPS * 12)
    assert result.digest == _digest(folder_run, (2, 0, STEPS))
    assert [r["step"] for r in read_pieces(folder_run, "metrics/000002")] == list(range(STEPS))


def test_a_rewind_does_not_begin_anew_because_the_checkpoint_before_it_is_damaged(
    folder_run: Store,
) -> None:
    mine = recipe(folder_run)
    stop = iter([False, False, False, True])
    train(mine, folder_run, stop=lambda: next(stop))
    oldest = list_commits(folder_run)[0]
    folder_run.put(oldest.key, folder_run.get(oldest.key)[:-9])
    skip_samples(folder_run, 40, 43, 3)
    with pytest.raises(Corrupt, match="none of them is whole"):
        train(mine, folder_run)


def test_a_plan_that_is_amended_while_ranks_start_is_the_same_for_all(folder_run: Store) -> None:
    text = recipe(folder_run, layout__data=2).to_toml()
    results = run_ranks(whole_run, 2, folder_run.url, text, "amend", timeout=PATIENCE)
    assert read_data_plan(folder_run).version == 2
    expected = _digest(folder_run, (1, 0, STEPS))
    assert {result["digest"] for result in results} == {f"{expected:016x}"}
    newest = newest_whole(folder_run)
    assert newest is not None
    assert newest.facts["data_plan"] == 1


def test_the_command_says_where_the_run_goes_on(
    folder_run: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    train(recipe(folder_run), folder_run)
    skip = ["tokens", folder_run.url, "skip", "--samples"]
    assert main([*skip, "60:66"]) == 2
    assert "has done all 8 steps of its plan" in capsys.readouterr().err
    assert main([*skip, "60:66", "--from-step", "5"]) == 0
    assert "is at step 8 and goes back to a checkpoint of step 5 or before" in (
        capsys.readouterr().out
    )
    assert main([*skip, "30:33", "--from-step", "2"]) == 0
    assert "is at step 8 and begins anew" in capsys.readouterr().out


def test_a_plan_that_differs_without_a_rewind_is_still_refused(folder_run: Store) -> None:
    train(recipe(folder_run), folder_run)
    make_data_plan(recipe(folder_run, data__seed=9), folder_run)
    skip_samples(folder_run, 60, 66, 5)
    with pytest.raises(UsageError, match="differs from plan 1"):
        train(recipe(folder_run, data__seed=9), folder_run)


def test_batch_and_sequence_may_grow_in_a_run(
    tmp_path_factory: pytest.TempPathFactory, folder_run: Store
) -> None:
    plain = recipe(folder_run, data__epochs=9)
    ramp = (Milestone(tokens=384, global_batch=384), Milestone(tokens=1152, sequence=32))
    mine = dataclasses.replace(plain, data=dataclasses.replace(plain.data, milestones=ramp))
    plan = make_data_plan(mine, folder_run)
    assert [(s.first_step, s.batch, s.sequence) for s in plan.segments] == [
        (0, 12, 16),
        (2, 24, 16),
        (4, 12, 32),
    ]
    whole = open_store(str(tmp_path_factory.mktemp("ramp") / "store"))
    copy_store(folder_run, whole)
    stop = iter([False, False, True])
    train(mine, folder_run, stop=lambda: next(stop))
    result = train(mine, folder_run)
    undisturbed = train(mine, whole)
    assert (result.complete, result.steps) == (True, plan.steps)
    assert result.digest == undisturbed.digest == _digest(whole, (plan.version, 0, plan.steps))
    assert result.last_loss == undisturbed.last_loss
