from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from eyas.checkpoint import CheckpointError, Fenced, latest_attempt, take_attempt
from eyas.checkpoint.attempts import check_attempt
from eyas.recipe import EyasError
from eyas.store import StoreError, unseal

from .faults import Ambiguous, Failing


def test_attempts_are_numbered_from_one(store):
    assert latest_attempt(store) == 0
    assert [take_attempt(store, {}) for _ in range(3)] == [1, 2, 3]
    assert latest_attempt(store) == 3


def test_an_attempt_keeps_its_payload(store):
    take_attempt(store, {"host": "a1"})
    key = "checkpoints/attempts/000001"
    assert unseal(store, key, store.get(key))["host"] == "a1"


def test_sixteen_takers_get_sixteen_numbers(store):
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda n: take_attempt(store, {"taker": n}), range(16)))
    assert sorted(taken) == list(range(1, 17))


def test_an_ambiguous_answer_does_not_waste_a_number(store):
    assert take_attempt(Ambiguous(store), {}) == 1
    assert latest_attempt(store) == 1


def test_a_failed_listing_is_not_taken_for_none(store):
    take_attempt(store, {})
    with pytest.raises(StoreError):
        latest_attempt(Failing(store, "list", "attempts"))


def test_an_older_attempt_is_fenced_with_exit_code_93(store):
    take_attempt(store, {})
    check_attempt(store, 1)
    take_attempt(store, {})
    with pytest.raises(Fenced, match="attempt 1 may not write") as caught:
        check_attempt(store, 1)
    assert isinstance(caught.value, EyasError)
    assert caught.value.exit_code == 93


def test_an_attempt_that_nobody_took_may_not_write(store):
    with pytest.raises(CheckpointError, match="never taken"):
        check_attempt(store, 7)
