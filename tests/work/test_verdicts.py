"""Which death blames an item, which a shard, and which nobody; and that a verdict stands."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.store import Store
from eyas.work import Refusal, Stage, refusals
from eyas.work.verdicts import DEATHS, RUNNING, Death, commit_refusal, hopeless, refuse

STAGE = Stage("watched", 1, "m:f", {"limit": 3})
RAN = Refusal("ran_away", 3.0, "past 3 CPU seconds")


def at(item: str | None, how: str = "SIGKILL") -> Death:
    return Death(how, item, 3.0)


def test_an_item_that_ran_past_its_cpu_seconds_is_refused_at_once() -> None:
    assert refuse([at("a", "SIGPROF")]) == RAN


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "exit code 1"])
def test_an_item_that_crashed_its_worker_twice_is_refused(how: str) -> None:
    assert refuse([at("a", how)]) is None
    assert refuse([at("a", how)] * 2) == Refusal("killed_worker", 2, f"{how}, 2 times")


def test_an_item_whose_worker_was_killed_three_times_is_refused() -> None:
    assert refuse([at("a")] * 2) is None
    assert refuse([at("a")] * 3) == Refusal("killed_worker", 3, "SIGKILL, 3 times")
    assert refuse([at("a", "SIGSEGV"), at("a"), at("a", "SIGSEGV")]) == Refusal(
        "killed_worker", 3, "SIGSEGV, 3 times"
    )


@pytest.mark.parametrize("how", ["SIGTERM", "exit code 143", "the loss of its machine"])
def test_an_end_that_somebody_asked_for_blames_no_item(how: str) -> None:
    assert refuse([at("a", how)] * (DEATHS - 1)) is None


def test_a_death_elsewhere_acquits() -> None:
    assert refuse([at("a"), at("a"), at("b"), at("a")]) is None
    assert refuse([at("a", "SIGSEGV"), at(None), at("a", "SIGSEGV")]) is None


def test_a_death_outside_items_blames_none() -> None:
    assert refuse([at(None, "SIGSEGV")] * 30) is None
    assert refuse([at(None, "SIGPROF")]) is None


def test_a_shard_is_given_up_after_eight_deaths_running_outside_items_or_forty_in_all() -> None:
    assert not hopeless([at(None)] * (RUNNING - 1))
    assert "died 8 times, last by SIGKILL" in hopeless([at(None)] * RUNNING)
    assert not hopeless([*[at(None)] * (RUNNING - 1), at("a"), at(None)])
    assert "died 40 times" in hopeless([at(str(n)) for n in range(DEATHS)])


@given(st.integers(0, 2**32))
def test_kills_at_random_among_a_thousand_items_refuse_none(seed: int) -> None:
    draw = random.Random(seed)
    deaths = [at(str(draw.randrange(1000))) for _ in range(DEATHS - 1)]
    for count in range(1, DEATHS):
        refusal = refuse(deaths[:count])
        same = len({d.item for d in deaths[max(0, count - 3) : count]}) == 1 and count >= 3
        assert (refusal is not None) == same
        assert not hopeless(deaths[:count])


def test_the_first_verdict_on_an_item_stands(store: Store) -> None:
    commit_refusal(store, STAGE, "s0", "a", RAN)
    commit_refusal(store, STAGE, "s0", "a", Refusal("killed_worker", 2, "SIGSEGV, 2 times"))
    commit_refusal(store, STAGE, "s1", "ب/?\ud800", RAN)
    assert refusals(store, STAGE) == {"a": RAN, "ب/?\ud800": RAN}


def test_a_verdict_holds_for_one_stage_version_and_settings(folder_store: Store) -> None:
    commit_refusal(folder_store, STAGE, "s0", "a", RAN)
    again = Stage("watched", 1, "other:place", {"limit": 3})
    assert refusals(folder_store, again) == {"a": RAN}
    for other in (
        Stage("watched", 2, "m:f", {"limit": 3}),
        Stage("watched", 1, "m:f", {"limit": 4}),
        Stage("other", 1, "m:f", {"limit": 3}),
    ):
        assert refusals(folder_store, other) == {}


def test_a_damaged_verdict_is_not_followed_and_is_written_anew(
    folder_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    commit_refusal(folder_store, STAGE, "s0", "a", RAN)
    (info,) = folder_store.list("work/")
    folder_store.put(info.key, folder_store.get(info.key).replace(b'"a"', b'"b"'))
    assert refusals(folder_store, STAGE) == {}
    assert f"verdict {info.key} is damaged" in caplog.text
    commit_refusal(folder_store, STAGE, "s0", "a", RAN)
    assert refusals(folder_store, STAGE) == {"a": RAN}
