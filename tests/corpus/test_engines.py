"""The same corpus, byte for byte, from any engine, number of workers or jobs, and any disturbance;
and a change runs again exactly what it touches."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.corpus import curated
from tests.corpus.crawl import html_of, write_crawl, write_warc
from tests.corpus.curated import ledger, output, rows
from tests.texts import page

from eyas.cli import main
from eyas.corpus import curate
from eyas.recipe import Recipe
from eyas.store import Manifest, Store, open_store, read_manifest, verify
from eyas.work import Engine, NotYet

ONE = Engine(workers=1)
STAGES = ("extract", "filter", "bands", "match", "cluster", "write")
KILLS = int(os.environ.get("EYAS_SOAK_KILLS", "50"))


def recipe(store: Store, crawl: Path, **corpus: Any) -> Recipe:
    return curated.recipe(store, crawl, **{"validation_share": 0.3, **corpus})


def ledgers(store: Store) -> dict[str, set[str]]:
    return {stage: ledger(store, stage) for stage in STAGES}


def ids(store: Store, manifest: Manifest) -> list[str]:
    return [row["id"] for f in ("documents", "rejects") for row in rows(store, manifest, f)]


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight shards with duplicates among them."""
    folder = write_crawl(tmp_path_factory.mktemp("crawl"))
    for part in range(5):
        numbers = [*range(20 + 6 * part, 28 + 6 * part), part]
        pages = [(f"http://part{part}.test/{n}", html_of(page(n))) for n in numbers]
        write_warc(folder / f"part-{part}.warc.gz", pages)
    return folder


@pytest.fixture(scope="module")
def base(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One undisturbed run of one worker."""
    store = open_store(str(tmp_path_factory.mktemp("base") / "store"))
    curate(recipe(store, crawl), store, ONE)
    return store


def test_four_workers_for_one(base: Store, crawl: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    curate(recipe(store, crawl), store, Engine(workers=4))
    assert output(store) == output(base)


@pytest.fixture
def two_nodes() -> Iterator[None]:
    """A real Ray cluster: two nodes with a CPU each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield
        ray.shutdown()
        cluster.shutdown()


def test_ray_with_two_nodes(base: Store, crawl: Path, tmp_path: Path, two_nodes: None) -> None:
    store = open_store(str(tmp_path / "store"))
    curate(recipe(store, crawl), store, Engine("ray"))
    assert output(store) == output(base)


def test_three_jobs_that_take_turns_until_one_finds_all_done(
    base: Store, crawl: Path, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    keys = recipe(store, crawl)
    runs = 0
    while read_manifest(store, "corpus") is None:
        share = (runs % 3, 3)
        runs += 1
        assert runs < 20
        try:
            curate(keys, store, Engine(workers=1, share=share))
        except NotYet as error:
            assert "shards are still" in str(error)  # noqa: PT017 the last one raises none
    assert runs > 3
    assert output(store) == output(base)


def test_three_jobs_at_once_that_wait_for_each_other(
    base: Store, crawl: Path, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    path = tmp_path / "recipe.toml"
    path.write_text(recipe(store, crawl).to_toml())
    command = [sys.executable, "-m", "eyas", "curate", str(path), "--workers", "1", "--wait"]
    jobs = [subprocess.Popen([*command, "--shard", f"{n}/3"]) for n in range(3)]
    assert [job.wait(240) for job in jobs] == [0, 0, 0]
    assert output(store) == output(base)
    assert not verify(store).problems


class Counted:
    """A store that notes what is read of it."""

    def __init__(self, store: Store, read: list[str]) -> None:
        self._store, self._read = store, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        self._read.append(key)
        return self._store.get(key)


def test_a_job_that_waits_reads_no_record_of_the_ledger_twice(
    base: Store, crawl: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = open_store(str(shutil.copytree(base.url, tmp_path / "store")))
    keys = recipe(store, crawl)
    (last,) = ledger(store, "cluster")
    held = store.get(last)
    store.delete([last, *(o.key for o in store.list("corpus/manifest-"))])
    waits = iter([lambda: None, lambda: store.put(last, held)])
    monkeypatch.setattr(time, "sleep", lambda _: next(waits)())
    read: list[str] = []
    curate(keys, cast("Store", Counted(store, read)), Engine(workers=1, share=(1, 2)), wait=True)
    records = Counter(key for key in read if key.startswith("work/corpus."))
    assert records.total() == sum(len(names) for names in ledgers(store).values())
    assert set(records.values()) == {1}


def test_a_job_that_must_wait_says_so_and_exits_well(
    crawl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(tmp_path / "store"))
    path = tmp_path / "recipe.toml"
    path.write_text(recipe(store, crawl, preset="none", extractor="resiliparse").to_toml())
    assert main(["curate", str(path), "--workers", "1", "--shard", "0/2"]) == 0
    assert "part 0/2 is done as far as it can be; stage corpus." in capsys.readouterr().out
    assert read_manifest(store, "corpus") is None
    assert main(["curate", str(path), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "documents out" in shown
    assert f"report: {store.url}/corpus/report-" in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shard", "1"], "--shard 1: write I/N"),
        (["--shard", "2/2"], "shard 2/2 is not possible"),
        (["--wait"], "--wait is for --shard"),
        (["--force", "--shard", "0/2"], "--force would undo"),
        (["--workers", "-1"], "-1 workers are not possible"),
    ],
)
def test_an_impossible_share_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(f'name = "r"\nstore = "{tmp_path}/store"\n')
    assert main(["curate", str(path), *arguments]) == 2
    assert named in capsys.readouterr().err


def test_a_resume_with_another_number_of_jobs_repeats_and_loses_nothing(
    base: Store, crawl: Path, tmp_path: Path
) -> None:
    """Of 2 jobs one did its part and died; 4 others and then a plain run go on."""
    store = open_store(str(tmp_path / "store"))
    keys = recipe(store, crawl)
    for share in ((0, 2), (3, 4)):
        with pytest.raises(NotYet):
            curate(keys, store, Engine(workers=1, share=share))
    done = {key: store.get(key) for keys in ledgers(store).values() for key in keys}
    manifest = curate(keys, store, Engine(workers=2))
    assert done
    assert {key: store.get(key) for key in done} == done
    names = ids(store, manifest)
    assert len(names) == len(set(names)) == manifest.counters["pages_in"]
    assert output(store) == output(base)


@contextmanager
def killing(kills: list[int], most: int, seed: int) -> Iterator[None]:
    """SIGKILL a worker of this process at random, again and again."""
    chance, over = random.Random(seed), threading.Event()

    def kill() -> None:
        while len(kills) < most and not over.wait(chance.uniform(0.2, 1.6)):
            workers = _workers()
            if workers:
                victim = chance.choice(workers)
                os.kill(victim, signal.SIGKILL)
                kills.append(victim)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _workers() -> list[int]:
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    found = [int(pid) for pid in children.read_text().split()]
    return [pid for pid in found if b"eyas-worker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _killed(base: Store, crawl: Path, folder: Path, most: int) -> None:
    kills: list[int] = []
    runs = 0
    while len(kills) < most:
        runs += 1
        store = open_store(str(folder / f"store-{runs}"))
        with killing(kills, most, seed=runs):
            curate(recipe(store, crawl), store, Engine(workers=2))
        assert output(store) == output(base)
    print(f"\n{len(kills)} workers killed in {runs} runs, every corpus byte-identical")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds its workers in /proc")
def test_workers_killed_at_random(base: Store, crawl: Path, tmp_path: Path) -> None:
    _killed(base, crawl, tmp_path, 10)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_workers_killed_at_random_many_times(base: Store, crawl: Path, tmp_path: Path) -> None:
    _killed(base, crawl, tmp_path, KILLS)


def _new_seed(keys: dict[str, Any], folder: Path) -> None:
    keys["seed"] = 2


def _new_limit(keys: dict[str, Any], folder: Path) -> None:
    keys["gopher"] = {"max_word_length": 5.55}  # about half of the pages


def _new_limit_of_no_effect(keys: dict[str, Any], folder: Path) -> None:
    keys["gopher"] = {"max_words": 90_000}


def _new_shingle(keys: dict[str, Any], folder: Path) -> None:
    keys["dedup_shingle"] = 4


def _new_url_list(keys: dict[str, Any], folder: Path) -> None:
    (folder / "blocked.txt").write_text("part4.test\n")
    keys["url"] = {"blocklist": [str(folder / "blocked.txt")]}


def _new_file(keys: dict[str, Any], folder: Path) -> None:
    path = write_warc(folder / "z.warc.gz", [("http://z.test/0", html_of(page(99)))])
    keys["sources"] = [*keys["sources"], str(path)]


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (_new_seed, {"write": 8}),
        (_new_shingle, {"bands": 8, "match": 1}),
        (_new_limit, {"filter": 8, "bands": 6, "match": 1}),
        (_new_limit_of_no_effect, {"filter": 8}),
        (_new_url_list, {"extract": 8, "match": 1}),
        (_new_file, {"extract": 1, "filter": 1, "bands": 1, "match": 1}),
    ],
)
def test_a_change_runs_again_what_reads_it_and_nothing_else(
    base: Store,
    crawl: Path,
    tmp_path: Path,
    change: Callable[[dict[str, Any], Path], None],
    again: dict[str, int],
) -> None:
    """Of two shards the new limit drops nothing. With new pairs the clusters are made again, and
    documents written where they changed."""
    store = open_store(str(shutil.copytree(base.url, tmp_path / "store")))
    first, before = read_manifest(store, "corpus"), ledgers(store)
    keys: dict[str, Any] = {"sources": [str(crawl)]}
    change(keys, tmp_path)
    second = curate(recipe(store, crawl, **keys), store, ONE)
    assert first is not None
    assert second.identity != first.identity
    after = ledgers(store)
    ran = {stage: len(after[stage] - before[stage]) for stage in STAGES}
    may = {"cluster", "write"} if again.get("match") else set()
    assert {s: n for s, n in ran.items() if n and s not in may} == again
    names = ids(store, second)
    assert len(names) == len(set(names)) == second.counters["pages_in"]
