"""The completions API of OpenAI: what a request may say, and what is answered.

Pure: parsed JSON in, a `CompletionRequest` or an ApiError out; generated pieces in, response bodies
out. The contract is OpenAI's `POST /v1/completions`. An explicit null is as good as leaving out. A
parameter that is not done here is refused by name unless it asks for nothing (a penalty of 0): a
server that ignores what it was asked gives a wrong answer that looks right. `token_healing` is
ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ApiError

__all__ = [
    "CompletionRequest",
    "Limits",
    "Usage",
    "choice",
    "choice_seed",
    "chunk",
    "parse_completion",
]

Prompt = str | tuple[int, ...]

_KNOWN = {
    "model",
    "prompt",
    "max_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "stream",
    "stream_options",
    "echo",
    "user",
    "token_healing",
}
_NOT_DONE = frozenset(
    {"logprobs", "suffix", "presence_penalty", "frequency_penalty", "logit_bias", "best_of"}
)


@dataclass(frozen=True)
class Limits:
    """What one request may ask, and how much may wait."""

    max_tokens: int = 1024
    """tokens a choice"""
    choices: int = 64
    """prompts times n in one request"""
    body_bytes: int = 2**20
    """size of a request's body"""
    body_seconds: float = 30.0
    """time that a client has to send it"""
    queue: int = 256
    """choices waiting or running for one model; beyond it requests are refused with 429"""
    active: int = 8
    """choices generated in turn, a token each; the others wait"""


@dataclass(frozen=True)
class CompletionRequest:
    """A request that is in order. `seed` None: a fresh one."""

    model: str
    prompts: tuple[Prompt, ...]
    max_tokens: int
    temperature: float
    top_p: float
    n: int
    stop: tuple[str, ...]
    seed: int | None
    stream: bool
    include_usage: bool
    echo: bool
    token_healing: bool


@dataclass(frozen=True)
class Usage:
    """Tokens in and out; a prompt counts once however many choices it gets."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def body(self) -> dict[str, int]:
        """As OpenAI writes it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


def parse_completion(body: object, limits: Limits) -> CompletionRequest:
    """Raises ApiError 400 naming the first parameter that is wrong."""
    if not isinstance(body, dict):
        raise ApiError(400, "The body must be a JSON object.")
    given = {key: value for key, value in body.items() if value is not None}
    n = _integer(given, "n", 1, 1, limits.choices)
    _refuse_unknown(given, n)
    prompts = _prompts(given.get("prompt"))
    if len(prompts) * n > limits.choices:
        raise _wrong(
            "prompt" if n == 1 else "n",
            f"{len(prompts)} prompts times n = {n} are {len(prompts) * n} choices; "
            f"at most {limits.choices} in one request",
        )
    stream = _boolean(given, "stream")
    return CompletionRequest(
        model=_model(given),
        prompts=prompts,
        max_tokens=_integer(given, "max_tokens", 16, 0, limits.max_tokens),
        temperature=_number(given, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(given, "top_p", 1.0, 0.0, 1.0),
        n=n,
        stop=_stop(given.get("stop")),
        seed=_seed(given),
        stream=stream,
        include_usage=_include_usage(given.get("stream_options"), stream),
        echo=_boolean(given, "echo"),
        token_healing=_boolean(given, "token_healing"),
    )


def choice_seed(seed: int, number: int) -> int:
    """The seed of a prompt's choice `number` in 0..2^63-1: the first has the request's own, the
    others are drawn from it, so that n choices differ and each comes again."""
    if number == 0:
        return seed & (2**63 - 1)
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    """One choice of an answer or of a chunk of it."""
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def chunk(
    head: Mapping[str, Any], choices: list[dict[str, Any]], usage: Usage | None
) -> dict[str, Any]:
    """A whole answer, or a chunk of a stream; `head` has id, created and model."""
    return {
        **head,
        "object": "text_completion",
        "choices": choices,
        "usage": usage.body if usage else None,
    }


def _wrong(param: str, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, f"'{param}': {message}.", param=param, code=code)


def _refuse_unknown(given: Mapping[str, object], n: int) -> None:
    for name, value in given.items():
        if name in _KNOWN:
            continue
        if name not in _NOT_DONE:
            raise _wrong(_shown(name), "there is no such parameter", "unknown_parameter")
        if not _asks_nothing(name, value, n):
            raise _wrong(name, "this server does not do it yet", "unsupported_parameter")
    if not isinstance(given.get("user", ""), str):
        raise _wrong("user", "a string is wanted")


def _asks_nothing(name: str, value: object, n: int) -> bool:
    if name == "best_of":
        return type(value) is int and value == n
    if name == "logprobs":
        return value is False
    if name in ("suffix", "logit_bias"):
        return value in ("", {})
    return type(value) in (int, float) and value == 0


def _model(given: Mapping[str, object]) -> str:
    model = given.get("model")
    if model is None:
        raise _wrong("model", "it is missing", "missing_required_parameter")
    if not isinstance(model, str):
        raise _wrong("model", "a string is wanted")
    return model


def _prompts(value: object) -> tuple[Prompt, ...]:
    """A string, a list of strings, a list of token ids, or a list of such lists."""
    if value is None:
        raise _wrong("prompt", "it is missing", "missing_required_parameter")
    if isinstance(value, str):
        return (_text("prompt", value),)
    if isinstance(value, list) and value:
        if all(isinstance(v, str) for v in value):
            return tuple(_text("prompt", v) for v in value)
        if _are_ids(value):
            return (tuple(value),)
        if all(isinstance(v, list) and _are_ids(v) for v in value):
            return tuple(tuple(v) for v in value)
    raise _wrong(
        "prompt", "a string, a list of strings, a list of token ids or a list of those is wanted"
    )


def _are_ids(value: list[object]) -> bool:
    return all(type(v) is int and v >= 0 for v in value)


def _text(param: str, value: str) -> str:
    """Itself, if it is Unicode text: JSON can write half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(param, "it holds half of a surrogate pair, which is no character") from None
    return value


def _stop(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value if value is not None else []
    if not isinstance(stops, list) or not all(isinstance(s, str) for s in stops):
        raise _wrong("stop", "a string or a list of strings is wanted")
    if len(stops) > 4:
        raise _wrong("stop", f"{len(stops)} strings; at most 4")
    if not all(stops):
        raise _wrong("stop", "an empty string stops nothing; leave it out")
    return tuple(_text("stop", s) for s in stops)


def _seed(given: Mapping[str, object]) -> int | None:
    if "seed" not in given:
        return None
    return _integer(given, "seed", 0, -(2**63), 2**63 - 1)


def _include_usage(value: object, stream: bool) -> bool:
    if value is None:
        return False
    if not stream:
        raise _wrong("stream_options", "it goes only with stream = true")
    if not isinstance(value, dict):
        raise _wrong("stream_options", "an object is wanted")
    for name in value:
        if name != "include_usage":
            raise _wrong(
                f"stream_options.{_shown(name)}", "there is no such parameter", "unknown_parameter"
            )
    return _boolean({k: v for k, v in value.items() if v is not None}, "include_usage")


def _integer(given: Mapping[str, object], name: str, usual: int, low: int, high: int) -> int:
    value = given.get(name, usual)
    if type(value) is not int:
        raise _wrong(name, "a whole number is wanted")
    if not low <= value <= high:
        raise _wrong(name, f"{_short(value)} is out of range: {low} to {high}")
    return value


def _number(given: Mapping[str, object], name: str, usual: float, low: float, high: float) -> float:
    value = given.get(name, usual)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(name, "a number is wanted")
    if not low <= value <= high:
        raise _wrong(name, f"{_short(value)} is out of range: {low:g} to {high:g}")
    return float(value)


def _boolean(given: Mapping[str, object], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false is wanted")
    return value


def _shown(name: str) -> str:
    """A name from outside, cut, and without the half characters that no answer can carry."""
    return name[:64].encode("utf-8", "replace").decode()


def _short(value: float) -> str:
    """A number as given, unless it is absurdly long."""
    if isinstance(value, int) and abs(value) >= 10**24:
        return "a number of more than 24 digits"
    return str(value)
