"""What the supervisor tells the store while ranks run: one heartbeat object a host, overwritten;
log lines and journal events as immutable pieces; stacks.

All of it happens on one thread of its own, so that a slow or absent store never delays a signal. A
failed put is logged and tried again with the next round; nothing here can end a run.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eyas.recipe import EyasError
from eyas.store import Store, dump_json

__all__ = ["LogFiles", "Shipper"]

_log = logging.getLogger("eyas.launch")
_PIECE_LINES = 20_000
_SHIP_SECONDS = 10.0


class LogFiles:
    """Follows every `*.log` below a folder. A file in a folder named by a number is that rank's,
    any other the launcher's (rank None)."""

    def __init__(self, folder: Path, start: int) -> None:
        self._folder = folder
        self._start = start
        self._offsets: dict[Path, int] = {}

    def read(self, whole: bool = False) -> list[dict[str, Any]]:
        """Complete lines that are new: {"time", "start", "rank", "line"}; with `whole` also an
        unfinished last one."""
        records = []
        for path in sorted(self._folder.rglob("*.log")):
            rank = int(path.parent.name) if path.parent.name.isdigit() else None
            for line in self._lines(path, whole):
                records.append(
                    {
                        "time": round(time.time(), 3),
                        "start": self._start,
                        "rank": rank,
                        "line": line,
                    }
                )
        return records

    def _lines(self, path: Path, whole: bool) -> list[str]:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return []
        if not whole:
            data = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(data)
        return data.decode("utf-8", errors="replace").splitlines()


class Shipper:
    """The thread. `state` gives the heartbeat's content; `follow` says whose logs to ship."""

    def __init__(
        self,
        store: Store,
        job: str,
        host: str,
        state: Callable[[], Mapping[str, Any]],
        beat: float,
        echo: bool,
    ) -> None:
        self._store, self._host, self._state = store, host, state
        self._beat, self._echo = beat, echo
        self._heartbeat = f"heartbeats/{host}.json"
        self._logs, self._journal = f"jobs/{job}/logs/{host}", f"jobs/{job}/journal/{host}"
        self._log_number = _next_number(store, self._logs)
        self._event_number = _next_number(store, self._journal)
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._lines: list[dict[str, Any]] = []
        self._files: LogFiles | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def follow(self, folder: Path, start: int) -> None:
        """Take what is left of the logs followed so far, then follow `folder`."""
        with self._lock:
            self._collect(whole=True)
            self._files = LogFiles(folder, start)

    def put(self, key: str, data: bytes) -> None:
        """Put one object, soon."""
        self._outbox.append((key, data))

    def event(self, event: str, **facts: Any) -> None:
        """One event of the job, as a piece of its journal."""
        record = {"time": round(time.time(), 3), "host": self._host, "event": event} | facts
        self.put(f"{self._journal}/{self._event_number:012d}.jsonl", dump_json(record) + b"\n")
        self._event_number += 1

    def close(self, patience: float = 30.0) -> None:
        """Ship what is left and publish the last heartbeat; waits at most `patience` seconds."""
        self._end.set()
        self._thread.join(patience)
        if self._thread.is_alive():
            _log.warning("the store does not answer: some log lines stay on this host only")

    def _run(self) -> None:
        shipped = published = 0.0
        while not self._end.wait(min(0.5, self._beat)):
            with self._lock:
                self._collect()
            if time.monotonic() - published >= self._beat:
                self._put_now(self._heartbeat, dump_json(self._state()) + b"\n")
                published = time.monotonic()
            if time.monotonic() - shipped >= _SHIP_SECONDS or len(self._lines) > _PIECE_LINES:
                self._pack()
                shipped = time.monotonic()
            self._send()
        with self._lock:
            self._collect(whole=True)
        self._pack()
        self._send()
        self._put_now(self._heartbeat, dump_json(self._state()) + b"\n")

    def _collect(self, whole: bool = False) -> None:
        if self._files is None:
            return
        records = self._files.read(whole)
        self._lines.extend(records)
        if self._echo:
            sys.stderr.write("".join(r["line"] + "\n" for r in records if r["rank"] == 0))
            sys.stderr.flush()

    def _pack(self) -> None:
        """Log lines into pieces, ready to send."""
        with self._lock:
            lines, self._lines = self._lines, []
        for first in range(0, len(lines), _PIECE_LINES):
            piece = b"".join(dump_json(r) + b"\n" for r in lines[first : first + _PIECE_LINES])
            self.put(f"{self._logs}/{self._log_number:012d}.jsonl", piece)
            self._log_number += 1

    def _send(self) -> None:
        """The outbox in order; what fails stays for the next round."""
        while self._outbox and self._put_now(*self._outbox[0]):
            self._outbox.popleft()

    def _put_now(self, key: str, data: bytes) -> bool:
        try:
            self._store.put(key, data)
        except (EyasError, OSError) as error:
            _log.warning("%s is not in the store yet: %s", key, error)
            return False
        return True


def _next_number(store: Store, prefix: str) -> int:
    """One past the highest piece that stands below `prefix`, so that nothing is overwritten."""
    last = -1
    for info in store.list(prefix + "/"):
        stem = info.key[len(prefix) + 1 :].removesuffix(".jsonl")
        last = max(last, int(stem)) if stem.isdigit() else last
    return last + 1
