"""Promises of the data plan."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.tokens.made import recipe

from eyas.recipe import EyasError, UsageError
from eyas.store import Corrupt, Store, open_store, read_manifest
from eyas.tokens import DataPlan, Segment, Source, make_data_plan, read_data_plan


def test_it_says_steps_batch_and_epoch(made: Store) -> None:
    plan = read_data_plan(made)
    manifest = read_manifest(made, "tokens")
    assert manifest is not None
    assert (plan.version, plan.steps) == (1, 40)
    assert (plan.tokens, plan.tokens_version) == (manifest.identity, manifest.version)
    assert plan.tokenizer == manifest.facts["tokenizer"]
    (segment,) = plan.segments
    assert (segment.sequence, segment.batch, segment.seed) == (32, 12, 1)
    (source,) = segment.sources
    assert source.tokens == manifest.facts["tokens"]["train"]
    assert source.tokens / 32 <= source.samples


def test_the_same_content_is_no_new_version_and_a_change_is_one(made: Store) -> None:
    assert make_data_plan(recipe(made), made) == read_data_plan(made, 1)
    second = make_data_plan(recipe(made, data__seed=2), made)
    assert second.version == 2
    assert second.digest != read_data_plan(made, 1).digest
    assert make_data_plan(recipe(made, data__seed=2), made) == second == read_data_plan(made)
    third = make_data_plan(recipe(made), made)
    assert third.version == 3
    assert third.digest == read_data_plan(made, 1).digest


def test_of_sixteen_that_race_for_a_version_each_content_wins_one(made: Store) -> None:
    barrier = Barrier(16)

    def race(seed: int) -> DataPlan:
        store = open_store(made.url) if "://" not in made.url else made
        mine = recipe(store, data__seed=seed)
        barrier.wait()
        return make_data_plan(mine, store)

    with ThreadPoolExecutor(16) as pool:
        plans = list(pool.map(race, range(100, 116)))
    assert sorted(p.version for p in plans) == list(range(2, 18))
    for plan in plans:
        assert read_data_plan(made, plan.version) == plan


def test_sixteen_that_want_the_same_share_one_version(made: Store) -> None:
    barrier = Barrier(16)

    def race(_: int) -> DataPlan:
        mine = recipe(made, data__seed=7)
        barrier.wait()
        return make_data_plan(mine, made)

    with ThreadPoolExecutor(16) as pool:
        plans = list(pool.map(race, range(16)))
    assert {p.version for p in plans} == {2}
    assert [o.key for o in made.list("data/")] == ["data/plan-000001.json", "data/plan-000002.json"]


def test_too_many_epochs_are_refused_with_both_numbers_and_a_legal_one(made_here: Store) -> None:
    with pytest.raises(UsageError, match=r"needs \d+\.\d\d epochs .* allows 1") as caught:
        make_data_plan(recipe(made_here, data__epochs=1, train__tokens="10M"), made_here)
    most = int(str(caught.value).split("set train.tokens to ")[1].split()[0])
    legal = recipe(made_here, data__epochs=1, train__tokens=most)
    assert make_data_plan(legal, made_here).steps == most // 384
    with pytest.raises(UsageError, match="epochs"):
        make_data_plan(recipe(made_here, data__epochs=1, train__tokens=most + 384), made_here)


def test_what_is_missing_says_what_to_run(folder_store: Store) -> None:
    with pytest.raises(EyasError, match="no tokens"):
        make_data_plan(recipe(folder_store), folder_store)
    with pytest.raises(EyasError, match="no data plan"):
        read_data_plan(folder_store)


def test_a_damaged_plan_is_not_believed(made_here: Store) -> None:
    key = "data/plan-000001.json"
    made_here.put(key, made_here.get(key).replace(b'"batch":12', b'"batch":13'))
    with pytest.raises(Corrupt, match=key):
        read_data_plan(made_here)


def test_a_damaged_plan_is_passed_over_by_the_next_version(made_here: Store) -> None:
    key = "data/plan-000001.json"
    before = read_data_plan(made_here)
    made_here.put(key, made_here.get(key).replace(b'"batch":12', b'"batch":13'))
    plan = make_data_plan(recipe(made_here), made_here)
    assert (plan.version, plan.digest) == (2, before.digest)
    assert read_data_plan(made_here) == plan


def _segment(**changes: object) -> Segment:
    source = Source("train", 1.0, 100_000, 1000)
    segment = Segment(0, 10, 0, 0, 32, 4, 1, (source,))
    return dataclasses.replace(segment, **changes)  # type: ignore[arg-type]


def test_segments_follow_each_other_and_skipped_samples_are_jumped_over() -> None:
    first = _segment()
    second = _segment(
        first_step=10, steps=5, first_sample=44, batch=6, skipped=((50, 52), (55, 56), (90, 99))
    )
    plan = DataPlan(2, "t", 1, "d", "feistel-blocks-1", 32, (first, second))
    assert plan.steps == 15
    assert plan.segment(9) is first
    assert plan.segment(10) is second
    assert first.samples(9) == [36, 37, 38, 39]
    assert second.samples(10) == [44, 45, 46, 47, 48, 49]
    assert second.samples(11) == [52, 53, 54, 56, 57, 58]
    assert second.samples(12) == [59, 60, 61, 62, 63, 64]


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_plan_is_named_with_the_steps_there_are(step: int) -> None:
    plan = DataPlan(1, "t", 1, "d", "feistel-blocks-1", 32, (_segment(),))
    with pytest.raises(UsageError, match=f"step {step} is not in data plan 1, .* steps 0 to 9"):
        plan.segment(step)
