"""Promises of batches."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tokens.made import BLOCK_BYTES, object_tokens, recipe

from eyas.recipe import EyasError, UsageError
from eyas.store import Corrupt, Store, StoreError, open_store
from eyas.tokens import (
    Tokens,
    check_model_vocabulary,
    load_tokenizer,
    make_data_plan,
    open_tokens,
    plan_digest,
)
from eyas.tokens.rows import BatchMemory

BLOCK_TOKENS = BLOCK_BYTES // 2


def test_a_batch_has_the_promised_shapes(made: Store) -> None:
    tokens = open_tokens(made)
    batch = tokens.batch(0)
    assert tokens.steps == 40
    assert tokens.sequence == 32
    assert batch.ids.shape == batch.document_ids.shape == (12, 33)
    assert batch.loss_mask.shape == (12, 32)
    assert batch.ids.dtype == batch.document_ids.dtype == torch.int64
    assert batch.loss_mask.dtype == torch.bool
    assert sorted(batch.samples) == list(range(12))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_any_world_at_any_time_sees_the_same_step(made: Store, world: int) -> None:
    known, fresh = open_tokens(made), open_tokens(made)
    for step in (0, 39, 7, 7, 22):
        _check_parts(known, fresh, step, world)


@pytest.mark.parametrize("world", [1, 3, 5, 8, 13])
def test_of_a_mixture_and_a_ragged_world_too(mixed: Store, world: int) -> None:
    known, fresh = open_tokens(mixed), open_tokens(mixed, ragged=True)
    for step in (0, 39, 7):
        _check_parts(known, fresh, step, world)


def _check_parts(known: Tokens, fresh: Tokens, step: int, world: int) -> None:
    """The parts of the ranks, without their padding, are the whole batch in order."""
    whole = known.batch(step)
    parts = [fresh.batch(step, rank, world) for rank in range(world)]
    assert len({part.ids.shape for part in parts}) == 1, "every rank has as many rows"
    for name in ("ids", "document_ids", "loss_mask"):
        rows = [getattr(part, name)[: len(part.samples)] for part in parts]
        assert torch.equal(torch.cat(rows), getattr(whole, name))
    for part in parts:
        count = len(part.samples)
        assert not part.loss_mask[count:].any()
        assert (part.document_ids[count:] == -1).all()
        assert (part.ids[count:] == 0).all()
    assert sum((part.samples for part in parts), ()) == whole.samples
    assert sum(part.digest for part in parts) % 2**64 == whole.digest
    assert known.digest(whole) == whole.digest


@pytest.mark.parametrize("store_of", ["made_here", "mixed"])
def test_rows_are_windows_of_their_objects_with_the_token_before_them(
    store_of: str, made_folder: Path, request: pytest.FixtureRequest
) -> None:
    """Held against the objects read whole; the places are those of the order."""
    store = request.getfixturevalue(store_of)
    tokens = open_tokens(store)
    ids: list[list[np.ndarray]] = []  # type: ignore[type-arg]
    numbers: list[list[np.ndarray]] = []  # type: ignore[type-arg]
    first_document = 0
    for source in tokens.plan.segments[0].sources:
        at = open_store(str(made_folder)) if source.store else store
        of_source, documents = object_tokens(at, source.part, "train")
        ids.append(of_source)
        numbers.append([first_document + own for own in documents])
        first_document = int(numbers[-1][-1][-1]) + 1
    sources, short = set(), 0
    for step in range(40):
        batch, where = tokens.batch(step), tokens._one(step, 0, 1)
        assert batch.samples == tuple(where.samples.tolist())
        for run in where.runs:
            source, number, block = run.key
            data, documents = ids[source][number], numbers[source][number]
            sources.add(source)
            for row in range(run.first, run.stop):
                start = block * BLOCK_TOKENS + int(where.start[row])
                stop = min(start + 32, (block + 1) * BLOCK_TOKENS, len(data))
                length = stop - start
                short += length < 32
                assert batch.ids[row, 1 : length + 1].tolist() == data[start:stop].tolist()
                assert batch.ids[row, 0] == (data[start - 1] if start else 0)
                window = documents[start:stop].tolist()
                assert batch.document_ids[row, 1 : length + 1].tolist() == window
                assert batch.document_ids[row, 0] == (documents[start - 1] if start else -1)
                assert batch.loss_mask[row].tolist() == [i < length for i in range(32)]
                assert (batch.ids[row, length + 1 :] == 0).all()
                assert (batch.document_ids[row, length + 1 :] == -1).all()
    assert len(sources) == len(ids)
    assert short, "the short samples at the end of objects were among them"


def test_the_places_of_a_step_are_those_that_the_order_gives(mixed: Store) -> None:
    tokens = open_tokens(mixed)
    (segment,) = tokens.plan.segments
    for step in range(20):
        chosen, where = segment.selection(step), tokens._one(step, 0, 1)
        got = {
            int(where.samples[row]): (*run.key, int(where.start[row]))
            for run in where.runs
            for row in range(run.first, run.stop)
        }
        for sample, source, index in zip(
            chosen.samples.tolist(), chosen.source.tolist(), chosen.index, strict=True
        ):
            order = tokens._sources[source].shuffled(32, segment.seed, tokens.plan.window)
            place = order.places(np.array([index]))
            expected = (source, int(place.object[0]), int(place.block[0]), int(place.start[0]))
            assert got[sample] == expected
        assert list(got.values()) == sorted(got.values()), "rows of a block stand together"


def test_every_token_of_an_epoch_is_a_target_once_tail_included(made_here: Store) -> None:
    """Batches of one sample, so that steps cover exactly one epoch and the next."""
    probe = open_tokens(made_here).plan.segments[0].sources[0].samples
    keys = {"train__global_batch": 32, "train__tokens": 32 * 2 * probe}
    make_data_plan(recipe(made_here, **keys), made_here)
    tokens = open_tokens(made_here)
    assert tokens.steps == 2 * probe
    objects, numbers = object_tokens(made_here, "corpus", "train")
    for epoch in range(2):
        targets: Counter[int] = Counter()
        per_document: Counter[int] = Counter()
        for step in range(epoch * probe, (epoch + 1) * probe):
            batch = tokens.batch(step)
            mask = batch.loss_mask
            targets.update(batch.ids[:, 1:][mask].tolist())
            per_document.update(batch.document_ids[:, 1:][mask].tolist())
        assert targets == Counter(np.concatenate(objects).tolist())
        assert per_document == Counter(np.concatenate(numbers).tolist())


@pytest.mark.parametrize("store_of", ["made_here", "mixed"])
def test_the_validation_split_is_seen_once_in_a_fixed_order(
    store_of: str, made_folder: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(store_of)
    tokens = open_tokens(store, split="validation")
    expected: list[int] = []
    for source in tokens.plan.segments[0].sources:
        at = open_store(str(made_folder)) if source.store else store
        expected += np.concatenate(object_tokens(at, source.part, "validation")[0]).tolist()
    seen: list[int] = []
    documents: list[int] = []
    for step in range(tokens.steps):
        parts = [tokens.batch(step, rank, 2) for rank in range(2)]
        seen += [t for p in parts for t in p.ids[:, 1:][p.loss_mask].tolist()]
        documents += [d for p in parts for d in p.document_ids[:, 1:][p.loss_mask].tolist()]
        assert all(p.ids.shape == (6, 33) for p in parts)
        assert sum(p.digest for p in parts) % 2**64 == tokens.batch(step).digest
    assert seen == expected
    assert documents == sorted(documents)
    assert set(documents) == set(range(expected.count(0))), "unique over the sources"
    with pytest.raises(UsageError, match="validation"):
        tokens.batch(tokens.steps)
    with pytest.raises(UsageError, match="train and validation"):
        open_tokens(store, split="test")


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
        total += xxhash.xxh3_64_intdigest(ids.astype("<u2").tobytes(), seed=number)
    assert batch.digest == total % 2**64


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
    with pytest.raises(EyasError, match="version 1 of the tokens, which the data plan is about"):
        open_tokens(made_here)


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


def test_a_manifest_that_is_not_the_planned_one_is_refused(mixed: Store, tmp_path: Path) -> None:
    key = "tokens/manifest-000001.json"
    manifest = mixed.get(key)
    mixed.put(key, manifest.replace(b'"code":', b'"code" :'))
    with pytest.raises(Corrupt, match="manifest"):
        open_tokens(mixed)


def test_memory_of_a_batch_is_used_again_only_when_nobody_holds_any_of_it() -> None:
    memory = BatchMemory()

    def address(array: np.ndarray) -> int:  # type: ignore[type-arg]
        return int(array.__array_interface__["data"][0])

    ids, mask = memory.take(4, 8)
    assert (ids.shape, mask.shape) == ((4, 9), (4, 8))
    first = address(ids)
    view = mask[1:, ::2].T
    tensor = torch.from_numpy(ids)[2:]
    del ids, mask
    assert address(memory.take(4, 8)[0]) != first, "a view of the mask is held"
    del view
    assert address(memory.take(4, 8)[0]) != first, "a tensor of the ids is held"
    array = tensor.numpy()[0]
    del tensor
    assert address(memory.take(4, 8)[0]) != first, "an array of that tensor is held"
    del array
    taken = [memory.take(4, 8)[0] for _ in range(3)]
    assert first in map(address, taken)
    assert memory.take(5, 8)[0].shape == (5, 9)


def test_batches_that_are_held_keep_their_numbers(made_here: Store) -> None:
    tokens = open_tokens(made_here)
    held = [tokens.batch(step) for step in range(12)]
    for step, batch in enumerate(held):
        assert torch.equal(batch.ids, open_tokens(made_here).batch(step).ids)
        assert tokens.digest(batch) == batch.digest


def test_reading_needs_no_more_than_the_caches(made_here: Store) -> None:
    keys = {"train__tokens": 384 * 300, "data__epochs": 1000}
    make_data_plan(recipe(made_here, **keys), made_here)
    tokens = open_tokens(made_here, cache_bytes=20_000)
    for step in range(300):
        tokens.rows(step)
    assert tokens._blocks._held <= 20_000
    (order,) = tokens._sources[0]._orders.values()
    assert len(order._epochs) <= 4  # type: ignore[attr-defined]
