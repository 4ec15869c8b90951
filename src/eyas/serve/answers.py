"""From the engine's thread to one HTTP request: events in order, and the client watched meanwhile.

`Answers` is where two worlds meet: the engine calls `deliver` in its own thread, the request awaits
events in the event loop. A client that goes away ends it, whether it was waiting in the queue or
being streamed to, and with it the work in the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from starlette.requests import ClientDisconnect, Request

from eyas.model import Piece

from .engine import Engine, Generation, Ticket
from .errors import ApiError

__all__ = ["Answers"]


class Answers:
    """The pieces of a group of choices, as an asynchronous iterator of (choice, piece).

    Used as a context: leaving it cancels what is not finished. Iterating raises ApiError where the
    engine failed, ClientDisconnect where the client has gone.
    """

    def __init__(self, engine: Engine, generations: Sequence[Generation], request: Request) -> None:
        self._engine = engine
        self._generations = generations
        self._request = request
        self._events: asyncio.Queue[tuple[int, Piece | ApiError] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._ticket: Ticket | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Answers:
        """Submits. Raises ApiError if the engine refuses."""
        self._ticket = self._engine.submit(self._generations, self._deliver)
        self._watcher = asyncio.create_task(self._watch())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ticket is not None:
            self._ticket.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        left = len(self._generations)
        while left:
            event = await self._events.get()
            if event is None:
                raise ClientDisconnect
            number, piece = event
            if isinstance(piece, ApiError):
                raise piece
            left -= piece.finish_reason is not None
            yield number, piece

    def _deliver(self, number: int, event: Piece | ApiError) -> None:
        # The loop is closed only when the server has ended without its shutdown.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, (number, event))

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        if self._ticket is not None:
            self._ticket.cancel()
        self._events.put_nowait(None)
