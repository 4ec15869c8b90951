"""The engine: one thread a model, which makes the tokens of several answers in turn.

A request is a group of choices. They wait in one queue; up to `active` of them run, each getting
one token a turn, so that a short answer does not stand behind a long one. What is admitted is
bounded (`queue`); a group that does not fit is refused at once with the seconds after which it is
worth asking again. A cancelled group frees its places at once and costs at most the token being
made. Only the engine's thread touches the model.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eyas.model import Piece
from eyas.recipe import EyasError

from .errors import ApiError

__all__ = ["Deliver", "Engine", "Generation", "Served", "ServedShape", "ServedTokenizer", "Ticket"]

_log = logging.getLogger("eyas.serve")


class ServedShape(Protocol):
    """What is read of a shape."""

    @property
    def max_sequence(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


class ServedTokenizer(Protocol):
    """What is asked of a tokenizer."""

    def encode(self, text: str, /) -> list[int]: ...
    def decode(self, ids: Sequence[int], /) -> str: ...


class Served(Protocol):
    """What is asked of a model; `eyas.model.Model` is one."""

    @property
    def shape(self) -> ServedShape: ...
    @property
    def tokenizer(self) -> ServedTokenizer: ...
    def pieces(
        self,
        prompt: Sequence[int],
        /,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop: Sequence[str],
        top_p: float,
        *,
        heal: bool,
    ) -> Iterator[Piece]: ...


@dataclass(frozen=True)
class Generation:
    """One choice to be made."""

    ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]
    heal: bool


Deliver = Callable[[int, Piece | ApiError], None]
"""Called in the engine's thread with a choice's number and its next piece, or why it has failed."""


@dataclass(eq=False)
class _Choice:
    number: int
    generation: Generation
    deliver: Deliver
    ticket: Ticket
    pieces: Iterator[Piece] | None = None
    seconds: float = 0.0


class Ticket:
    """A group of choices in the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.cancelled = False

    def cancel(self) -> None:
        """Make no more of it; of no effect on what is finished. From any thread."""
        self._engine._cancel(self)


@dataclass(eq=False)
class Engine:
    """Serves one model. `start` it before use, `close` it after."""

    model: Served
    queue: int = 256
    active: int = 8
    _waiting: deque[_Choice] = field(default_factory=deque)
    _running: deque[_Choice] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closing: bool = False
    _thread: threading.Thread | None = None
    _seconds_a_choice: float = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="eyas-engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every choice with an error 503 and wait until the thread has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def load(self) -> int:
        """Choices waiting and running."""
        with self._changed:
            return len(self._waiting) + len(self._running)

    def submit(self, generations: Sequence[Generation], deliver: Deliver) -> Ticket:
        """Admit a group as a whole. Raises ApiError 429 with `retry_after` if it does not fit into
        the queue now, 503 if the engine is closing."""
        ticket = Ticket(self)
        with self._changed:
            if self._closing or self._thread is None:
                raise _shutting_down()
            load = len(self._waiting) + len(self._running)
            if load + len(generations) > self.queue:
                wait = math.ceil(load * self._seconds_a_choice)
                raise ApiError(
                    429,
                    f"The queue is full: {load} of {self.queue} places are taken. Ask again later.",
                    code="queue_full",
                    retry_after=min(60, max(1, wait)),
                )
            self._waiting.extend(
                _Choice(number, generation, deliver, ticket)
                for number, generation in enumerate(generations)
            )
            self._changed.notify_all()
        return ticket

    def _cancel(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.cancelled = True
            # The first running one may be at work: `_step` sees that it is cancelled.
            at_work = [self._running.popleft()] if self._running else []
            for line in (self._waiting, self._running):
                kept = [c for c in line if c.ticket is not ticket]
                line.clear()
                line.extend(kept)
            self._running.extendleft(at_work)

    def _run(self) -> None:
        while (choice := self._next()) is not None:
            event = self._step(choice)
            going = isinstance(event, Piece) and event.finish_reason is None
            with self._changed:
                self._running.remove(choice)
                if going:
                    self._running.append(choice)
                else:
                    self._seconds_a_choice += 0.2 * (choice.seconds - self._seconds_a_choice)
            if not going:
                _end(choice)
            if event is not None:
                choice.deliver(choice.number, event)
        self._end_all()

    def _next(self) -> _Choice | None:
        """The choice whose turn it is, waiting for one; None when closing."""
        with self._changed:
            while not self._closing:
                while self._waiting and len(self._running) < self.active:
                    self._running.append(self._waiting.popleft())
                if self._running:
                    return self._running[0]
                self._changed.wait()
        return None

    def _step(self, choice: _Choice) -> Piece | ApiError | None:
        """Make one piece; None if nobody wants it any more."""
        if choice.ticket.cancelled:
            return None
        started = time.monotonic()
        try:
            if choice.pieces is None:
                choice.pieces = self._begin(choice.generation)
            return next(choice.pieces)
        except EyasError as error:
            return ApiError(400, str(error))
        except Exception as error:  # noqa: BLE001 one bad request must not end the engine
            # The message may quote the prompt: only where it happened is logged.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("generation failed with %s\n%s", type(error).__name__, where)
            return ApiError(500, "The model failed on this request; the log says where.")
        finally:
            choice.seconds += time.monotonic() - started

    def _begin(self, g: Generation) -> Iterator[Piece]:
        return self.model.pieces(
            g.ids,
            max_tokens=g.max_tokens,
            temperature=g.temperature,
            seed=g.seed,
            stop=g.stop,
            top_p=g.top_p,
            heal=g.heal,
        )

    def _end_all(self) -> None:
        with self._changed:
            left = [*self._running, *self._waiting]
            self._running.clear()
            self._waiting.clear()
        for choice in left:
            _end(choice)
            if not choice.ticket.cancelled:
                choice.deliver(choice.number, _shutting_down())


def _end(choice: _Choice) -> None:
    """Free the cache that the generator holds."""
    close = getattr(choice.pieces, "close", None)
    choice.pieces = None
    if close is not None:
        with contextlib.suppress(Exception):
            close()


def _shutting_down() -> ApiError:
    return ApiError(503, "The server is shutting down.", code="shutting_down", retry_after=5)
