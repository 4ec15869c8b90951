"""A stage's shards run once, whatever was interrupted, changed or damaged before."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.work.processes import alive

from eyas.recipe import UsageError
from eyas.store import ObjectRef, Store, open_store, read_object
from eyas.work import (
    Engine,
    NotYet,
    Shard,
    ShardResult,
    Stage,
    StageError,
    Workers,
    complete,
    run_stage,
    shard_key,
)

COPY = Stage("copy", 1, "tests.work.stages:copy", {"suffix": "x"})
Runs = Callable[[], Counter[str]]


def shards(count: int) -> list[Shard]:
    return [Shard(f"s{n}", params={"text": str(n)}) for n in range(count)]


ENGINE = Engine()


def run_some(
    store: Store, stage: Stage, shards: Sequence[Shard | None], engine: Engine = ENGINE
) -> list[ShardResult | None]:
    with Workers(store, engine) as workers:
        return run_stage(workers, stage, shards)


def run(
    store: Store, stage: Stage, shards: Sequence[Shard | None], engine: Engine = ENGINE
) -> list[ShardResult]:
    return complete(stage.name, run_some(store, stage, shards, engine))


def contents(store: Store, results: list[ShardResult]) -> list[bytes]:
    return [read_object(store, ref) for result in results for ref in result.objects]


def everything(store: Store, prefix: str) -> dict[str, bytes]:
    return {o.key: store.get(o.key) for o in store.list(prefix)}


def test_results_come_in_the_order_of_the_shards_and_their_objects_can_be_read(
    store: Store, runs: Runs
) -> None:
    results = run(store, COPY, shards(5), Engine(workers=2))
    assert [r.facts["text"] for r in results] == ["0", "1", "2", "3", "4"]
    assert contents(store, results)[:2] == [b"0 x", b"0 x0 x"]
    assert runs() == {f"s{n}": 1 for n in range(5)}


def test_a_finished_stage_runs_nothing_and_gives_the_same_results(store: Store, runs: Runs) -> None:
    first = run(store, COPY, shards(4), Engine(workers=2))
    runs()
    assert run(store, COPY, shards(4), Engine(workers=1)) == first
    assert not runs()


def test_three_workers_write_what_one_writes(tmp_path: Path, marks: Path) -> None:
    one, three = open_store(str(tmp_path / "one")), open_store(str(tmp_path / "three"))
    first = run(one, COPY, shards(9), Engine(workers=1))
    assert run(three, COPY, shards(9), Engine(workers=3)) == first
    assert everything(one, "out/") == everything(three, "out/")


def test_workers_killed_at_random_change_no_byte(
    store: Store, tmp_path: Path, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = open_store(str(tmp_path / "undisturbed"))
    expected = run(undisturbed, COPY, shards(20), Engine(workers=2))
    runs()
    mortal = dataclasses.replace(COPY, run="tests.work.stages:copy_but_die")
    assert run(store, mortal, shards(20), Engine(workers=3)) == expected
    assert everything(store, "out/") == everything(undisturbed, "out/")
    assert sum(runs().values()) > 25
    assert "SIGKILL" in caplog.text
    assert run(store, COPY, shards(20)) == expected
    assert not runs()


def test_a_shard_that_always_kills_its_worker_is_named_after_eight_runs(
    folder_store: Store, runs: Runs
) -> None:
    stage = Stage("deadly", 1, "tests.work.stages:always_die")
    with pytest.raises(
        StageError, match=r"stage deadly, shard s0: .*died 8 times.*SIGKILL.*memory"
    ):
        run(folder_store, stage, shards(1))
    assert runs() == {"s0": 8}


def test_an_error_names_stage_shard_and_cause_and_is_not_retried(
    folder_store: Store, runs: Runs
) -> None:
    stage = Stage("picky", 1, "tests.work.stages:fail_on_seven")
    with pytest.raises(
        StageError, match="stage picky, shard s7: ValueError: seven is not legal"
    ) as e:
        run(folder_store, stage, shards(40), Engine(workers=2))
    assert "fail_on_seven" in e.value.details
    ran = runs()
    assert ran["s7"] == 1
    assert len(ran) < 40, "no shard is handed out after the failure"
    recorded = list(folder_store.list("work/picky/"))
    assert len(recorded) == len(ran) - 1, "those that ran are recorded"


def test_a_stage_that_does_not_exist_is_an_error_that_names_it(folder_store: Store) -> None:
    with pytest.raises(StageError, match=r"stage lost: .*no_such_module"):
        run(folder_store, Stage("lost", 1, "no_such_module:run"), shards(1))


def test_only_what_changed_runs_again(folder_store: Store, runs: Runs) -> None:
    run(folder_store, COPY, shards(4))
    runs()
    run(folder_store, COPY, [*shards(4), Shard("new", params={"text": "new"})])
    assert runs() == {"new": 1}
    changed = [dataclasses.replace(shards(4)[0], params={"text": "0b"}), *shards(4)[1:]]
    run(folder_store, COPY, changed)
    assert runs() == {"s0": 1}
    run(folder_store, dataclasses.replace(COPY, settings={"suffix": "y"}), shards(4))
    assert sum(runs().values()) == 4
    run(folder_store, dataclasses.replace(COPY, version=2), shards(4))
    assert sum(runs().values()) == 4
    run(folder_store, COPY, shards(4))
    assert not runs()


def test_another_name_another_order_or_a_tuple_for_a_list_changes_nothing(
    folder_store: Store, runs: Runs
) -> None:
    stage = dataclasses.replace(COPY, settings={"suffix": "x", "list": (1, 2)})
    first = run(folder_store, stage, shards(3))
    runs()
    again = [dataclasses.replace(s, name=f"other{s.name}") for s in reversed(shards(3))]
    stage = dataclasses.replace(COPY, settings={"list": [1, 2], "suffix": "x"})
    assert run(folder_store, stage, again) == first[::-1]
    assert not runs()


def test_a_shard_key_depends_on_inputs_and_params_but_not_on_the_name() -> None:
    one = Shard("a", (ObjectRef("k", 1, "00000000"),), {"n": 1})
    assert shard_key(COPY, one) == shard_key(COPY, dataclasses.replace(one, name="b"))
    other = dataclasses.replace(one, inputs=(ObjectRef("k", 1, "00000001"),))
    assert shard_key(COPY, one) != shard_key(COPY, other)
    assert shard_key(COPY, one) != shard_key(COPY, dataclasses.replace(one, params={"n": 2}))


def test_a_damaged_record_is_done_again(
    store: Store, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(store, COPY, shards(3))
    runs()
    key = f"work/copy/{shard_key(COPY, shards(3)[1])}.json"
    store.put(key, store.get(key).replace(b'"version":1', b'"version":7'))
    assert run(store, COPY, shards(3)) == first
    assert runs() == {"s1": 1}
    assert f"{key} is damaged" in caplog.text
    run(store, COPY, shards(3))
    assert not runs()


def test_a_missing_or_shortened_object_is_made_again(
    store: Store, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(store, COPY, shards(3))
    runs()
    store.delete([first[0].objects[1].key])
    store.put(first[2].objects[0].key, b"short")
    assert run(store, COPY, shards(3)) == first
    assert runs() == {"s0": 1, "s2": 1}
    assert first[0].objects[1].key in caplog.text
    assert contents(store, first)[1] == b"0 x0 x"


def test_jobs_that_share_nothing_do_all_shards_once_and_see_what_the_others_did(
    folder_store: Store, runs: Runs
) -> None:
    def texts(share: int) -> list[str | None]:
        results = run_some(folder_store, COPY, shards(7), Engine(share=(share, 3)))
        return [r.facts["text"] if r else None for r in results]

    assert texts(0) == ["0", None, None, "3", None, None, "6"]
    assert texts(2) == ["0", None, "2", "3", None, "5", "6"]
    assert texts(1) == ["0", "1", "2", "3", "4", "5", "6"]
    assert runs() == {f"s{n}": 1 for n in range(7)}
    assert run(folder_store, COPY, shards(7), Engine(share=(2, 3))) == run(
        folder_store, COPY, shards(7)
    )
    assert not runs()


def test_what_other_jobs_do_meanwhile_is_seen(folder_store: Store, runs: Runs) -> None:
    """The shard of share 0 does the whole of share 1 before it ends."""
    stage = Stage("meanwhile", 1, "tests.work.stages:copy_and_run_the_other_share")
    results = run_some(folder_store, stage, shards(2), Engine(share=(0, 2)))
    assert [r.facts["text"] for r in complete(stage.name, results)] == ["0", "1"]
    assert runs() == {"s0": 1, "s1": 1}


def test_a_shard_whose_input_is_not_there_is_passed_over(folder_store: Store, runs: Runs) -> None:
    some = [shards(4)[0], None, shards(4)[2], None]
    results = run_some(folder_store, COPY, some, Engine(share=(0, 2)))
    assert [r is None for r in results] == [False, True, False, True]
    with pytest.raises(NotYet, match="stage copy: 2 of 4 shards are still with the other jobs"):
        complete("copy", results)
    assert run_some(folder_store, COPY, some, Engine(share=(1, 2))) == results
    assert runs() == {"s0": 1, "s2": 1}


@pytest.mark.parametrize("share", [(3, 3), (-1, 2), (0, 0)])
def test_an_impossible_share_is_wrong_usage(share: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="not possible"):
        Engine(share=share)


def test_an_unknown_engine_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="engine 'spark' is not known; it is pool or ray"):
        Engine("spark")
    with pytest.raises(UsageError, match="-1 workers are not possible"):
        Engine(workers=-1)


def test_what_a_shard_spent_is_told_and_changes_nothing(folder_store: Store, marks: Path) -> None:
    (result,) = run(folder_store, COPY, shards(1))
    assert {"seconds", "cpu_seconds", "peak_bytes", "host"} == set(result.spent)
    assert 0 <= result.spent["cpu_seconds"] < 60
    assert result.spent["peak_bytes"] > 1 << 20
    (again,) = run(folder_store, COPY, shards(1))
    assert again.spent == result.spent, "as recorded"
    assert result == dataclasses.replace(result, spent={})


def test_the_peak_of_a_stage_is_its_own_not_an_earlier_stages_nor_the_parents(
    folder_store: Store,
) -> None:
    here = b"x" * (200 << 20)
    with Workers(folder_store, Engine(workers=1)) as workers:
        peaks = [
            result.spent["peak_bytes"]
            for result in everyone(workers, "eat", [{"bytes": 250 << 20}], [{"bytes": 1}])
        ]
    assert peaks[0] > 250 << 20
    assert peaks[1] < len(here)


def test_workers_stay_for_the_next_stages_of_a_call(folder_store: Store, marks: Path) -> None:
    with Workers(folder_store, Engine(workers=1)) as workers:
        results = everyone(workers, "speak", [{"n": 0}, {"n": 1}], [{"n": 2}], [{"n": 3}])
    assert len({r.facts["pid"] for r in results}) == 1
    assert not alive(results[0].facts["pid"]), "they end with the block"


def test_workers_that_the_next_stage_cannot_use_end(folder_store: Store, marks: Path) -> None:
    first, second = (Stage(name, 1, "tests.work.stages:meet") for name in ("many", "few"))
    with Workers(folder_store, Engine(workers=3)) as workers:
        three = complete("many", run_stage(workers, first, meeting(3)))
        two = complete("few", run_stage(workers, second, meeting(2)))
    before, after = ({r.facts["pid"] for r in results} for results in (three, two))
    assert len(before) == 3
    assert len(after) == 2
    assert after < before


def test_a_worker_killed_between_two_stages_costs_no_shard(
    folder_store: Store, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    other = dataclasses.replace(COPY, name="other")
    with Workers(folder_store, Engine(workers=1)) as workers:
        run_stage(workers, COPY, shards(2))
        (pid,) = {int(p.name.split("-")[2]) for p in Path(os.environ["EYAS_TEST_MARKS"]).iterdir()}
        os.kill(pid, signal.SIGKILL)
        runs()
        assert None not in run_stage(workers, other, shards(2))
    assert runs() == {"s0": 1, "s1": 1}
    assert "with shard" not in caplog.text


def test_after_a_stage_that_failed_another_may_run(folder_store: Store, marks: Path) -> None:
    with Workers(folder_store, Engine(workers=2)) as workers:
        with pytest.raises(StageError, match="no_such_module"):
            run_stage(workers, Stage("lost", 1, "no_such_module:run"), shards(3))
        with pytest.raises(StageError, match="shard s7: ValueError"):
            run_stage(workers, Stage("picky", 1, "tests.work.stages:fail_on_seven"), shards(9))
        assert None not in run_stage(workers, COPY, shards(3))


def test_no_worker_is_started_where_all_is_done(folder_store: Store, marks: Path) -> None:
    first = run(folder_store, COPY, shards(2))
    with Workers(folder_store, Engine("ray")) as workers:
        assert run_stage(workers, COPY, shards(2)) == first


def everyone(workers: Workers, stage: str, *stages: list[dict[str, int]]) -> list[ShardResult]:
    """Results of several stages, all of the function `stage`, with such parameters of shards."""
    found: list[ShardResult] = []
    for number, several in enumerate(stages):
        made = Stage(f"{stage}-{number}", 1, f"tests.work.stages:{stage}")
        todo = [Shard(f"s{n}", params=params) for n, params in enumerate(several)]
        found += complete(made.name, run_stage(workers, made, todo))
    return found


def meeting(count: int) -> list[Shard]:
    return [Shard(f"s{n}", params={"number": n, "count": count}) for n in range(count)]


def test_the_same_input_twice_is_refused(folder_store: Store) -> None:
    with pytest.raises(StageError, match="shards s0 and twin have the same inputs"):
        run(folder_store, COPY, [*shards(1), Shard("twin", params={"text": "0"})])


def test_no_shards_are_no_work(folder_store: Store) -> None:
    assert run(folder_store, COPY, []) == []


def test_workers_log_to_the_parent_and_have_one_thread(
    folder_store: Store, marks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        results = run(folder_store, Stage("speak", 1, "tests.work.stages:speak"), shards(2))
    assert {r.getMessage() for r in caplog.records if r.name == "eyas.test"} == {
        "shard s0 speaks",
        "shard s1 speaks",
    }
    assert all(r.facts["threads"] == "1" for r in results)
    assert os.getpid() not in {r.facts["pid"] for r in results}
