"""The engine: turns, a bounded queue, cancellation, failures that stay where they happen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.serve.made import Script

from eyas.model import Piece
from eyas.recipe import UsageError
from eyas.serve import ApiError
from eyas.serve.engine import Engine, Generation

Events = queue.Queue[tuple[int, Piece | ApiError]]


def generation(tokens: int = 4) -> Generation:
    return Generation((1, 2), tokens, 0.0, 1.0, 0, (), heal=False)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = Engine(**request.param)
    engine.start()
    yield engine
    if isinstance(engine.model, Script) and engine.model.gate is not None:
        engine.model.gate.release(1000)
    engine.close()


def ask(engine: Engine, count: int = 1, tokens: int = 4) -> tuple[Any, Events]:
    events: Events = queue.Queue()
    ticket = engine.submit(
        [generation(tokens)] * count, lambda number, event: events.put((number, event))
    )
    return ticket, events


def texts(events: Events, count: int = 1) -> list[str]:
    found, left = [""] * count, count
    while left:
        number, piece = events.get(timeout=60)
        assert isinstance(piece, Piece)
        found[number] += piece.text
        left -= piece.finish_reason is not None
    return found


with_script = pytest.mark.parametrize("engine", [{"model": Script()}], indirect=True)


@with_script
def test_every_choice_of_a_group_is_answered(engine: Engine) -> None:
    _, events = ask(engine, count=3)
    assert texts(events, 3) == ["abca"] * 3
    assert engine.load == 0


@pytest.mark.parametrize(
    "engine", [{"model": Script(gate=threading.Semaphore(0)), "active": 2}], indirect=True
)
def test_running_choices_take_turns_and_the_others_wait(engine: Engine) -> None:
    _, events = ask(engine, count=3)
    engine.model.gate.release(4)
    order = [events.get(timeout=60)[0] for _ in range(4)]
    assert order == [0, 1, 0, 1]
    engine.model.gate.release(100)
    assert {events.get(timeout=60)[0] for _ in range(11)} == {0, 1, 2}


@pytest.mark.parametrize(
    "engine", [{"model": Script(gate=threading.Semaphore(0)), "queue": 3}], indirect=True
)
def test_a_full_queue_refuses_at_once_and_says_when_to_come_again(engine: Engine) -> None:
    ticket, _ = ask(engine, count=2)
    with pytest.raises(ApiError) as caught:
        ask(engine, count=2)
    assert caught.value.status == 429
    assert caught.value.retry_after is not None
    assert caught.value.retry_after >= 1
    ask(engine, count=1)
    ticket.cancel()
    assert engine.load <= 2  # the one at work, and the third


@pytest.mark.parametrize(
    "engine",
    [{"model": Script(gate=threading.Semaphore(0)), "queue": 8, "active": 2}],
    indirect=True,
)
def test_cancelling_frees_every_place_and_costs_no_more_tokens(engine: Engine) -> None:
    script = engine.model
    first, _ = ask(engine, count=4)
    assert script.started.acquire(timeout=60)
    first.cancel()
    _, events = ask(engine, count=1)
    script.gate.release(5)
    assert texts(events) == ["abca"]
    assert script.tokens <= 5
    assert engine.load == 0
    assert script.closed.acquire(timeout=60)


@pytest.mark.parametrize("engine", [{"model": Script(fail=RuntimeError("secret"))}], indirect=True)
def test_a_failure_ends_its_request_alone_and_tells_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    _, events = ask(engine)
    found = [events.get(timeout=60)[1] for _ in range(3)]
    assert isinstance(found[2], ApiError)
    assert found[2].status == 500
    assert "secret" not in found[2].message
    assert "secret" not in caplog.text
    assert "RuntimeError" in caplog.text
    _, events = ask(engine, tokens=2)
    assert texts(events) == ["ab"]


@pytest.mark.parametrize("engine", [{"model": Script(fail=UsageError("too long"))}], indirect=True)
def test_what_the_model_refuses_is_the_request_s_fault(engine: Engine) -> None:
    _, events = ask(engine)
    error = [events.get(timeout=60)[1] for _ in range(3)][2]
    assert isinstance(error, ApiError)
    assert (error.status, error.message) == (400, "too long")


def test_closing_ends_what_runs_and_what_waits_and_admits_no_more() -> None:
    script = Script()
    engine = Engine(script, active=1)
    engine.start()
    _, events = ask(engine, count=3, tokens=10**9)
    assert script.started.acquire(timeout=60)
    engine.close()
    ended = {n for n, e in list(events.queue) if isinstance(e, ApiError) and e.status == 503}
    assert ended == {0, 1, 2}
    assert script.closed.acquire(timeout=60)
    with pytest.raises(ApiError) as caught:
        ask(engine)
    assert caught.value.status == 503


@with_script
def test_hundreds_of_cancelled_requests_leave_nothing_behind(engine: Engine) -> None:
    for number in range(300):
        ticket, events = ask(engine, count=1 + number % 5, tokens=50)
        if number % 3 == 0:
            events.get(timeout=60)
        ticket.cancel()
    _, events = ask(engine)
    assert texts(events) == ["abca"]
    assert engine.load == 0
