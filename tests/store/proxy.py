"""A loopback proxy that applies a request at the real server and then breaks the answer."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Fault", "Proxy", "proxy"]


@dataclass
class Fault:
    """Breaks `times` answers to `method` requests whose path contains `path`: all of it, or, with
    `after`, what follows that many bytes of the body. `then` is called before the break."""

    method: str
    path: str
    times: int = 1
    after: int | None = None
    then: Callable[[], object] = lambda: None


@dataclass
class Proxy:
    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and fault.path in path:
                fault.times -= 1
                return fault
        return None


@contextlib.contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Stands before `upstream`; signatures hold, since they are over the name the client used."""
    target = urllib.parse.urlsplit(upstream).netloc

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {k: v for k, v in self.headers.items() if k.lower() != "expect"}
            state.requests.append((self.command, self.path, headers))
            connection = http.client.HTTPConnection(target)
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            answer = response.read()
            connection.close()
            fault = state.fault(self.command, self.path)
            if fault:
                fault.then()
            if fault and fault.after is None:
                self._reset()
                return
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            if response.getheader("Content-Length") is None:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: fault.after] if fault else answer)
            if fault:
                self._reset()

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        def _reset(self) -> None:
            """Close with RST, as a server that dies does."""
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:  # resets are meant
            pass

        def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
            with contextlib.suppress(OSError):
                request.close()

    server = Server(("127.0.0.1", 0), Handler)
    state = Proxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
