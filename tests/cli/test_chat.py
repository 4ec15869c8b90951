"""`eyas chat URL` talks to what `eyas serve` announces."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from tests.serve.made import Script

from eyas.cli import main
from eyas.serve import RunningServer, start_server


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with start_server({"m": Script()}, api_key="k") as running:
        yield running


def _say(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    return main(["chat", *arguments, "--max-tokens", "3"])


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_the_address_as_announced_or_without_its_version_answers(
    server: RunningServer,
    tail: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KEY", "k")
    assert _say(monkeypatch, server.url + tail, "--api-key-env", "KEY") == 0
    assert capsys.readouterr().out == "abc\n"


def test_the_server_s_own_sentence_is_shown(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _say(monkeypatch, server.url) == 1
    assert "answered 401: No API key was given." in capsys.readouterr().err
