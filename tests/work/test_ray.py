"""A real Ray cluster of two nodes on this machine: the same bytes, also when a node is killed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.work.processes import alive, wait_until
from tests.work.test_run_stage import COPY, everything, meeting, run, run_some, shards

from eyas.recipe import UsageError
from eyas.store import Store, open_store
from eyas.work import (
    Engine,
    Shard,
    Stage,
    StageError,
    Workers,
    complete,
    refusals,
    run_stage,
)

pytestmark = pytest.mark.slow
RAY = Engine("ray")


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The nodes inherit the environment of their start, so there is one folder for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("marks")
        patch.setenv("EYAS_TEST_MARKS", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield folder


@pytest.fixture(scope="module")
def cluster(marked: Path, seaweed: Any) -> Iterator[Any]:
    """Two nodes with a CPU each, which inherit the S3 server's address and keys."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def marks(marked: Path) -> Path:
    for path in marked.iterdir():
        path.unlink()
    return marked


def test_two_nodes_write_what_one_process_writes(
    store: Store, tmp_path: Path, marks: Path, cluster: Any
) -> None:
    one = open_store(str(tmp_path / "one"))
    assert run(store, COPY, shards(6), RAY) == run(one, COPY, shards(6), Engine(workers=1))
    assert everything(store, "out/") == everything(one, "out/")


def test_both_nodes_work(folder_store: Store, marks: Path, cluster: Any) -> None:
    stage = Stage("place", 1, "tests.work.stages:copy_with_place")
    results = run(folder_store, stage, shards(4), RAY)
    assert len({r.facts["raylet"] for r in results}) == 2


def test_workers_stay_for_the_next_stages_of_a_call(
    folder_store: Store, marks: Path, cluster: Any
) -> None:
    first, second, third = (Stage(n, 1, "tests.work.stages:meet") for n in ("a", "b", "c"))
    with Workers(folder_store, RAY) as workers:
        two = complete("a", run_stage(workers, first, meeting(2)))
        again = complete("b", run_stage(workers, second, meeting(2)))
        one = complete("c", run_stage(workers, third, meeting(1)))
    before, same, after = ({r.facts["pid"] for r in results} for results in (two, again, one))
    assert before == same
    assert after < before
    wait_until(lambda: not any(alive(pid) for pid in before))


def test_items_are_refused_as_in_the_pool(
    folder_store: Store, tmp_path: Path, marks: Path, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage("watched", 1, "tests.work.stages:watched", {"cpu_seconds": 0.3})
    lists = (["a", "runaway"], ["crash", "b"], ["killed"])
    work = [Shard(f"s{n}", params={"items": items}) for n, items in enumerate(lists)]
    one = open_store(str(tmp_path / "one"))
    assert run(folder_store, stage, work, RAY) == run(one, stage, work, Engine(workers=1))
    assert everything(folder_store, "out/") == everything(one, "out/")
    assert refusals(folder_store, stage) == refusals(one, stage)
    assert "(SIGPROF at runaway)" in caplog.text


def test_workers_log_to_the_driver_and_errors_are_told(
    folder_store: Store, marks: Path, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(folder_store, Stage("speak", 1, "tests.work.stages:speak"), shards(2), RAY)
    assert "shard s0 speaks" in caplog.text
    picky = Stage("picky", 1, "tests.work.stages:fail_on_seven")
    with pytest.raises(StageError, match="stage picky, shard s7: ValueError: seven is not legal"):
        run(folder_store, picky, shards(9)[6:], RAY)


def test_an_interrupted_driver_leaves_no_half_written_file(
    folder_store: Store, marks: Path, cluster: Any
) -> None:
    program = (
        "import signal, sys; from eyas.store import open_store; from eyas.work import *\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # else a shell's\n"
        "stage = Stage('end', 1, 'tests.work.stages:write_for_ever')\n"
        "with Workers(open_store(sys.argv[1]), Engine('ray', workers=1)) as workers:\n"
        "    run_stage(workers, stage, [Shard('s0')])"
    )
    command = [sys.executable, "-c", program, folder_store.url]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: bool(list(marks.glob("run-s0-*"))) or driver.poll() is not None)
    assert list(Path(folder_store.url).rglob(".tmp-*"))
    driver.send_signal(signal.SIGINT)
    driver.wait()
    assert not list(Path(folder_store.url).rglob(".tmp-*"))


def test_a_killed_node_costs_only_what_it_held(
    folder_store: Store, tmp_path: Path, marks: Path, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Both workers hold a shard that waits, then one's node is killed. The cluster's last test."""
    stage = Stage("copy", 1, "tests.work.stages:wait_for_go", COPY.settings)
    results: list[Any] = []
    work = shards(6)[1:]  # shard 0 does not wait
    driver = threading.Thread(
        target=lambda: results.extend(run_some(folder_store, stage, work, RAY))
    )
    driver.start()
    wait_until(lambda: len(list(marks.glob("run-*"))) == 2)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    wait_until(lambda: "loss of its Ray actor or machine" in caplog.text)
    (marks / "go").touch()
    driver.join()
    assert len(list(marks.glob("run-*"))) == 6 + 5, "six began and five were finished"
    one = open_store(str(tmp_path / "one"))
    assert complete("copy", results) == run(one, COPY, work, Engine(workers=1))
    assert everything(folder_store, "out/") == everything(one, "out/")


def test_without_ray_one_sentence_says_what_to_install(
    folder_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"engine ray needs Ray: pip install 'eyas\[ray\]'"):
        run(folder_store, COPY, shards(1), RAY)


def test_a_cluster_that_does_not_answer_is_named(folder_store: Store) -> None:
    program = (
        "import sys; from eyas.store import open_store; from eyas.work import *\n"
        "with Workers(open_store(sys.argv[1]), Engine('ray')) as workers:\n"
        "    run_stage(workers, Stage('a', 1, 'm:f'), [Shard('s')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder_store.url],
        env=os.environ | {"RAY_ADDRESS": "127.0.0.1:9"},
        capture_output=True,
        text=True,
    )
    assert "StageError: the Ray cluster RAY_ADDRESS=127.0.0.1:9 cannot be used" in done.stderr
