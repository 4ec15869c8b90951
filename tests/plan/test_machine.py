"""Promises: the rate is measured in real processes, as many at once as asked, or an error says why
not."""

import math

import pytest

from eyas.plan import machine, measure_machine
from eyas.recipe import EyasError
from eyas.shape import matmul_parameters, preset_names, preset_shape


def test_several_processes_are_measured_at_once():
    found = measure_machine(preset_shape("nano-1m"), rows=64, processes=3, threads=1, seconds=0.1)
    assert (found.processes, found.threads) == (3, 1)
    assert found.matmul_rate > 1e7
    assert found.cores >= 1
    assert found.memory > 2**28


@pytest.mark.parametrize("preset", preset_names())
def test_each_matrix_keeps_its_weight_in_the_mean(preset):
    shape = preset_shape(preset)
    products = machine._products(shape, rows=4096)
    assert all(max(m, k, n) <= 1024 for m, k, n, _ in products)
    weight = sum(k * n * count for _, k, n, count in products)
    assert weight == pytest.approx(matmul_parameters(shape), rel=0.05)


def test_a_worker_that_fails_is_an_error_with_its_message(monkeypatch):
    monkeypatch.setattr(machine, "_products", lambda shape, rows: [(1, 1, -1, 1)])
    with pytest.raises(EyasError, match=r"could not be measured: .*negative"):
        measure_machine(seconds=0.1)


def test_a_containers_limits_count(monkeypatch):
    files = {"/sys/fs/cgroup/cpu.max": "100000 100000", "/sys/fs/cgroup/memory.max": str(2**29)}
    monkeypatch.setattr(machine, "_first_line", lambda path: files.get(path, ""))
    assert machine.cores() == 1
    assert machine.memory_bytes() == 2**29
    files |= {"/sys/fs/cgroup/cpu.max": "max 100000", "/sys/fs/cgroup/memory.max": "max"}
    assert machine.cores() >= 1
    assert machine.memory_bytes() > 2**29
    assert math.isfinite(machine.memory_bytes())
