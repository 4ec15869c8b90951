"""The pure parts: schedule, progress, ownership, clock, the rank's files."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.recipe import Train
from eyas.shape import Layout, ModelShape, parameter_table, tensor_slices
from eyas.train import StepResult, learning_rate
from eyas.train.clock import PHASES, Clock
from eyas.train.ownership import owned_names
from eyas.train.progress import Progress, from_limbs, to_limbs
from eyas.train.rank_files import RankFiles

COSINE = Train(tokens=10_000, lr=1e-3, lr_min=1e-4, warmup_tokens=1000, global_batch=100)


def test_the_rate_rises_to_its_peak_and_falls_to_its_minimum() -> None:
    assert learning_rate(500, COSINE) == pytest.approx(5e-4)
    assert learning_rate(1000, COSINE) == pytest.approx(1e-3)
    assert learning_rate(5500, COSINE) == pytest.approx((1e-3 + 1e-4) / 2)
    assert learning_rate(10_000, COSINE) == pytest.approx(1e-4)
    assert learning_rate(20_000, COSINE) == pytest.approx(1e-4)


def test_without_warm_up_the_first_step_trains() -> None:
    assert learning_rate(100, Train(tokens=10_000, warmup_tokens=0, lr=1e-3)) > 9e-4


def test_a_constant_schedule_only_warms_up() -> None:
    keys = Train(tokens=10_000, lr=1e-3, warmup_tokens=1000, schedule="constant")
    assert [learning_rate(t, keys) for t in (100, 1000, 10_000)] == [1e-4, 1e-3, 1e-3]


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_after_the_warm_up_the_rate_never_rises(a: int, b: int) -> None:
    low, high = sorted((max(a, 1000), max(b, 1000)))
    assert learning_rate(low, COSINE) >= learning_rate(high, COSINE) >= COSINE.lr_min


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_digests_add_modulo_2_64_through_float_sums(digests: list[int]) -> None:
    sums = [
        sum(float(limb) for limb in limbs) for limbs in zip(*map(to_limbs, digests), strict=True)
    ]
    assert from_limbs([int(s) for s in sums]) == sum(digests) % 2**64


def test_progress_survives_json_and_adds_up() -> None:
    first = Progress().after(StepResult(5.5, 90, 1.0, ()), 3, 2**63)
    second = first.after(StepResult(4.5, 60, 1.0, ()), 2, 2**63 + 7)
    second = second.spent(1.5, dict.fromkeys(PHASES, 0.25))
    back = Progress.of(json.loads(json.dumps(second.facts())))
    assert back == second
    assert (back.step, back.tokens, back.samples, back.digest) == (2, 150, 5, 7)
    assert (back.first_loss, back.last_loss, back.seconds) == (5.5, 4.5, 1.5)


SHAPE = ModelShape("s", 3, 32, 4, 2, 8, 64, 101, 64)


@given(st.sampled_from([1, 2, 4]), st.integers(1, 5))
def test_every_slice_is_saved_once(tensor: int, data: int) -> None:
    layout = Layout(tensor, data, 1)
    saved = []
    for rank in range(layout.world):
        slices = tensor_slices(SHAPE, tensor, rank % tensor)
        saved += [(name, slices[name]) for name in owned_names(SHAPE, layout, rank)]
    held = {(n, s) for t in range(tensor) for n, s in tensor_slices(SHAPE, tensor, t).items()}
    assert len(saved) == len(set(saved))
    assert set(saved) == held


def test_saving_is_shared_out_over_data_ranks() -> None:
    table = parameter_table(SHAPE)
    sizes = [
        sum(math.prod(table[name]) for name in owned_names(SHAPE, Layout(1, 4, 1), rank))
        for rank in range(4)
    ]
    assert max(sizes) <= 1.3 * min(sizes)


def test_a_second_counts_in_the_innermost_phase() -> None:
    announced: list[str] = []
    clock = Clock(announced.append)
    with clock.phase("compute"), clock.phase("communication"):
        time.sleep(0.02)
    with clock.phase("optimizer"):
        pass
    taken = clock.take()
    assert taken["communication"] >= 0.02 > taken["compute"]
    assert announced == ["compute", "optimizer"]
    assert sum(clock.take().values()) < 0.02


def test_a_rank_without_a_supervisor_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EYAS_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    files = RankFiles(0)
    files.step(3)
    files.phase("compute")
    files.leave(0)
    assert list(tmp_path.iterdir()) == []


def test_the_beat_says_where_the_rank_is(tmp_path: Path) -> None:
    files = RankFiles(1, str(tmp_path), die_with_launcher=False)
    files.step(7)
    files.phase("communication")
    beat = json.loads((tmp_path / "rank-1.beat").read_text())
    assert (beat["rank"], beat["pid"], beat["step"]) == (1, os.getpid(), 7)
    assert beat["phase"] == "communication"
    files.leave(75)
    assert (tmp_path / "rank-1.exit").read_text() == "75"
