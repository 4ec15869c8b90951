"""A real server on a real port, asked by httpx and by OpenAI's own client."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.model.test_healing import reciter
from tests.serve.made import SHAPE, Bytes, Script, random_model

from eyas.model import Model
from eyas.recipe import UsageError
from eyas.serve import Limits, RunningServer, ServeError, start_server

PROMPT = "The falcon"
_SHORT = httpx.Timeout(60, read=0.3)
ARABIC = "صقرٌ 🦅 يطير—"


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model()


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[RunningServer]:
    limits = Limits(max_tokens=100, body_bytes=4096, choices=8)
    models = {"falcon": model, "house/script-1": Script(ARABIC)}
    with start_server(models, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def post(http: httpx.Client, **keys: Any) -> httpx.Response:
    body = {"model": "falcon", "prompt": PROMPT, "temperature": 0} | keys
    return http.post("/v1/completions", json=body)


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    found: dict[str, Any] = body["error"]
    return found


def test_a_completion_is_the_model_s_own(client: openai.OpenAI, model: Model) -> None:
    got = client.completions.create(model="falcon", prompt=PROMPT, max_tokens=12, temperature=0)
    own = model.complete(PROMPT, 12)
    assert got.choices[0].text == own.text
    assert got.choices[0].finish_reason == own.finish_reason
    assert got.usage is not None
    assert got.usage.prompt_tokens == len(PROMPT)
    assert got.usage.completion_tokens == len(own.ids)
    assert got.usage.total_tokens == len(PROMPT) + len(own.ids)
    assert (got.object, got.model) == ("text_completion", "falcon")
    assert got.id.startswith("cmpl-")


def test_a_stream_gives_the_same_text_and_usage(client: openai.OpenAI) -> None:
    whole = client.completions.create(
        model="falcon", prompt=PROMPT, max_tokens=20, temperature=0.9, seed=7
    )
    stream = client.completions.create(
        model="falcon",
        prompt=PROMPT,
        max_tokens=20,
        temperature=0.9,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == whole.choices[0].text
    reasons = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_is_server_sent_events_that_end_with_done(http: httpx.Client) -> None:
    response = post(http, max_tokens=3, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    for event in events[:-2]:
        body = json.loads(event.removeprefix("data: "))
        assert body["object"] == "text_completion"
        assert body["usage"] is None


def test_arabic_and_emoji_stream_intact(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="house/script-1", prompt=ARABIC, max_tokens=len(ARABIC) * 3, stream=True
    )
    texts = [c.text for chunk in stream for c in chunk.choices]
    assert "".join(texts) == ARABIC * 3
    assert len(texts) > len(ARABIC)


def test_random_bytes_stream_as_they_come_whole(client: openai.OpenAI) -> None:
    for seed in range(5):
        whole = client.completions.create(
            model="falcon", prompt=ARABIC, max_tokens=60, temperature=2, seed=seed
        )
        stream = client.completions.create(
            model="falcon", prompt=ARABIC, max_tokens=60, temperature=2, seed=seed, stream=True
        )
        assert "".join(c.text for chunk in stream for c in chunk.choices) == whole.choices[0].text


def test_prompts_may_be_several_and_ids(client: openai.OpenAI) -> None:
    ids = Bytes().encode(PROMPT)
    texts = client.completions.create(
        model="falcon", prompt=[PROMPT, "x"], max_tokens=5, temperature=0
    )
    tokens = client.completions.create(
        model="falcon", prompt=[ids, Bytes().encode("x")], max_tokens=5, temperature=0
    )
    one = client.completions.create(model="falcon", prompt=ids, max_tokens=5, temperature=0)
    assert [c.text for c in texts.choices] == [c.text for c in tokens.choices]
    assert [c.index for c in texts.choices] == [0, 1]
    assert one.choices[0].text == texts.choices[0].text
    assert texts.usage == tokens.usage
    assert texts.usage is not None
    assert texts.usage.prompt_tokens == len(PROMPT) + 1


def test_n_choices_differ_and_come_again_with_the_seed(client: openai.OpenAI) -> None:
    def ask(n: int, **keys: Any) -> list[str]:
        got = client.completions.create(
            model="falcon", prompt=PROMPT, n=n, max_tokens=12, temperature=1.5, **keys
        )
        return [c.text for c in got.choices]

    four = ask(4, seed=3)
    assert len(set(four)) == 4
    assert ask(4, seed=3) == four
    assert ask(1, seed=3) == four[:1]
    assert ask(1) != ask(1)


def test_healing_is_done_for_the_request_that_asks_for_it() -> None:
    script = Script()
    with (
        start_server({"m": script}) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client,
    ):
        for body in ({}, {"token_healing": True}, {"token_healing": None}):
            client.completions.create(model="m", prompt="x", max_tokens=2, extra_body=body)
    assert script.healed == [False, True, False]


@pytest.mark.parametrize("echo", [False, True])
def test_a_healed_answer_streams_only_what_is_new(echo: bool) -> None:
    with (
        start_server({"m": reciter("we live in the United States")}) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client,
    ):
        asked: dict[str, Any] = {"model": "m", "prompt": "we live in the Uni", "max_tokens": 9}
        asked |= {"temperature": 0, "echo": echo, "extra_body": {"token_healing": True}}
        whole = client.completions.create(**asked)
        stream = client.completions.create(stream=True, **asked)
        text = "".join(c.text for chunk in stream for c in chunk.choices)
    assert whole.choices[0].text == (asked["prompt"] if echo else "") + "ted States"
    assert text == whole.choices[0].text
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 2


def test_echo_gives_the_prompt_back_before_the_answer(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="falcon", prompt=PROMPT, max_tokens=5, temperature=0)
    keys: dict[str, Any] = {"model": "falcon", "max_tokens": 5, "temperature": 0, "echo": True}
    for prompt in (PROMPT, Bytes().encode(PROMPT)):
        whole = client.completions.create(prompt=prompt, **keys)
        assert whole.choices[0].text == PROMPT + plain.choices[0].text
        stream = client.completions.create(prompt=prompt, stream=True, **keys)
        text = "".join(c.text for chunk in stream for c in chunk.choices)
        assert text == whole.choices[0].text


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI, model: Model) -> None:
    text = model.generate(PROMPT, 30)
    stop = text[8:11]
    got = client.completions.create(
        model="falcon", prompt=PROMPT, max_tokens=30, temperature=0, stop=["never", stop]
    )
    assert got.choices[0].text == text[: text.index(stop)]
    assert got.choices[0].finish_reason == "stop"


def test_no_tokens_and_an_empty_prompt_are_legal(http: httpx.Client) -> None:
    nothing = post(http, max_tokens=0).json()
    assert (nothing["choices"][0]["text"], nothing["usage"]["completion_tokens"]) == ("", 0)
    begun = post(http, prompt="", max_tokens=4).json()
    assert begun["usage"]["prompt_tokens"] == 0


def test_top_p_of_zero_is_greedy(http: httpx.Client) -> None:
    greedy = post(http).json()["choices"][0]["text"]
    assert post(http, top_p=0, temperature=2).json()["choices"][0]["text"] == greedy


def test_models_are_listed_and_shown(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["falcon", "house/script-1"]
    assert client.models.retrieve("house/script-1").owned_by == "eyas"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("hawk")


def test_health_is_open(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok", "models": ["falcon", "house/script-1"]}


def test_an_unknown_model_is_404_and_the_known_are_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="hawk", prompt="x")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "falcon, house/script-1" in caught.value.message


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"model": "falcon", "prompt": NaN}', b"\xff\xfe", b"[" * 4000, b'"\xed\xa0\x80"'],
)
def test_invalid_json_is_400(http: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = http.post("/v1/completions", content=body, headers=headers)
    assert error(response, 400)["code"] == "invalid_json"


def test_half_a_character_in_a_name_is_refused_too(http: httpx.Client) -> None:
    headers = {"content-type": "application/json"}
    body = b'{"model": "falcon", "prompt": "x", "\\ud800": 1}'
    response = http.post("/v1/completions", content=body, headers=headers)
    assert error(response, 400)["code"] == "unknown_parameter"


def test_a_form_post_of_a_foreign_page_is_refused(http: httpx.Client) -> None:
    body = b'{"model": "falcon", "prompt": "x"}'
    response = http.post("/v1/completions", content=body, headers={"content-type": "text/plain"})
    assert "application/json" in error(response, 415)["message"]


def test_what_the_model_cannot_hold_is_refused_with_counts(http: httpx.Client) -> None:
    found = error(post(http, prompt="x" * 60, max_tokens=69), 400)
    assert (found["code"], found["param"]) == ("context_length_exceeded", "max_tokens")
    assert all(number in found["message"] for number in ("128", "60", "69"))
    found = error(post(http, prompt="x" * 128), 400)
    assert found["param"] == "prompt"
    assert post(http, prompt="x" * 60, max_tokens=68).status_code == 200


def test_ids_outside_the_vocabulary_are_refused(http: httpx.Client) -> None:
    assert error(post(http, prompt=[1, 257]), 400)["param"] == "prompt"


def test_a_parameter_that_is_not_done_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="falcon", prompt="x", logprobs=2)
    assert caught.value.param == "logprobs"
    assert caught.value.code == "unsupported_parameter"


@pytest.mark.parametrize("size", [5000, 60_000, 1_000_000])
def test_a_body_too_large_is_413(http: httpx.Client, size: int) -> None:
    assert error(post(http, prompt="x" * size), 413)["code"] == "request_too_large"
    assert http.get("/health").status_code == 200


def test_a_body_too_large_without_its_size_is_413(http: httpx.Client) -> None:
    parts = (b'{"model": "falcon", "prompt": "' + b"x" * 1000 for _ in range(10))
    headers = {"content-type": "application/json"}
    assert error(http.post("/v1/completions", content=parts, headers=headers), 413)


def test_other_paths_and_methods_have_the_same_form(http: httpx.Client) -> None:
    assert error(http.get("/v1/nothing"), 404)["code"] == "not_found"
    response = http.get("/v1/completions")
    assert error(response, 405)["message"] == "This path takes only POST."
    assert response.headers["allow"] == "POST"


def test_special_tokens_in_a_prompt_are_text(http: httpx.Client) -> None:
    prompt = "<|endoftext|>"
    assert post(http, prompt=prompt).json()["usage"]["prompt_tokens"] == len(prompt)


def test_only_the_key_opens(model: Model) -> None:
    with start_server({"falcon": model}, api_key=["first", "second"]) as running:
        url = f"{running.url}/v1/models"
        for headers, code in [
            ({}, "missing_api_key"),
            ({"authorization": "Basic first"}, "missing_api_key"),
            ({"authorization": "Bearer"}, "missing_api_key"),
            ({"authorization": "Bearer third"}, "invalid_api_key"),
            ({"authorization": "Bearer firs"}, "invalid_api_key"),
            ({"authorization": "Bearer صقر".encode()}, "invalid_api_key"),
        ]:
            response = httpx.get(url, headers=headers)
            found = error(response, 401)
            assert (found["code"], found["type"]) == (code, "authentication_error")
            assert response.headers["www-authenticate"] == "Bearer"
        for key in ("first", "second"):
            client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=key)
            assert client.completions.create(model="falcon", prompt="x").choices
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{running.url}/v1", api_key="no").models.list()
        assert httpx.get(f"{running.url}/health").status_code == 200
        closed = httpx.post(f"{running.url}/v1/completions", content=b"x" * 10_000)
        error(closed, 401)


def test_neither_prompts_nor_keys_are_logged(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "eyas")
    models = {"falcon": model, "broken": Script(fail=RuntimeError("SECRET-MESSAGE"))}
    with start_server(models, api_key="SECRET-KEY") as running:
        headers = {"authorization": "Bearer SECRET-KEY"}
        for name, status in (("falcon", 200), ("broken", 500), ("hawk", 404)):
            body = {"model": name, "prompt": "SECRET-PROMPT"}
            url = f"{running.url}/v1/completions?SECRET-QUERY"
            assert httpx.post(url, json=body, headers=headers).status_code == status
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("eyas", "uvicorn"))]
    assert any("prompt_tokens=13" in line for line in ours)
    assert not any("SECRET" in line for line in ours)


def test_a_failure_within_a_stream_is_an_event_and_the_server_lives() -> None:
    with start_server({"broken": Script(fail=RuntimeError("x"))}) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0)
        stream = client.completions.create(model="broken", prompt="x", stream=True)
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="model failed"):
            texts.extend(c.text for chunk in stream for c in chunk.choices)
        assert texts == ["a", "b"]
        got = client.completions.create(model="broken", prompt="x", max_tokens=2)
        assert got.choices[0].text == "ab"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_generation(stream: bool) -> None:
    shape = dataclasses.replace(SHAPE, max_sequence=200_000)
    script = Script(gate=threading.Semaphore(0), shape=shape)
    with start_server({"m": script}, limits=Limits(max_tokens=100_000)) as running:
        body = json.dumps(
            {"model": "m", "prompt": "x", "max_tokens": 100_000, "stream": stream}
        ).encode()
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert script.started.acquire(timeout=60)
            if stream:
                script.gate.release(1)
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
        while not script.closed.acquire(timeout=0.01):
            script.gate.release(1)
        assert script.tokens < 100_000


def test_a_client_that_goes_away_while_waiting_frees_its_place() -> None:
    script = Script(gate=threading.Semaphore(0))
    limits = Limits(queue=2, active=1)
    with start_server({"m": script}, limits=limits) as running, ThreadPoolExecutor() as pool:
        url = f"{running.url}/v1/completions"
        first = pool.submit(httpx.post, url, json={"model": "m", "prompt": "x"}, timeout=60)
        assert script.started.acquire(timeout=60)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"model": "m", "prompt": "gone"}, timeout=_SHORT)
        while (answer := _refused(url)) is not None:
            assert answer == 429
        script.gate.release(1000)
        assert first.result().status_code == 200
        assert Bytes().encode("gone") not in [list(p) for p in script.prompts]


def _refused(url: str) -> int | None:
    """The status of a refusal, or None where the request was admitted and waits."""
    try:
        return httpx.post(url, json={"model": "m", "prompt": "y"}, timeout=_SHORT).status_code
    except httpx.ReadTimeout:
        return None


def test_a_full_queue_is_429_with_retry_after_which_the_client_obeys() -> None:
    script = Script(gate=threading.Semaphore(0))
    with (
        start_server({"m": script}, limits=Limits(queue=1)) as running,
        ThreadPoolExecutor() as pool,
    ):
        url = f"{running.url}/v1/completions"
        first = pool.submit(httpx.post, url, json={"model": "m", "prompt": "x"}, timeout=60)
        assert script.started.acquire(timeout=60)
        response = httpx.post(url, json={"model": "m", "prompt": "y"})
        assert error(response, 429)["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) >= 1
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0)
        with pytest.raises(openai.RateLimitError):
            client.completions.create(model="m", prompt="y")
        script.gate.release(1000)
        assert first.result().status_code == 200
        patient = client.with_options(max_retries=5)
        assert patient.completions.create(model="m", prompt="y").choices


def test_thirty_two_at_once_are_all_answered_or_refused_cleanly(model: Model) -> None:
    limits = Limits(queue=12, active=4)
    with start_server({"m": model}, limits=limits) as running, ThreadPoolExecutor(32) as pool:
        barrier = threading.Barrier(32)
        url = f"{running.url}/v1/completions"

        def ask(number: int) -> tuple[int, str]:
            body = {"model": "m", "prompt": f"number {number}", "temperature": 0, "max_tokens": 20}
            with httpx.Client(timeout=120) as http:
                barrier.wait(60)
                response = http.post(url, json=body)
            if response.status_code != 200:
                assert response.headers["retry-after"]
                error(response, response.status_code)
                return response.status_code, ""
            return 200, response.json()["choices"][0]["text"]

        found = list(pool.map(ask, range(32)))
        counts = Counter(status for status, _ in found)
        assert set(counts) <= {200, 429}
        assert counts[200] >= 12
        for number, (status, text) in enumerate(found):
            if status == 200:
                assert text == model.generate(f"number {number}", 20)


def test_two_models_answer_at_once() -> None:
    slow, quick = Script("s", gate=threading.Semaphore(0)), Script("q")
    with start_server({"slow": slow, "quick": quick}) as running, ThreadPoolExecutor() as pool:
        url = f"{running.url}/v1/completions"
        waiting = pool.submit(httpx.post, url, json={"model": "slow", "prompt": "x"}, timeout=60)
        assert slow.started.acquire(timeout=60)
        answer = httpx.post(url, json={"model": "quick", "prompt": "x", "max_tokens": 3}).json()
        assert answer["choices"][0]["text"] == "qqq"
        slow.gate.release(1000)
        assert waiting.result().json()["choices"][0]["text"] == "s" * 16


def test_a_body_that_does_not_come_is_408() -> None:
    with start_server({"m": Script()}, limits=Limits(body_seconds=0.05)) as running:
        host, port = running.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + b"{")
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_it_listens_on_loopback_and_stops_for_good(model: Model) -> None:
    running = start_server({"m": model})
    assert running.url.startswith("http://127.0.0.1:")
    running.stop()
    running.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/health")


def test_a_taken_port_is_one_sentence(server: RunningServer, model: Model) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1 port {port}"):
        start_server({"m": model}, port=port)


@pytest.mark.parametrize(
    ("models", "key", "said"),
    [
        ({}, None, "no model"),
        ({"a b": Script()}, None, "does not fit"),
        ({"a\r\nX: y": Script()}, None, "does not fit"),
        ({"m": Script()}, "", "API key"),
        ({"m": Script()}, ["a", "مفتاح"], "API key"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_starts(
    models: dict[str, Any], key: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        start_server(models, api_key=key)


def test_a_model_without_a_tokenizer_is_refused(model: Model) -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        start_server({"m": Model(model.shape, model.network)})


SERVE = """
import sys, threading
sys.path.insert(0, {root!r})
from eyas.serve import serve
from tests.serve.made import Script
gate = threading.Semaphore(0)
let = lambda: [gate.release(int(line)) for line in sys.stdin]
threading.Thread(target=let, daemon=True).start()
serve({{"m": Script(gate=gate)}}, port=0)
print("after", flush=True)
"""


def test_sigterm_lets_the_answer_under_way_end_and_exits_with_zero() -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", SERVE.format(root=root)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=_plain_environment(), **pipes) as process:
        line = process.stdout.readline()
        assert line.startswith("serving m on http://127.0.0.1:")
        url = line.split()[-1]

        def let(tokens: int) -> None:
            process.stdin.write(f"{tokens}\n")
            process.stdin.flush()

        body = {"model": "m", "prompt": "x", "max_tokens": 12, "stream": True}
        let(1)
        with httpx.stream("POST", f"{url}/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: {")
            process.send_signal(signal.SIGTERM)
            while _answers(url):
                pass
            let(11)
            rest = [line for line in lines if line]
        assert len(rest) == 11 + 1 + 1  # the tokens, the reason, the end
        assert rest[-1] == "data: [DONE]"
        assert process.stdout.read() == "after\n"
        assert process.wait(60) == 0


def _plain_environment() -> dict[str, str]:
    """One in which Python buffers what it writes into a pipe, as it does for everybody."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return kept | {"OMP_NUM_THREADS": "1"}


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=60)
    except httpx.TransportError:
        return False
    return True
