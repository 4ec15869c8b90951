"""Files behind http:// and https://: what they are, and their bytes, whole or not at all.

A file is spooled to a temporary one that has no name and goes with the process, because crawl
files are read more than once and not only forward. A connection that breaks is taken up where it
broke, as long as the server still has the same file (length and etag); a file is handed on only if
it has the length that was promised. The environment says which proxy to take and whom to trust
(`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`).
"""

from __future__ import annotations

import functools
import random
import re
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import urllib3
from botocore.utils import get_environ_proxies
from urllib3.util import Retry, Timeout

from eyas.recipe import UsageError
from eyas.store import StoreError

__all__ = ["FileChanged", "Found", "Missing", "is_remote", "look", "spool"]

_SCHEMES = ("https://", "http://")
_ATTEMPTS = 8  # without a new byte in between
_LONGEST_PAUSE = 60.0
_CHUNK = 1 << 20
_TIMEOUT = Timeout(connect=20, read=60)
_REDIRECTS = 5
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_NO_HEAD = frozenset({401, 403, 405, 501})  # some servers know GET only
# Of signed links: Amazon, Google, Azure, CloudFront, and what people call theirs.
_SECRETS = frozenset(
    "x-amz-signature x-amz-security-token x-goog-signature signature sig token access_token "
    "api_key key apikey password".split()
)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_pause = time.sleep


class FileChanged(StoreError):
    """The server has another file at the URL than before."""


class Missing(StoreError):
    """The server has no such file."""


@dataclass(frozen=True)
class Found:
    """What a server said of a file: bytes (-1: it did not say), and its etag or, where it gives
    none, the time of its last change."""

    size: int
    etag: str


class _Trouble(Exception):
    """What may go better the next time; `wait` is how many seconds the server asked for."""

    def __init__(self, why: str, wait: float = 0) -> None:
        super().__init__(why)
        self.wait = wait


def is_remote(source: str) -> bool:
    """True for an http:// or https:// URL."""
    return source.startswith(_SCHEMES)


def look(url: str) -> Found:
    """Size and etag of a file, without its content. Raises UsageError if the server does not have
    it or does not say how long it is, StoreError if it cannot be reached."""
    parts = urllib.parse.urlsplit(url)
    if parts.username is not None:
        raise UsageError("corpus.sources: write no user or password into a URL")
    if secrets := sorted(_SECRETS & {name.lower() for name in urllib.parse.parse_qs(parts.query)}):
        raise UsageError(
            f"corpus.sources: the URL of {parts.hostname}{parts.path} carries a secret "
            f"({', '.join(secrets)}), and the source of a document is kept in the corpus for good; "
            "name the s3:// key or a public address"
        )
    status, found = _described("HEAD", url, {})
    if status in _NO_HEAD:
        status, found = _described("GET", url, {"Range": "bytes=0-0"})
    if status >= 400:
        raise UsageError(f"corpus.sources: {url} cannot be read: HTTP status {status}")
    if found.size < 0:
        raise UsageError(
            f"corpus.sources: the server does not say how long {url} is; fetch it and name the file"
        )
    return found


def _described(method: str, url: str, headers: Mapping[str, str]) -> tuple[int, Found]:
    """The status of an answer, and what its head says; its content is left where it is."""
    failed = 0
    while True:
        try:
            answer = _ask(method, url, headers)
            answer.close()
            return answer.status, _found(answer)
        except _Trouble as error:
            failed = _patience(url, error, failed)


def spool(url: str, expected: Found | None = None) -> IO[bytes]:
    """A seekable temporary file with the content of `url`, at its front.

    Raises FileChanged if it is not `expected` or changes meanwhile, Missing if it is not there,
    StoreError if it cannot be had.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 it is handed on
    try:
        _fill(file, url, expected)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _fill(file: IO[bytes], url: str, expected: Found | None) -> None:
    failed = 0
    while True:
        got = file.tell()
        try:
            answer = _ask("GET", url, _resume(got, expected))
            try:
                expected = _begin(file, url, answer, expected)
                _copy(file, url, answer)
            finally:
                answer.close()
            if expected.size in (-1, file.tell()):
                return
            raise _Trouble(f"{file.tell()} of {expected.size} bytes came")
        except _Trouble as error:
            failed = _patience(url, error, failed if file.tell() <= got else 0)


def _resume(got: int, expected: Found | None) -> dict[str, str]:
    if not got:
        return {}
    strong = expected.etag if expected and expected.etag.startswith('"') else ""
    return {"Range": f"bytes={got}-"} | ({"If-Range": strong} if strong else {})


def _begin(
    file: IO[bytes], url: str, answer: urllib3.BaseHTTPResponse, expected: Found | None
) -> Found:
    """Bring the file to where the answer's bytes belong, if it is an answer about the same file."""
    if answer.status == 416:
        file.seek(0)
        file.truncate()
        raise _Trouble("the server has no such range")
    if answer.status in (404, 410):
        raise Missing(f"{url} is not there: HTTP status {answer.status}")
    if answer.status not in (200, 206):
        raise StoreError(f"{url} cannot be read: HTTP status {answer.status}")
    found = _found(answer)
    place = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    start = int(place[1]) if answer.status == 206 and place else 0
    if answer.status == 206 and (place is None or start != file.tell()):
        raise StoreError(f"{url}: the server sent another range than it was asked for")
    same = expected is None or (found.etag == expected.etag and expected.size in (-1, found.size))
    if not same:
        raise FileChanged(f"{url} changed while it was used; start again")
    file.seek(start)
    file.truncate()
    return found


def _copy(file: IO[bytes], url: str, answer: urllib3.BaseHTTPResponse) -> None:
    pieces = answer.stream(_CHUNK, decode_content=False)
    while True:
        try:
            piece = next(pieces, b"")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _Trouble(type(error).__name__) from error
        if not piece:
            return
        try:
            file.write(piece)
        except OSError as error:
            raise StoreError(
                f"{url} cannot be spooled to {tempfile.gettempdir()}: {error.strerror}; set TMPDIR"
            ) from error


def _found(answer: urllib3.BaseHTTPResponse) -> Found:
    whole = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    size = whole[2] if whole else answer.headers.get("Content-Length", "")
    etag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
    return Found(int(size) if size.isdigit() else -1, etag)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
    try:
        answer = _pool(_proxy(url)).request(
            method,
            url,
            headers={"Accept-Encoding": "identity", "User-Agent": "eyas", **headers},
            preload_content=False,
            retries=Retry(connect=0, read=0, other=0, redirect=_REDIRECTS),
            timeout=_TIMEOUT,
        )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, urllib3.exceptions.ResponseError):
            raise StoreError(f"{url} cannot be read: {cause}") from error
        raise _Trouble(type(cause).__name__) from error
    if answer.status in _LATER:
        said = answer.headers.get("Retry-After", "")
        answer.close()
        raise _Trouble(f"HTTP status {answer.status}", float(said) if said.isdigit() else 0)
    return answer


def _patience(url: str, error: _Trouble, failed: int) -> int:
    """Wait before the next attempt; one failure more. Raises StoreError when there were enough."""
    if failed + 1 >= _ATTEMPTS:
        raise StoreError(f"{url} cannot be read ({error}, {_ATTEMPTS} times in a row)") from error
    pause = random.uniform(0.5, 1) * 2**failed  # noqa: S311 no secret
    _pause(min(_LONGEST_PAUSE, max(error.wait, pause)))
    return failed + 1


def _proxy(url: str) -> str:
    found: str = get_environ_proxies(url).get(urllib.parse.urlsplit(url).scheme, "")
    return found if not found or "//" in found else f"http://{found}"


@functools.cache
def _pool(proxy: str) -> urllib3.PoolManager:
    """The connections of this process."""
    trust = ssl.create_default_context()
    if proxy:
        return urllib3.ProxyManager(proxy, ssl_context=trust)
    return urllib3.PoolManager(ssl_context=trust)
