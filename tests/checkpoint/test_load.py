from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gloo import run_ranks

from eyas.checkpoint import CheckpointError, Slice, load_slices, read_commit, save, take_attempt
from eyas.checkpoint import payload as payload_module
from eyas.shape import ModelShape, parameter_table, tensor_slices
from eyas.store import Corrupt, StoreError, open_store

from .cuts import boxes_of, partitions
from .faults import Around, Counting, Failing, Memory, flip

load_module = sys.modules[load_slices.__module__]
save_module = sys.modules[save.__module__]


def put(store, tensors, chunk=None):
    """One rank's save of whole tensors, with small chunks if asked."""
    with pytest.MonkeyPatch.context() as patch:
        if chunk:
            patch.setattr(payload_module, "CHUNK", chunk)
        attempt = take_attempt(store, {})
        return save(store, attempt, 1, [Slice.whole(n, t) for n, t in tensors.items()], {})


def payload_key(store):
    return next(o.key for o in store.list("checkpoints/data/") if o.key.endswith(".safetensors"))


def part(tensor, offset, shape):
    return tensor[tuple(slice(o, o + s) for o, s in zip(offset, shape, strict=True))]


@settings(deadline=None, max_examples=150)
@given(partitions(), st.data())
def test_any_box_is_loaded_from_any_partition_whatever_the_chunks(case, data):
    shape, boxes = case
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.float64]))
    chunk = data.draw(st.integers(8, 120))
    wanted = data.draw(boxes_of(shape))
    full = torch.arange(math.prod(shape)).to(dtype).reshape(shape)
    other = torch.arange(11.0)
    store = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_module, "CHUNK", chunk)
        patch.setattr(save_module, "OBJECT", data.draw(st.integers(16, 400)))
        patch.setattr(load_module, "FETCH", data.draw(st.integers(1, 400)))
        take_attempt(store, {})
        slices = [Slice("a", b.offset, part(full, b.offset, b.shape), shape) for b in boxes]
        commit = save(store, 1, 1, [*slices, Slice.whole("b", other)], {})
        found = load_slices(store, commit, {"a": (wanted.offset, wanted.shape), "b": ((2,), (7,))})
    assert found["a"].dtype == dtype
    assert torch.equal(found["a"], part(full, wanted.offset, wanted.shape))
    assert torch.equal(found["b"], other[2:9])


SHAPE = ModelShape("tiny", 2, 32, 4, 2, 8, 64, 48, 64, n_norms=2, tied=False)
LAYOUTS = [(t, d) for t in (1, 2) for d in (1, 2, 3)]


def layout_cuts(tensor, data):
    """Of each rank: (name, offset, shape), every tensor cut as tensor parallelism cuts it, and that
    by rows over the data ranks; replicas are the first tensor rank's."""
    for t in range(tensor):
        for d in range(data):
            cuts = []
            for name, (offset, shape) in tensor_slices(SHAPE, tensor, t).items():
                if t and tuple(shape) == parameter_table(SHAPE)[name]:
                    continue
                low, high = shape[0] * d // data, shape[0] * (d + 1) // data
                if low < high:
                    cuts.append((name, (offset[0] + low, *offset[1:]), (high - low, *shape[1:])))
            yield cuts


@pytest.mark.parametrize(("before", "after"), itertools.product(LAYOUTS, LAYOUTS))
def test_every_layout_loads_what_every_other_saved(before, after):
    generator = torch.Generator().manual_seed(1)
    full = {n: torch.randn(s, generator=generator) for n, s in parameter_table(SHAPE).items()}
    store = Memory()
    take_attempt(store, {})
    slices = [
        Slice(n, o, part(full[n], o, s), tuple(full[n].shape))
        for cuts in layout_cuts(*before)
        for n, o, s in cuts
    ]
    commit = save(store, 1, 1, slices, {})
    for cuts in layout_cuts(*after):
        found = load_slices(store, commit, {n: (o, s) for n, o, s in cuts})
        assert all(torch.equal(found[n], part(full[n], o, s)) for n, o, s in cuts)


def test_only_the_chunks_that_hold_the_wanted_rows_are_read_and_each_once(store, monkeypatch):
    monkeypatch.setattr(load_module, "FETCH", 4 * 4096)
    tensor = torch.randn(256, 256)  # rows of 1 KiB
    commit = put(store, {"a": tensor, "b": torch.randn(300, 256)}, chunk=4096)
    counting = Counting(store)
    found = load_slices(counting, commit, {"a": ((64, 0), (32, 256))})
    assert torch.equal(found["a"], tensor[64:96])
    assert counting.gets == [commit.indexes[0].key]
    assert all(start % 4096 == 0 and length <= 4 * 4096 for _, start, length in counting.ranges)
    starts = [s for _, start, length in counting.ranges for s in range(start, start + length, 4096)]
    assert len(starts) == len(set(starts))
    assert 32 <= 4 * len(starts) <= 32 + 8  # 32 KiB, and at most a chunk more at either end


def test_many_small_tensors_in_one_chunk_cost_one_read():
    store = Memory()
    tensors = {f"norm.{n}": torch.randn(8) for n in range(50)}
    commit = put(store, tensors)
    counting = Counting(store)
    load_slices(counting, commit, {n: i.whole for n, i in commit.tensors.items()})
    assert len(counting.ranges) == 1


def test_weights_alone_do_not_read_the_moments():
    store = Memory()
    tensors = {
        f"{kind}.{n}": torch.randn(64, 64) for kind in ("model", "optim.exp_avg") for n in range(8)
    }
    commit = put(store, tensors, chunk=1024)
    counting = Counting(store)
    load_slices(
        counting,
        commit,
        {n: i.whole for n, i in commit.tensors.items() if n.startswith("model.")},
    )
    assert sum(length for _, _, length in counting.ranges) <= 8 * 64 * 64 * 4 + 2 * 1024


def test_only_indexes_that_hold_parts_are_opened(folder_store):
    store = folder_store
    take_attempt(store, {})
    from . import ranks

    run_ranks(ranks.save_rank, 2, store.url, 1, 1, 1)
    commit = read_commit(store)
    counting = Counting(store)
    load_slices(counting, commit, {"model.b": commit.tensors["model.b"].whole})
    assert counting.gets == [commit.indexes[0].key]


def test_buffers_are_filled_in_place():
    store = Memory()
    tensor = torch.randn(32, 16)
    commit = put(store, {"a": tensor, "b": tensor, "c": tensor, "d": tensor})
    big = torch.zeros(64, 16)
    out = {
        "a": big[32:],
        "b": torch.zeros(32, 16, dtype=torch.bfloat16),
        "c": torch.zeros(16, 32).t(),
        "d": torch.nn.Parameter(torch.zeros(32, 16)),
    }
    found = load_slices(store, commit, {n: i.whole for n, i in commit.tensors.items()}, out)
    assert all(found[n] is out[n] for n in out)
    assert torch.equal(big[32:], tensor)
    assert not big[:32].any()
    assert torch.equal(out["b"], tensor.bfloat16())
    assert torch.equal(out["c"], tensor)
    assert torch.equal(out["d"], tensor)


def test_what_is_not_there_is_refused_by_name():
    store = Memory()
    commit = put(store, {"model.a": torch.zeros(4, 4)})
    with pytest.raises(CheckpointError, match=r"holds no tensor optim\.a"):
        load_slices(store, commit, {"optim.a": ((0,), (4,))})
    with pytest.raises(CheckpointError, match=r"model\.a: \[4, 4\] at \[1, 0\]"):
        load_slices(store, commit, {"model.a": ((1, 0), (4, 4))})
    whole = {"model.a": ((0, 0), (4, 4))}
    with pytest.raises(CheckpointError, match=r"the buffer has the shape \[2, 2\]"):
        load_slices(store, commit, whole, {"model.a": torch.zeros(2, 2)})


def test_a_flipped_byte_is_found_and_named(store):
    commit = put(store, {"a": torch.randn(64, 64), "b": torch.randn(64, 64)}, chunk=4096)
    key = payload_key(store)
    flip(store, key, store.stat(key).size - 5)
    whole = {n: i.whole for n, i in commit.tensors.items()}
    assert load_slices(store, commit, {"a": whole["a"]})
    with pytest.raises(Corrupt, match=rf"b is damaged: bytes .*\(chunk \d+\) of {key}"):
        load_slices(store, commit, whole)


def test_a_byte_flipped_on_the_wire_is_read_again():
    class FlippedOnce(Around):
        flipped = 0

        def read_into(self, key, start, buffer, fresh=False):
            self.inner.read_into(key, start, buffer, fresh)
            if not self.flipped:
                self.flipped = 1
                buffer[100] ^= 4
            else:
                assert fresh, "again on another connection"

    store = Memory()
    tensor = torch.randn(64, 64)
    commit = put(store, {"a": tensor}, chunk=4096)
    wire = FlippedOnce(store)
    found = load_slices(wire, commit, {"a": commit.tensors["a"].whole})
    assert wire.flipped
    assert torch.equal(found["a"], tensor)


def test_a_truncated_object_is_found_and_named(store):
    commit = put(store, {"a": torch.randn(64, 64)}, chunk=4096)
    key = payload_key(store)
    store.put(key, store.get(key)[:-100])
    with pytest.raises(Corrupt, match=rf"a is damaged: {key} has \d+ bytes, the index says"):
        load_slices(store, commit, {"a": commit.tensors["a"].whole})


def test_a_missing_object_is_found_and_named(store):
    commit = put(store, {"a": torch.randn(64, 64)})
    key = payload_key(store)
    store.delete([key])
    with pytest.raises(Corrupt, match=rf"a is damaged: the object {key} is missing"):
        load_slices(store, commit, {"a": commit.tensors["a"].whole})


def test_a_damaged_index_is_found_and_named(store):
    commit = put(store, {"a": torch.randn(4)})
    flip(store, commit.indexes[0].key, 30)
    with pytest.raises(Corrupt, match=r"index\.json is damaged"):
        load_slices(store, commit, {"a": commit.tensors["a"].whole})


def test_a_store_that_does_not_answer_is_no_damage():
    store = Memory()
    commit = put(store, {"a": torch.randn(4)})
    with pytest.raises(StoreError) as caught:
        load_slices(Failing(store, "read_into", "data"), commit, {"a": commit.tensors["a"].whole})
    assert not isinstance(caught.value, Corrupt)


def peak_growth(act):
    """MiB that the peak of this process's memory grew by."""
    status = Path("/proc/self/status")

    def peak() -> int:
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    act()
    return peak() - before


def measured_rank(rank: int, world: int, url: str) -> tuple[int, int]:
    store = open_store(url)
    take_attempt(store, {})
    tensors = {f"t{n}": torch.full((2**20, 12), float(n)) for n in range(4)}  # 4 x 48 MiB
    slices = [Slice.whole(n, t) for n, t in tensors.items()]
    saving = peak_growth(lambda: save(store, 1, 1, slices, {}))
    commit = read_commit(store)
    whole = {n: i.whole for n, i in commit.tensors.items()}
    loading = peak_growth(lambda: load_slices(store, commit, whole, out=tensors))
    return saving, loading


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_memory_besides_the_tensors_is_bounded(folder_store):
    saving, loading = run_ranks(measured_rank, 1, folder_store.url)[0]
    assert saving < 48
    fetches = load_module.THREADS * load_module.FETCH // 2**20
    assert loading < fetches + 48 < 192
