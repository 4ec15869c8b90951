"""The HTTP application: OpenAI's completions over one engine a model.

Every answer that is not a completion has OpenAI's error form, whatever went wrong. Prompts, answers
and keys are never logged: a request leaves one line with its model, counts and seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from eyas.recipe import UsageError

from .answers import Answers
from .completions import CompletionRequest, Limits, Usage, choice, choice_seed, chunk
from .completions import parse_completion as parse
from .engine import Engine, Generation, Served
from .errors import ApiError
from .keys import Keys

__all__ = ["build_app"]

_log = logging.getLogger("eyas.serve")
_Handler = Callable[[Request], Awaitable[Response]]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_GONE = 499  # what nginx logs for a client that closed the connection; nobody reads it
_DRAIN = 16  # a body that is too large is read away up to this many times the limit


def build_app(
    models: Mapping[str, Served],
    api_key: str | Sequence[str] | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """The ASGI application that serves `models` by name. Its lifespan starts and ends the engines.

    `api_key`: the key, or several, that `Authorization: Bearer` must carry; None: no key. Raises
    UsageError for no models, names that do not fit into a URL, or a model without a tokenizer.
    """
    if not models:
        raise UsageError("there is no model to serve; give at least one NAME=CHECKPOINT")
    for name, model in models.items():
        if not _NAME.fullmatch(name):
            raise UsageError(
                f'model name "{name}" does not fit into a URL: use letters, digits and . _ : / -, '
                "a letter or digit first"
            )
        _ = model.tokenizer
    keys = Keys([api_key] if isinstance(api_key, str) else api_key or ())
    return _Service(models, keys, limits or Limits()).app()


@dataclass(frozen=True)
class _Asked:
    """A request with its prompts as ids: what the engine makes and what the client is told."""

    request: CompletionRequest
    prompts: tuple[tuple[int, ...], ...]
    echoes: tuple[str, ...]
    generations: tuple[Generation, ...]
    head: Mapping[str, Any]

    def echo(self, index: int) -> str:
        return self.echoes[index // self.request.n] if self.request.echo else ""

    def usage(self, completion_tokens: int) -> Usage:
        return Usage(sum(len(ids) for ids in self.prompts), completion_tokens)


class _Service:
    def __init__(self, models: Mapping[str, Served], keys: Keys, limits: Limits) -> None:
        self._engines = {
            name: Engine(model, limits.queue, limits.active) for name, model in models.items()
        }
        self._keys = keys
        self._limits = limits
        self._created = int(time.time())

    def app(self) -> Starlette:
        routes = [
            Route("/health", _guarded(self._health), methods=["GET"]),
            Route("/v1/models", self._locked(self._list), methods=["GET"]),
            Route("/v1/models/{name:path}", self._locked(self._show), methods=["GET"]),
            Route("/v1/completions", self._locked(self._complete), methods=["POST"]),
        ]
        return Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _http_error},
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        for engine in self._engines.values():
            engine.start()
        try:
            yield
        finally:
            for engine in self._engines.values():
                await asyncio.to_thread(engine.close)

    def _locked(self, handler: _Handler) -> _Handler:
        """The key first, before anything of the request is read."""

        async def check(request: Request) -> Response:
            self._keys.check(request.headers.get("authorization"))
            return await handler(request)

        return _guarded(check)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": list(self._engines)})

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(n) for n in self._engines]})

    async def _show(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._engine(name)
        return JSONResponse(self._card(name))

    def _card(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "eyas"}

    def _engine(self, name: str) -> Engine:
        engine = self._engines.get(name)
        if engine is None:
            known = ", ".join(self._engines)
            raise ApiError(
                404,
                f"There is no such model here; there are: {known}.",
                param="model",
                code="model_not_found",
            )
        return engine

    async def _complete(self, request: Request) -> Response:
        wanted = parse(await _json_body(request, self._limits), self._limits)
        engine = self._engine(wanted.model)
        asked = await asyncio.to_thread(_ask, engine.model, wanted)
        answers = Answers(engine, asked.generations, request)
        if wanted.stream:
            return await _stream(asked, answers)
        return await _whole(asked, answers)


def _ask(model: Served, wanted: CompletionRequest) -> _Asked:
    """Encode and check against the model. Raises ApiError 400."""
    tokenizer = model.tokenizer
    prompts = tuple(tuple(tokenizer.encode(p)) if isinstance(p, str) else p for p in wanted.prompts)
    for ids in prompts:
        _check_prompt(model, ids, wanted.max_tokens)
    echoes = [p if isinstance(p, str) else tokenizer.decode(p) for p in wanted.prompts]
    seed = secrets.randbits(63) if wanted.seed is None else wanted.seed
    greedy = wanted.temperature == 0 or wanted.top_p == 0
    generations = tuple(
        Generation(
            ids=ids,
            max_tokens=wanted.max_tokens,
            temperature=0.0 if greedy else wanted.temperature,
            top_p=1.0 if greedy else wanted.top_p,
            seed=choice_seed(seed, number),
            stop=wanted.stop,
            heal=wanted.token_healing,
        )
        for ids in prompts
        for number in range(wanted.n)
    )
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": wanted.model,
    }
    return _Asked(wanted, prompts, tuple(echoes), generations, head)


def _check_prompt(model: Served, ids: Sequence[int], max_tokens: int) -> None:
    context, vocabulary = model.shape.max_sequence, model.shape.vocab_size
    if ids and max(ids) >= vocabulary:
        raise ApiError(
            400,
            f"'prompt': a token id is not in the vocabulary, 0 to {vocabulary - 1}.",
            param="prompt",
        )
    # An empty prompt is one token long: the one that begins a document.
    if max(1, len(ids)) + max_tokens > context:
        raise ApiError(
            400,
            f"This model reads at most {context} tokens; the prompt has {len(ids)} and max_tokens "
            f"asks for {max_tokens} more. Shorten one of them.",
            param="prompt" if len(ids) >= context else "max_tokens",
            code="context_length_exceeded",
        )


async def _whole(asked: _Asked, answers: Answers) -> Response:
    started = time.monotonic()
    texts = [asked.echo(i) for i in range(len(asked.generations))]
    reasons: list[str | None] = [None] * len(texts)
    made = 0
    with answers:
        async for index, piece in answers:
            texts[index] += piece.text
            reasons[index] = piece.finish_reason
            made += len(piece.ids)
    choices = [choice(i, t, r) for i, (t, r) in enumerate(zip(texts, reasons, strict=True))]
    usage = asked.usage(made)
    _note(asked, usage, started)
    return JSONResponse(chunk(asked.head, choices, usage))


async def _stream(asked: _Asked, answers: Answers) -> Response:
    """Waits for the first piece, so that a failure before it still has its status."""
    lines = _lines(asked, answers)
    first = await anext(lines)
    return _EventStream(first, lines)


async def _lines(asked: _Asked, answers: Answers) -> AsyncIterator[bytes]:
    """The events of a stream. An error after the first is an event too."""
    started = time.monotonic()
    made = begun = 0
    silent = {i for i in range(len(asked.generations)) if asked.echo(i)}
    try:
        with answers:
            async for index, piece in answers:
                made += len(piece.ids)
                text = (asked.echo(index) if index in silent else "") + piece.text
                silent.discard(index)
                if text or piece.finish_reason:
                    begun = 1
                    yield _event(
                        chunk(asked.head, [choice(index, text, piece.finish_reason)], None)
                    )
    except ApiError as error:
        if not begun:
            raise
        yield _event(error.body)
        return
    usage = asked.usage(made)
    _note(asked, usage, started)
    if asked.request.include_usage:
        yield _event(chunk(asked.head, [], usage))
    yield b"data: [DONE]\n\n"


def _event(body: Mapping[str, Any]) -> bytes:
    """In ASCII: clients that split lines as Python's `str` does would cut at U+2028 or U+0085."""
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class _EventStream(Response):
    """Server-sent events, from a first one and the rest."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes]) -> None:
        super().__init__(media_type="text/event-stream")
        self._first = first
        self._rest = rest
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def body(data: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await body(self._first)
            async for line in self._rest:
                await body(line)
            await body(b"", more=False)
        except (ClientDisconnect, OSError):
            pass  # nobody listens any more
        finally:
            await self._rest.aclose()  # type: ignore[attr-defined]


async def _json_body(request: Request, limits: Limits) -> object:
    """The body, parsed. Raises ApiError 400, 408, 413 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "Send the request with the header `Content-Type: application/json`.")
    try:
        async with asyncio.timeout(limits.body_seconds):
            data = await _read(request, limits.body_bytes)
    except TimeoutError:
        raise ApiError(
            408, f"The request's body did not come within {limits.body_seconds:g} seconds."
        ) from None
    try:
        return json.loads(data.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON in UTF-8.", code="invalid_json") from None


async def _read(request: Request, most: int) -> bytes:
    """At most `most` bytes. A body that is somewhat larger is read to its end before it is refused:
    closing a connection with unread bytes would lose the refusal on its way."""
    declared = request.headers.get("content-length", "")
    size, parts = 0, []
    if not (declared.isdigit() and int(declared) > _DRAIN * most):
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            elif size > _DRAIN * most:
                break
        if size <= most:
            return b"".join(parts)
    raise ApiError(
        413, f"The request's body is larger than {most} bytes.", code="request_too_large"
    )


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _note(asked: _Asked, usage: Usage, started: float) -> None:
    _log.info(
        "completion model=%s choices=%d prompt_tokens=%d completion_tokens=%d seconds=%.3f",
        asked.request.model,
        len(asked.generations),
        usage.prompt_tokens,
        usage.completion_tokens,
        time.monotonic() - started,
    )


def _guarded(handler: _Handler) -> _Handler:
    """Whatever happens becomes an answer in the API's own form."""

    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request)
        except ApiError as error:
            return error.response()
        except ClientDisconnect:
            return Response(status_code=_GONE)
        except Exception as error:  # noqa: BLE001 the last line before the client
            # The message may quote the prompt: only where it happened is logged.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("a request failed with %s\n%s", type(error).__name__, where)
            return ApiError(
                500, "The server failed on this request; the log says where."
            ).response()

    return endpoint


async def _http_error(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        allowed = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
        response: Response = ApiError(405, f"This path takes only {allowed}.").response()
        response.headers["Allow"] = allowed
        return response
    return ApiError(status, "There is no such path here.", code="not_found").response()
