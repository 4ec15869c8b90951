"""Promises of batches and traces."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tokens.made import documents, recipe

from eyas.recipe import EyasError, UsageError
from eyas.store import Corrupt, Store, StoreError, open_store, read_manifest, read_object
from eyas.tokens import (
    Tokens,
    check_model_vocabulary,
    load_tokenizer,
    make_data_plan,
    open_tokens,
    plan_digest,
)
from eyas.tokens.token_objects import token_objects


def test_a_batch_has_the_promised_shapes(made: Store) -> None:
    tokens = open_tokens(made)
    batch = tokens.batch(0)
    assert tokens.steps == 40
    assert tokens.sequence == 32
    assert batch.ids.shape == batch.document_ids.shape == (12, 33)
    assert batch.loss_mask.shape == (12, 32)
    assert batch.ids.dtype == batch.document_ids.dtype == torch.int64
    assert batch.loss_mask.dtype == torch.bool
    assert batch.samples == tuple(range(12))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_any_world_at_any_time_sees_the_same_step(made: Store, world: int) -> None:
    known, fresh = open_tokens(made), open_tokens(made)
    for step in (0, 39, 7, 7, 22):
        whole = known.batch(step)
        parts = [fresh.batch(step, rank, world) for rank in range(world)]
        for name in ("ids", "document_ids", "loss_mask"):
            joined = torch.cat([getattr(part, name) for part in parts])
            assert torch.equal(joined, getattr(whole, name))
        assert sum((part.samples for part in parts), ()) == whole.samples
        assert sum(part.digest for part in parts) % 2**64 == whole.digest
        assert known.digest(whole) == whole.digest


def test_a_world_that_does_not_divide_the_batch_is_refused_with_those_that_do(
    made_here: Store,
) -> None:
    tokens = open_tokens(made_here)
    with pytest.raises(UsageError, match=r"12 sequences .* 5 .* 1, 2, 3, 4, 6, 12"):
        tokens.batch(0, 0, 5)
    with pytest.raises(UsageError, match="rank 2 is not in a world of 2"):
        tokens.batch(0, 2, 2)
    with pytest.raises(UsageError, match=r"step 40 .* 0 to 39"):
        tokens.batch(40)


def _stream(store: Store, split: str) -> tuple[list[np.ndarray[Any, Any]], list[int]]:
    """Tokens of each object of a split, and the number of its first document."""
    manifest = read_manifest(store, "tokens")
    assert manifest is not None
    shards = token_objects(manifest, split)
    documents = np.cumsum([0, *(s.documents.rows for s in shards)]).tolist()
    return [np.frombuffer(read_object(store, s.tokens), "<u2") for s in shards], documents


def test_every_token_of_an_epoch_is_a_target_once_tail_included(made_here: Store) -> None:
    """Batches of one sample, so that steps cover exactly one epoch and the next."""
    probe = open_tokens(made_here).plan.segments[0].sources[0].samples
    keys = {"train__global_batch": 32, "train__tokens": 32 * 2 * probe}
    make_data_plan(recipe(made_here, **keys), made_here)
    tokens = open_tokens(made_here)
    assert tokens.steps == 2 * probe
    objects, first_documents = _stream(made_here, "train")
    for epoch in range(2):
        targets: Counter[int] = Counter()
        per_document: Counter[int] = Counter()
        for step in range(epoch * probe, (epoch + 1) * probe):
            batch = tokens.batch(step)
            mask = batch.loss_mask
            targets.update(batch.ids[:, 1:][mask].tolist())
            per_document.update(batch.document_ids[:, 1:][mask].tolist())
            assert (batch.document_ids[:, 1:][~mask] == -1).all()
            assert (batch.ids[:, 1:][~mask] == 0).all()
        assert targets == Counter(np.concatenate(objects).tolist())
        expected: Counter[int] = Counter()
        for data, base in zip(objects, first_documents, strict=False):
            numbers = base + np.cumsum(data == 0) - (data == 0)
            expected.update(numbers.tolist())
        assert per_document == expected


def test_rows_are_windows_of_the_stream_with_the_token_before_them(made_here: Store) -> None:
    make_data_plan(recipe(made_here, train__tokens=384 * 80), made_here)
    tokens = open_tokens(made_here)
    assert tokens.plan.segments[0].sources[0].samples < 80 * 12
    objects, first_documents = _stream(made_here, "train")
    documents = [
        base + np.cumsum(data == 0) - (data == 0)
        for data, base in zip(objects, first_documents, strict=False)
    ]
    for step in range(80):
        samples = tokens.plan.segment(step).samples(step)
        places = tokens._order(32, 1).places(np.array(samples))
        batch = tokens.batch(step)
        for row in range(12):
            number = int(places.object[row])
            data = objects[number]
            start = int(places.block[row]) * 512 + int(places.start[row])
            length = int(places.stop[row] - places.start[row])
            assert batch.ids[row, 1 : length + 1].tolist() == data[start : start + length].tolist()
            assert batch.ids[row, 0] == (data[start - 1] if start else 0)
            numbers = documents[number]
            window = numbers[start : start + length].tolist()
            assert batch.document_ids[row, 1 : length + 1].tolist() == window
            assert batch.document_ids[row, 0] == (numbers[start - 1] if start else -1)


def test_the_validation_split_is_seen_once_in_a_fixed_order(made: Store) -> None:
    tokens = open_tokens(made, split="validation")
    objects, _ = _stream(made, "validation")
    seen: list[int] = []
    for step in range(tokens.steps):
        parts = [tokens.batch(step, rank, 2) for rank in range(2)]
        seen += [t for p in parts for t in p.ids[:, 1:][p.loss_mask].tolist()]
        assert all(p.ids.shape == (6, 33) for p in parts)
        assert sum(p.digest for p in parts) % 2**64 == tokens.batch(step).digest
    assert seen == np.concatenate(objects).tolist()
    with pytest.raises(UsageError, match="validation"):
        tokens.batch(tokens.steps)
    with pytest.raises(UsageError, match="train and validation"):
        open_tokens(made, split="test")


def test_the_digest_of_a_run_adds_over_steps_and_names_every_change(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    whole = plan_digest(tokens, 0, 40)
    assert (
        whole == (plan_digest(tokens, 0, 13) + plan_digest(open_tokens(made_here), 13, 40)) % 2**64
    )
    assert whole == sum(tokens.batch(s, r, 3).digest for s in range(40) for r in range(3)) % 2**64
    assert whole != plan_digest(tokens, 0, 39)
    batch = tokens.batch(3)
    batch.ids[5, 7] += 1
    assert tokens.digest(batch) != batch.digest
    make_data_plan(recipe(made_here, data__seed=2), made_here)
    assert plan_digest(open_tokens(made_here), 0, 40) != whole
    assert plan_digest(open_tokens(made_here, plan_version=1), 0, 40) == whole


def test_the_digest_is_the_one_that_is_written_down(made_here: Store) -> None:
    import xxhash

    batch = open_tokens(made_here).batch(2)
    total = 0
    for number, ids in zip(batch.samples, batch.ids.numpy(), strict=True):
        data = number.to_bytes(8, "little") + ids.astype("<u4").tobytes()
        total += xxhash.xxh3_64_intdigest(data)
    assert batch.digest == total % 2**64


class _Flaky:
    """A store that flips a bit of ranged reads, the first `times`."""

    def __init__(self, inner: Store, times: int) -> None:
        self._inner = inner
        self.left = times
        self.ranges: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = bytearray(self._inner.get_range(key, start, length))
        self.ranges.append((key, start))
        if self.left:
            self.left -= 1
            data[len(data) // 2] ^= 1
        return bytes(data)


def test_a_bit_flipped_on_the_wire_is_read_again(made: Store) -> None:
    flaky = _Flaky(made, times=1)
    assert torch.equal(open_tokens(flaky).batch(0).ids, open_tokens(made).batch(0).ids)
    assert flaky.left == 0
    assert flaky.ranges[0] == flaky.ranges[1]


def test_a_damaged_block_is_named_and_never_given_out(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    rows = tokens.trace(4)
    places = tokens._order(32, 1).places(np.array([rows[0].sample]))
    key = tokens._objects[int(places.object[0])].tokens.key
    index = int(places.block[0])
    data = bytearray(made_here.get(key))
    data[index * 1024 + 5] ^= 0x10
    made_here.put(key, bytes(data))
    with pytest.raises(Corrupt, match=rf"{key} is damaged in block {index} ") as caught:
        open_tokens(made_here).batch(4)
    assert isinstance(caught.value, StoreError)


def test_a_truncated_object_is_named(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    for shard in tokens._objects:
        made_here.put(shard.tokens.key, b"")
    with pytest.raises(StoreError, match=r"\.tok"):
        tokens.batch(0)


def test_each_block_is_read_once_a_window_and_memory_is_bounded(made_here: Store) -> None:
    watched = _Flaky(made_here, times=0)
    tokens = open_tokens(watched)
    for step in range(8):
        tokens.batch(step)
    assert len(watched.ranges) == len(set(watched.ranges))
    small = open_tokens(watched, cache_bytes=3000)
    assert torch.equal(small.batch(11).ids, tokens.batch(11).ids)
    assert small._blocks._blocks._held <= 3000


def test_after_fork_it_says_what_to_do_and_pickled_it_opens_anew(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    again = pickle.loads(pickle.dumps(tokens))
    assert torch.equal(again.batch(1).ids, tokens.batch(1).ids)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            tokens.batch(1)
        except StoreError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert b"opened before fork" in os.read(reading, 1000)
    os.waitpid(child, 0)


def test_a_model_that_is_too_small_or_has_another_tokenizer_is_refused(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    check_model_vocabulary(tokens, tokens.highest_id + 1, load_tokenizer(made_here).digest)
    with pytest.raises(EyasError, match=f"reach id {tokens.highest_id}, the model has"):
        check_model_vocabulary(tokens, tokens.highest_id)
    with pytest.raises(EyasError, match="tokenizer"):
        check_model_vocabulary(tokens, 512, "0" * 64)


def test_a_plan_without_its_tokens_is_refused(made_here: Store) -> None:
    made_here.delete(["tokens/manifest-000001.json"])
    with pytest.raises(EyasError, match="data plan 1 is about version 1 of the tokens"):
        open_tokens(made_here)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_trace_names_the_documents_whose_text_is_in_the_batch(made: Store, split: str) -> None:
    tokens, tokenizer = open_tokens(made, split=split), load_tokenizer(made)
    corpus = {d["id"]: d for source in range(3) for d in documents(90, source)}
    steps = range(0, 40, 9) if split == "train" else range(tokens.steps)
    for step in steps:
        batch = tokens.batch(step)
        rebuilt: dict[int, list[int]] = {n: [] for n in batch.samples}
        for row in tokens.trace(step, text=True):
            known = corpus[row.document]
            assert row.start < row.end
            assert (row.url, row.language) == (known["url"], known["language"])
            ids = [*tokenizer.encode(known["text"]), 0][row.start : row.end]
            assert row.text == tokenizer.decode(i for i in ids if i)
            assert made.stat(row.shard) is not None
            rebuilt[row.sample] += ids
        for n, ids, mask in zip(batch.samples, batch.ids, batch.loss_mask, strict=False):
            assert rebuilt[n] == ids[1:][mask].tolist()


def test_the_trace_of_a_rank_is_its_part_and_reads_no_tokens(made_here: Store) -> None:
    watched = _Flaky(made_here, times=0)
    tokens = open_tokens(watched)
    whole = tokens.trace(5)
    parts = [tokens.trace(5, rank=rank, world=3) for rank in range(3)]
    assert whole == parts[0] + parts[1] + parts[2]
    assert {row.sample for row in parts[1]} == set(tokens.batch(5, 1, 3).samples)
    watched.ranges.clear()
    open_tokens(watched).trace(6)
    assert watched.ranges == []


def test_making_and_planning_need_no_torch(made_folder: Path) -> None:
    code = (
        "import sys; from eyas.store import open_store; from eyas.tokens import open_tokens, "
        "load_tokenizer, plan_digest; store = open_store(sys.argv[1]); load_tokenizer(store);"
        "print(plan_digest(open_tokens(store), 0, 3)); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(made_folder)],
        env=os.environ | {"PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == plan_digest(open_tokens(open_store(str(made_folder))), 0, 3)


def test_many_steps_hold_no_more_than_the_caches(made_here: Store) -> None:
    keys = {"train__tokens": 384 * 300, "data__epochs": 1000}
    make_data_plan(recipe(made_here, **keys), made_here)
    tokens: Tokens = open_tokens(made_here, cache_bytes=20_000)
    for step in range(300):
        tokens.rows(step)
    assert tokens._blocks._blocks._held <= 20_000
    (order,) = tokens._orders.values()
    assert len(order._epochs) <= 4  # type: ignore[attr-defined]
