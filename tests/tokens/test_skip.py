"""Promises of skipping: what an operator leaves out is gone, and nothing else is."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from tests.tokens.made import recipe
from tests.tokens.planned import WINDOW, key_of, known, phase, planned

from eyas.cli import main
from eyas.recipe import EyasError, UsageError
from eyas.store import Store, read_manifest
from eyas.tokens import make_data_plan, read_data_plan
from eyas.tokens.data_plan import DataPlan, amend_data_plan
from eyas.tokens.order import ShuffledOrder
from eyas.tokens.phases import Skip
from eyas.tokens.plan_sources import PlanSources
from eyas.tokens.skip import skip_block, skip_samples
from eyas.tokens.token_objects import token_objects

PHASES = (
    phase(0, 30, a=0.6, b=0.4),
    phase(30, 30, batch=6, a=0.6, b=0.4),
    phase(60, 40, sequence=16, batch=6, a=0.3, b=0.7),
)


def _sources() -> PlanSources:
    return known({"a": [64 * 9 + 5, 64 * 6], "b": [64 * 5, 64 * 4 + 60]})


def _read(plan: DataPlan) -> list[tuple[int, str, int]]:
    """Step, source and number within it of all that is read."""
    found = []
    for step in range(plan.steps):
        segment = plan.segment(step)
        chosen = segment.selection(step)
        names = [segment.sources[s].name for s in chosen.source.tolist()]
        found += list(zip(itertools.repeat(step), names, chosen.index.tolist(), strict=False))
    return found


def _touched(plan: DataPlan, sources: PlanSources, name: str, number: int, block: int) -> int:
    """Samples of the plan that lie in a block, by asking for the place of each."""
    found = 0
    for step in range(plan.steps):
        segment = plan.segment(step)
        chosen = segment.selection(step)
        for i, source in enumerate(segment.sources):
            if source.name == name:
                order = ShuffledOrder(sources.grid(i, segment.sequence), segment.seed, WINDOW)
                places = order.places(chosen.index[chosen.source == i])
                found += int(np.sum((places.object == number) & (places.block == block)))
    return found


def test_skipped_samples_are_gone_and_what_follows_moves_up() -> None:
    sources = _sources()
    plain = planned(sources, PHASES[0])
    amended = planned(sources, PHASES[0], skips=[Skip(10, samples=(50, 57))])
    before = {n: pair for n, pair in enumerate(_numbered(plain))}
    wanted = [n for n in range(127) if not 50 <= n < 57]
    assert [n for n, _ in enumerate(_numbered(amended))] == list(range(120))
    assert _numbered(amended)[:113] == [before[n] for n in wanted if n < 120]
    assert amended.steps == plain.steps
    assert amended.agrees(plain, 10)
    assert amended.agrees(plain, 12), "step 12 is the first that has one of the samples"
    assert not amended.agrees(plain, 13)


def _numbered(plan: DataPlan) -> list[tuple[str, int]]:
    return [(name, index) for _, name, index in _read(plan)]


@pytest.mark.parametrize(("name", "number", "block"), [("a", 0, 3), ("a", 1, 5), ("b", 1, 4)])
def test_no_sample_of_a_skipped_block_is_read_from_that_step_on(
    name: str, number: int, block: int
) -> None:
    sources = _sources()
    plain = planned(sources, *PHASES)
    assert _touched(plain, sources, name, number, block) > 8, "in several epochs"
    skip = Skip(0, key=key_of(sources, name, number), block=block)
    assert _touched(planned(sources, *PHASES, skips=[skip]), sources, name, number, block) == 0
    later = planned(sources, *PHASES, skips=[Skip(45, key=skip.key, block=block)])
    assert later.agrees(plain, 45)
    until = sum(step < 45 for step, *_ in _read(plain))
    assert _read(later)[:until] == _read(plain)[:until]
    assert (
        0
        < _touched(later, sources, name, number, block)
        < _touched(plain, sources, name, number, block)
    )


def test_every_other_sample_is_still_read_once_and_in_order() -> None:
    sources = _sources()
    skip = Skip(7, key=key_of(sources, "a", 0), block=2)
    plan = planned(sources, *PHASES[:2], skips=[skip])
    first = plan.segments[0]
    order = ShuffledOrder(sources.grid(0, first.sequence), 1, WINDOW)
    samples = first.sources[0].samples
    lost = {n for epoch in range(9) for n in order.block_samples(2, epoch).tolist()}
    read = [index for _, name, index in _read(plan) if name == "a"]
    done = [index for step, name, index in _read(plan) if name == "a" and step < 7]
    assert read == [n for n in range(read[-1] + 1) if n in done or n not in lost]
    assert read[-1] > samples, "over more than an epoch"


def test_segments_know_the_ranges_and_nothing_is_skipped_twice() -> None:
    sources = _sources()
    skips = [Skip(5, samples=(30, 40)), Skip(8, samples=(35, 60)), Skip(0, samples=(38, 39))]
    plan = planned(sources, PHASES[0], skips=skips)
    ranges = [r for segment in plan.segments for r in segment.skipped]
    assert ranges == sorted(ranges)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
    for segment in plan.segments:
        assert all(segment.first_sample <= a < b < segment.stop_sample for a, b in segment.skipped)


def test_a_plan_laid_out_from_its_own_phases_is_the_same(made_here: Store) -> None:
    before = read_data_plan(made_here)
    first = skip_samples(made_here, 100, 110, 3)
    assert (first.plan.version, first.skipped) == (before.version + 1, 10)
    assert read_data_plan(made_here) == first.plan
    second = skip_samples(made_here, 200, 201, 9)
    assert second.skipped == 1
    assert second.plan.skips == (Skip(3, (100, 110)), Skip(9, (200, 201)))
    assert second.plan.agrees(first.plan, 9)
    assert before.agrees(first.plan, 8)
    assert first.plan.goes_back(before) == 3


def test_a_block_of_the_store_is_skipped_in_every_epoch(made: Store) -> None:
    manifest = read_manifest(made, "tokens")
    assert manifest is not None
    key = token_objects(manifest, "corpus", "train")[1].tokens.key
    amended = skip_block(made, key, 0, 0)
    assert amended.skipped >= 16
    assert sum(b - a for s in amended.plan.segments for a, b in s.skipped) == amended.skipped


def test_what_is_made_again_from_the_recipe_keeps_what_was_skipped(
    made_here: Store, caplog: pytest.LogCaptureFixture
) -> None:
    amended = skip_samples(made_here, 100, 110, 3).plan
    assert make_data_plan(recipe(made_here), made_here) == amended
    longer = make_data_plan(recipe(made_here, train__tokens=384 * 44), made_here)
    assert longer.skips == amended.skips
    assert longer.agrees(amended, 40)
    other = make_data_plan(recipe(made_here, data__seed=5), made_here)
    assert other.skips == ()
    assert "is not skipped any more" in caplog.text


def test_samples_that_were_consumed_before_that_step_are_refused(made_here: Store) -> None:
    with pytest.raises(UsageError, match=r"samples 30:40 .* from step 3 on, 36:480; go back"):
        skip_samples(made_here, 30, 40, 3)
    with pytest.raises(UsageError, match="400:9999"):
        skip_samples(made_here, 400, 9999, 3)
    with pytest.raises(UsageError, match="step 40 is not in data plan 1"):
        skip_samples(made_here, 479, 480, 40)
    assert read_data_plan(made_here).version == 1


def test_a_block_that_is_not_there_or_not_reached_is_refused(made_here: Store) -> None:
    with pytest.raises(UsageError, match="no token object"):
        skip_block(made_here, "tokens/nothing.tok", 0, 0)
    manifest = read_manifest(made_here, "tokens")
    assert manifest is not None
    key = token_objects(manifest, "corpus", "train")[0].tokens.key
    with pytest.raises(UsageError, match=r"has no block 999; it has blocks 0 to \d+"):
        skip_block(made_here, key, 999, 0)
    skip_block(made_here, key, 0, 0)
    with pytest.raises(UsageError, match="nothing to skip"):
        skip_block(made_here, key, 0, 0)


def test_of_two_operators_at_once_one_is_told(made_here: Store) -> None:
    plan = read_data_plan(made_here)
    amend_data_plan(made_here, plan, Skip(3, samples=(100, 110)))
    with pytest.raises(EyasError, match="data plan 2 was taken by somebody else"):
        amend_data_plan(made_here, plan, Skip(3, samples=(200, 210)))


def test_skipping_all_that_there_is_is_refused() -> None:
    sources = known({"a": [64]}, 3)
    with pytest.raises(UsageError, match="epochs"):
        planned(sources, phase(0, 2), skips=[Skip(0, key=key_of(sources, "a", 0), block=0)])


def test_the_command_takes_a_version_and_says_what_is_left_out(
    made_here: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["tokens", made_here.url]
    assert main([*tokens, "skip", "--samples", "100:110", "--from-step", "3"]) == 0
    assert capsys.readouterr().out == "data plan 2 skips 10 samples more from step 3 on\n"
    manifest = read_manifest(made_here, "tokens")
    assert manifest is not None
    key = token_objects(manifest, "corpus", "train")[0].tokens.key
    assert main([*tokens, "skip", "--block", f"{key}:1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["data_plan"], said["from_step"]) == (3, 0)
    assert said["skipped_samples"] > 0
    assert main([*tokens, "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data_plan"]["version"] == 3
    assert main([*tokens, "verify"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["skip"],
        ["skip", "--from-step", "3"],
        ["stats", "--samples", "1:2"],
        ["skip", "--samples", "1"],
        ["skip", "--block", "no-number:x"],
    ],
)
def test_what_the_command_cannot_read_is_wrong_usage(
    made_here: Store, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokens", made_here.url, *arguments]) == 2
    assert "--samples" in capsys.readouterr().err
    assert read_data_plan(made_here).version == 1
