"""The server: uvicorn around the application, in this thread or in one of its own.

It listens on loopback unless told otherwise. SIGTERM and Ctrl-C end it gracefully: no new
connections, answers under way are finished for up to 25 seconds (a container is killed 30 after
its SIGTERM), then cancelled; the process then goes on, and ends with 0 if nothing follows.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

import uvicorn

from eyas.recipe import EyasError

from .app import build_app
from .completions import Limits
from .engine import Served

__all__ = ["RunningServer", "ServeError", "serve", "start_server"]

_log = logging.getLogger("eyas.serve")
_DRAIN_SECONDS = 25
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ANNOUNCE = functools.partial(print, flush=True)  # stdout may be a pipe or a file


class ServeError(EyasError):
    """The server could not start."""


def serve(
    models: Mapping[str, Served],
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | Sequence[str] | None = None,
    max_tokens: int = 1024,
    limits: Limits | None = None,
    announce: Callable[[str], None] = _ANNOUNCE,
) -> None:
    """Serve `models` by name until SIGTERM or Ctrl-C. From the main thread.

    `max_tokens` is the most a request may ask for, unless `limits` says all. `announce` is called
    with one line naming the URL when requests are answered. Raises ServeError if the address cannot
    be had, UsageError for models that cannot be served.
    """
    app = build_app(models, api_key, limits or Limits(max_tokens=max_tokens))
    if not _is_loopback(host) and not api_key:
        _log.warning("listening on %s without an API key: everyone who reaches it may ask", host)
    with _listen(host, port) as listener:
        url = _url(listener)
        server = _Server(app, lambda: announce(f"serving {', '.join(models)} on {url}/v1"))
        server.run(sockets=[listener])
    if not server.started:
        raise ServeError("the server could not start; the log says why")


class RunningServer:
    """A server in a background thread; `url` without a trailing /. A context manager: leaving it
    stops the server."""

    def __init__(self, url: str, server: _Server, thread: threading.Thread) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def stop(self) -> None:
        """Finish the answers under way, end, and wait for it. Again: of no effect."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start_server(
    models: Mapping[str, Served],
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | Sequence[str] | None = None,
    limits: Limits | None = None,
) -> RunningServer:
    """Serve from a background thread; port 0 takes a free one. Returns when requests are answered.
    Raises as `serve`."""
    app = build_app(models, api_key, limits)
    listener = _listen(host, port)
    settled = threading.Event()
    server = _Server(app, settled.set)

    def run() -> None:
        with listener, contextlib.suppress(SystemExit):
            try:
                server.run(sockets=[listener])
            finally:
                settled.set()

    thread = threading.Thread(target=run, name="eyas-server", daemon=True)
    url = _url(listener)
    thread.start()
    settled.wait()
    if not server.started:
        thread.join()
        raise ServeError("the server could not start; the log says why")
    return RunningServer(url, server, thread)


class _Server(uvicorn.Server):
    """uvicorn that says when it answers, and that does not kill its process when it has drained."""

    def __init__(self, app: Callable[..., object], ready: Callable[[], object]) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end: drained is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        reason = reason.partition(" (while")[0]  # the address again, as Python writes it
        raise ServeError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host and --port"
        ) from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
