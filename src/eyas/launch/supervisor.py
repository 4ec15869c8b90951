"""The supervisor: PID 1 of every job on a host.

It starts the ranks (torchrun, which restarts nothing), watches their exit codes and heartbeats,
starts them again from the last commit at most `restarts` times, forwards SIGTERM and waits at most
`grace` seconds, publishes one heartbeat object for the whole host, ships the logs, asks for stacks
(SIGUSR1), and leaves no process behind. It imports no torch and holds no state that a restart of
itself would miss: the run's state is its commits.

SIGTERM goes to the ranks themselves, not to torchrun, which would kill them 30 s later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eyas.recipe import format_seconds
from eyas.store import Store

from .processes import children, kill_marked, state
from .ranks import FAILED, RESTART, Beat, cause, decide, read_beats, read_exits, silent
from .shipping import Shipper
from .stacks import take_stacks
from .torchrun import torchrun

__all__ = ["supervise"]

Launcher = Callable[[list[str], int, Path], list[str]]

_log = logging.getLogger("eyas.launch")
_POLL = 0.1
_LEAVING = 20.0  # seconds that the launcher may take once its ranks are gone


def supervise(
    argv: list[str],
    processes: int,
    store: Store,
    host: str = "host0",
    run_dir: str | Path | None = None,
    grace: float = 110.0,
    restarts: int = 3,
    env: Mapping[str, str] | None = None,
    *,
    job: str = "",
    hang: float = 1800.0,
    beat: float = 5.0,
    echo: bool = True,
    launcher: Launcher = torchrun,
) -> int:
    """Run `python *argv` as `processes` ranks until they are done; returns the job's exit code.

    0: every rank left 0. 75: stopped at a commit, start the job again to go on. 93: a rank said
    that a retry is useless. 1: failed, `restarts` restarts included, or killed after `grace`
    seconds of an unheeded SIGTERM.

    SIGTERM and SIGINT ask the ranks to stop (a second one kills them), SIGUSR1 asks for their
    stacks. A rank silent for `hang` seconds has its stacks taken and counts as a failure. `env` is
    added to the environment; a rank finds its folder in EYAS_RUN_DIR. What happens goes to the
    store: heartbeats/<host>.json every `beat` seconds, jobs/<job>/journal|logs|stacks/<host>/.
    """
    folder = Path(run_dir) if run_dir else Path(tempfile.mkdtemp(prefix="eyas-run-"))
    folder.mkdir(parents=True, exist_ok=True)
    spec = _Job(
        argv=list(argv),
        processes=processes,
        host=host,
        name=job or f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}",
        folder=folder,
        environment={**os.environ, **(env or {})},
        launcher=launcher,
        grace=grace,
        restarts=restarts,
        hang=hang,
    )
    supervisor = _Supervisor(spec, store, beat, echo)
    with _signals(supervisor):
        return supervisor.run()


@dataclass(frozen=True)
class _Job:
    """What `supervise` was asked to run."""

    argv: list[str]
    processes: int
    host: str
    name: str
    folder: Path
    environment: dict[str, str]
    launcher: Launcher
    grace: float
    restarts: int
    hang: float


class _Supervisor:
    """One job on one host. Signals only set flags here; the loop acts on them."""

    def __init__(self, job: _Job, store: Store, beat: float, echo: bool) -> None:
        self.job = job
        self.stop_signals = 0
        self.stacks_wanted = False
        self.start = 0
        self.status = "starting"
        self.cause = ""
        self.started = time.monotonic()
        self.all_left = 0.0
        self.told: set[int] = set()
        self.folder = job.folder
        self.shipper = Shipper(store, job.name, job.host, self.published, beat, echo)

    def run(self) -> int:
        """Start, and start again, until `decide` is content."""
        self.shipper.start()
        code = FAILED
        try:
            while True:
                code = self._one_start()
                if code != RESTART:
                    return code
                if self.stop_signals:
                    code = FAILED
                    return code
        finally:
            self.status = f"ended with {code}"
            self.shipper.event("end", code=code, starts=self.start, cause=self.cause)
            self.shipper.close()

    def published(self) -> dict[str, Any]:
        """The host's heartbeat object."""
        beats = read_beats(self.folder, self.job.processes)
        now = time.monotonic()
        return {
            "host": self.job.host,
            "job": self.job.name,
            "time": round(time.time(), 3),
            "state": self.status,
            "start": self.start,
            "processes": self.job.processes,
            "step": min((b.step for b in beats.values()), default=0),
            "cause": self.cause,
            "ranks": [beats[rank].published(now) for rank in sorted(beats)],
        }

    def _one_start(self) -> int:
        self.start += 1
        self.folder = _fresh(self.job.folder)
        logs = self.folder / "logs"
        logs.mkdir()
        self.shipper.follow(logs, self.start)
        self.started = time.monotonic()
        mark = str(self.folder)
        _log.info("start %d of %d ranks, logs in %s", self.start, self.job.processes, logs)
        self.shipper.event(
            "start", start=self.start, processes=self.job.processes, argv=self.job.argv
        )
        with (logs / "launcher.log").open("wb") as output:
            process = subprocess.Popen(
                self.job.launcher(self.job.argv, self.job.processes, logs),
                env=self.job.environment | {"EYAS_RUN_DIR": mark, "EYAS_JOB": self.job.name},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.status = "running"
        try:
            verdict = self._watch(process)
        finally:
            immortal = kill_marked("EYAS_RUN_DIR", mark)
            if immortal:
                _log.error("processes %s do not die; this host needs a restart", immortal)
            process.wait()
        return self._judge(process.returncode, verdict, logs)

    def _judge(self, launcher_code: int, verdict: str, logs: Path) -> int:
        codes = read_exits(self.folder, self.job.processes)
        stopping = self.stop_signals > 0
        code = decide(codes, stopping, self.job.restarts - (self.start - 1))
        if code in (RESTART, FAILED) or verdict:
            beats = read_beats(self.folder, self.job.processes)
            said = (logs / "launcher.log").read_text(encoding="utf-8", errors="replace")
            self.cause = verdict or cause(codes, beats, launcher_code, said)
        if code == RESTART:
            self.status = "restarting"
            _log.warning("%s; restart %d of %d", self.cause, self.start, self.job.restarts)
        elif code == FAILED:
            _log.error("%s; giving up after %d starts", self.cause, self.start)
        self.shipper.event(
            "left",
            start=self.start,
            codes=codes,
            launcher=launcher_code,
            cause=self.cause,
            next=code,
        )
        return code

    def _watch(self, process: subprocess.Popen[bytes]) -> str:
        """Until the launcher is gone; returns why it was killed, or ""."""
        stopping = 0.0
        seen = time.monotonic()
        while process.poll() is None:
            now = time.monotonic()
            if now - seen > 10:  # this host itself stood still: silence before proves nothing
                self.started = now
            seen = now
            if self.stop_signals and not stopping:
                stopping = now
                self._announce_stop()
            if stopping:
                self._forward(process.pid, waited=now - stopping)
            if self.stop_signals > 1:
                return "killed by a second signal"
            if stopping and now - stopping > self.job.grace:
                grace = format_seconds(self.job.grace)
                return f"killed after {grace} of grace: {self._lingering()}"
            if self.stacks_wanted:
                self.stacks_wanted = False
                self._dump_stacks()
            hung = self._hung(now)
            if hung or self._left_behind(now):
                return hung
            time.sleep(_POLL)
        return ""

    def _announce_stop(self) -> None:
        self.status = "stopping"
        _log.info("stopping: ranks have %s to finish the step", format_seconds(self.job.grace))
        self.shipper.event("stop", start=self.start, grace=self.job.grace)

    def _forward(self, launcher: int, waited: float) -> None:
        """SIGTERM, once to each rank: when it has a heartbeat, for only then does it heed signals;
        to one without, after a while."""
        ready = {b.pid for b in read_beats(self.folder, self.job.processes).values()}
        for pid in children(launcher):
            if pid not in self.told and (pid in ready or waited > min(10, self.job.grace / 2)):
                self.told.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _lingering(self) -> str:
        codes = read_exits(self.folder, self.job.processes)
        beats = read_beats(self.folder, self.job.processes)
        names = [_place(rank, beats) for rank, code in enumerate(codes) if code is None]
        return ", ".join(names) or "no rank, only the launcher"

    def _hung(self, now: float) -> str:
        beats = read_beats(self.folder, self.job.processes)
        codes = read_exits(self.folder, self.job.processes)
        quiet = silent(beats, self.job.processes, self.started, now, self.job.hang)
        quiet = [rank for rank in quiet if codes[rank] is None]
        if not quiet:
            return ""
        names = ", ".join(_place(rank, beats) for rank in quiet)
        self._dump_stacks()
        return f"{names} silent for {format_seconds(self.job.hang)}"

    def _left_behind(self, now: float) -> bool:
        """All ranks have left, yet the launcher has not for a while."""
        if None in read_exits(self.folder, self.job.processes):
            self.all_left = 0.0
            return False
        self.all_left = self.all_left or now
        return now - self.all_left > _LEAVING

    def _dump_stacks(self) -> None:
        answers = take_stacks(self.folder, read_beats(self.folder, self.job.processes))
        stamp = int(time.time() * 1000)
        for rank, text in answers.items():
            name = f"{self.start:03d}-{stamp}-rank-{rank}.txt"
            self.shipper.put(f"jobs/{self.job.name}/stacks/{self.job.host}/{name}", text)
        _log.info("stacks taken of %d ranks", len(answers))


def _place(rank: int, beats: Mapping[int, Beat]) -> str:
    if rank not in beats:
        return f"rank {rank} (before its first heartbeat)"
    b = beats[rank]
    stopped = ", stopped" if state(b.pid) == "T" else ""
    return f"rank {rank} (step {b.step}, {b.phase}{stopped})"


def _fresh(folder: Path) -> Path:
    """The next unused start-N below `folder`: evidence of earlier starts stays."""
    number = 1
    while True:
        path = (folder / f"start-{number:03d}").absolute()
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


@contextlib.contextmanager
def _signals(supervisor: _Supervisor) -> Iterator[None]:
    """Signals set flags while the job runs; off the main thread (a notebook) there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        supervisor.stop_signals += 1

    def stacks(number: int, frame: Any) -> None:
        supervisor.stacks_wanted = True

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGUSR1: stacks}
    before = {sign: signal.signal(sign, handler) for sign, handler in handlers.items()}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
