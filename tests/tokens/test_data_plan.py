"""Promises of the data plan."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from tests.tokens.made import copy_store, documents, recipe, whole

from eyas.recipe import DataSource, EyasError, Milestone, Recipe, UsageError
from eyas.store import Corrupt, Store, commit_manifest, open_store, read_manifest, seal
from eyas.tokens import DataPlan, Segment, Source, make_data_plan, read_data_plan
from eyas.tokens.data_plan import check_recipe_plan
from eyas.tokens.plan_sources import plan_tokens


def test_it_says_steps_batch_and_epoch(made: Store) -> None:
    plan = read_data_plan(made)
    manifest = read_manifest(made, "tokens")
    assert manifest is not None
    assert (plan.version, plan.steps) == (1, 40)
    assert plan.tokens == 40 * 384
    assert plan.tokenizer == manifest.facts["tokenizer"]
    (segment,) = plan.segments
    assert (segment.sequence, segment.batch, segment.seed) == (32, 12, 1)
    (source,) = segment.sources
    assert (source.name, source.store, source.part) == ("corpus", "", "corpus")
    assert (source.tokens, source.tokens_version) == (manifest.identity, manifest.version)
    assert source.epoch_tokens == manifest.facts["tokens"]["train"]
    assert source.epoch_tokens / 32 <= source.samples
    assert plan.epochs() == {"corpus": 480 / source.samples}
    assert plan.notes() == []


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


def test_a_plan_of_another_format_is_refused_and_passed_over(made_here: Store) -> None:
    before = read_data_plan(made_here)
    made_here.put("data/plan-000001.json", seal({"format": 1, "segments": []}))
    with pytest.raises(EyasError, match="has format 1, this version of eyas reads 2 and no other"):
        read_data_plan(made_here)
    plan = make_data_plan(recipe(made_here), made_here)
    assert (plan.version, plan.digest) == (2, before.digest)


def test_the_document_mask_is_part_of_the_plan_and_ragged_is_not(made_here: Store) -> None:
    before = read_data_plan(made_here)
    assert make_data_plan(recipe(made_here, data__ragged=True), made_here) == before
    masked = make_data_plan(recipe(made_here, data__document_mask=True), made_here)
    assert (masked.version, masked.segments[0].document_mask) == (2, True)
    assert not masked.agrees(before, 1)
    assert masked.agrees(before, 0)


def _asking(made: Recipe, **data: Any) -> Recipe:
    """A recipe with other keys of `[data]`."""
    return dataclasses.replace(made, data=dataclasses.replace(made.data, **data))


def _mixed(store: Store, other: Store, weight: float = 0.25, epochs: float = 0) -> Recipe:
    """This store's corpus and another store's tokens."""
    theirs = DataSource("other", other.url, weight=weight, epochs=epochs)
    return _asking(recipe(store), sources=(theirs, DataSource("corpus")))


@pytest.fixture
def other(made_folder: Path, tmp_path: Path) -> Store:
    """Another store with tokens by the same tokenizer."""
    target = open_store(str(tmp_path / "other"))
    copy_store(open_store(str(made_folder)), target)
    return target


def test_tokens_of_another_store_are_used_where_they_lie_and_verified(
    made_here: Store, other: Store
) -> None:
    plan = make_data_plan(_mixed(made_here, other), made_here)
    theirs, ours = plan.segments[0].sources
    assert (theirs.store, theirs.part, ours.store) == (other.url, "corpus", "")
    assert (theirs.count, ours.count) == (2**18 * 4 // 5, 2**20 - 2**18 * 4 // 5)
    found = plan_tokens(made_here, plan.segments[0].sources)
    assert {name: at.store.url for name, at in found.items()} == {
        "other": other.url,
        "corpus": made_here.url,
    }
    manifest = read_manifest(other, "tokens")
    assert manifest is not None
    other.delete(["tokens/manifest-000001.json"])
    commit_manifest(other, dataclasses.replace(manifest, code="another"))
    with pytest.raises(Corrupt, match=r'source "other".*CRC32C'):
        plan_tokens(made_here, plan.segments[0].sources)
    other.delete(["tokens/manifest-000001.json"])
    with pytest.raises(EyasError, match="is not there any more"):
        plan_tokens(made_here, plan.segments[0].sources)


def test_all_sources_may_come_from_another_store(folder_store: Store, other: Store) -> None:
    plan = make_data_plan(recipe(folder_store, data__from=other.url), folder_store)
    (source,) = plan.segments[0].sources
    assert (source.name, source.store, source.count) == ("corpus", other.url, 2**20)


def test_a_store_named_from_the_current_folder_is_found_from_any_other(
    folder_store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(other.url)
    monkeypatch.chdir(here.parent)
    make_data_plan(recipe(folder_store, data__from=f"./{here.name}"), folder_store)
    monkeypatch.chdir(tmp_path)
    plan = read_data_plan(folder_store)
    assert plan_tokens(folder_store, plan.segments[0].sources)["corpus"].store.url == other.url


def test_a_source_that_a_store_does_not_have_is_named_with_those_it_has(made_here: Store) -> None:
    asked = _asking(recipe(made_here), sources=(DataSource("web"),))
    with pytest.raises(UsageError, match='have no source "web" but corpus'):
        make_data_plan(asked, made_here)


def test_tokens_of_two_tokenizers_are_refused_with_both_named(
    made_here: Store, tmp_path: Path
) -> None:
    other = open_store(str(tmp_path / "other"))
    whole(other, [documents(40, 9)], tokenizer__vocab_size=520, data__epochs=99)
    with pytest.raises(UsageError, match=r'source "corpus" .* made by tokenizer .* of "other"'):
        make_data_plan(_mixed(made_here, other), made_here)


def test_a_source_may_be_added_to_a_run_that_has_begun(made_here: Store, other: Store) -> None:
    before = read_data_plan(made_here)
    late = (Milestone(tokens=3840, weights={"other": 1.0}),)
    asked = _asking(_mixed(made_here, other, weight=0), milestones=late)
    plan = make_data_plan(asked, made_here)
    assert [s.first_step for s in plan.segments] == [0, 10]
    assert plan.agrees(before, 10)
    assert not plan.agrees(before, 11)


def test_what_a_source_lacks_is_a_note_and_a_warning(
    made_here: Store, other: Store, caplog: pytest.LogCaptureFixture
) -> None:
    plan = make_data_plan(_mixed(made_here, other, epochs=0.2), made_here)
    (note,) = plan.notes()
    assert note in caplog.text
    assert 'source "other" has been seen 0.' in note
    assert plan.epochs()["other"] <= 0.2
    assert read_data_plan(made_here) == plan


def _plan(*segments: Segment) -> DataPlan:
    return DataPlan(1, "d", "feistel-blocks-2", 32, segments)


def _segment(**changes: object) -> Segment:
    source = Source("a", "", "a", "t", 1, "c", 1.0, 2**20, 4.0, 100_000, 1000)
    segment = Segment(0, 10, 0, 0, 32, 4, 1, False, 0, (source,))
    return dataclasses.replace(segment, **changes)  # type: ignore[arg-type]


def test_segments_follow_each_other_and_skipped_samples_are_jumped_over() -> None:
    first = _segment()
    second = _segment(
        first_step=10,
        steps=5,
        first_sample=44,
        tokens_seen=10 * 4 * 32,
        batch=6,
        skipped=((50, 52), (55, 56), (90, 99)),
    )
    plan = _plan(first, second)
    assert (plan.steps, plan.tokens) == (15, 10 * 4 * 32 + 5 * 6 * 32)
    assert plan.segment(9) is first
    assert plan.segment(10) is second
    assert first.numbers(9).tolist() == [36, 37, 38, 39]
    assert second.numbers(10).tolist() == [44, 45, 46, 47, 48, 49]
    assert second.numbers(11).tolist() == [52, 53, 54, 56, 57, 58]
    assert second.numbers(12).tolist() == [59, 60, 61, 62, 63, 64]
    assert [second.sample_after(step) for step in (10, 11, 12)] == [44, 50, 59]


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_plan_is_named_with_the_steps_there_are(step: int) -> None:
    with pytest.raises(UsageError, match=f"step {step} is not in data plan 1, .* steps 0 to 9"):
        _plan(_segment()).segment(step)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"sequence": 16},
        {"batch": 5},
        {"document_mask": True},
        {"origin": -4},
        {"skipped": ((12, 13),)},
        {"sources": (dataclasses.replace(_segment().sources[0], tokens="u"),)},
        {"sources": (dataclasses.replace(_segment().sources[0], first=4),)},
    ],
)
def test_plans_that_differ_in_a_step_that_was_done_do_not_agree(changes: dict[str, Any]) -> None:
    plan, other = _plan(_segment()), _plan(_segment(**changes))
    assert plan.agrees(plan, 10)
    assert not plan.agrees(other, 10)
    assert plan.agrees(other, 0)


def test_plans_agree_however_they_are_cut_lengthened_or_weighed_for_nothing() -> None:
    plan = _plan(_segment())
    assert plan.agrees(_plan(_segment(steps=90)), 10)
    cut = _plan(_segment(steps=4), _segment(first_step=4, steps=6, first_sample=16))
    assert plan.agrees(cut, 10)
    (source,) = plan.segments[0].sources
    more = dataclasses.replace(source, name="b", tokens="u", weight=1.0, count=0)
    assert plan.agrees(_plan(_segment(sources=(more, source))), 10)
    assert not plan.agrees(_plan(_segment(steps=4)), 10), "a step that is not in the plan"


def test_a_plan_is_what_its_recipe_asks_for_or_the_difference_is_told(made_here: Store) -> None:
    plan = read_data_plan(made_here)
    check_recipe_plan(recipe(made_here), plan)
    with pytest.raises(UsageError, match=r"data plan 1 has steps 40 instead of 41; run `eyas tok"):
        check_recipe_plan(recipe(made_here, train__tokens=384 * 41), plan)
    later = (Milestone(tokens=3840, global_batch=768),)
    ramp = _asking(recipe(made_here), milestones=later)
    with pytest.raises(UsageError, match="steps 40 instead of 10"):
        check_recipe_plan(ramp, plan)
    check_recipe_plan(ramp, make_data_plan(ramp, made_here))
