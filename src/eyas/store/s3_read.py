"""Reads from S3: whole objects and ranges, each byte once from the wire into the memory it is for.

botocore passes a body through four layers and retries none of it once it flows. Here a body that
breaks, ends early or stalls goes on from the last byte that came, on another connection, and
If-Match makes sure that it goes on in the same version; if the object was replaced meanwhile, the
read begins anew with the version that stands, and never mixes two. What passes (a broken wire, 500,
503, "slow down") is tried again after a pause with full jitter and within the host's budget. Tries
are counted from the last time that the read moved forward, so a huge object comes over a bad wire
as long as it comes at all, and a read that does not move ends in an error. A server's checksum does
not cover a range: who reads verifies (`ObjectRef`, blocks).
"""

from __future__ import annotations

import http.client
import io
import logging
import re
import ssl
import time
from typing import Literal

from botocore.exceptions import ClientError

from .retry_budget import RetryBudget
from .s3_access import EXPIRED, Access, Login
from .s3_client import LONGEST_PAUSE, backoff, code_of, status_of
from .s3_wire import Answer, Pool

__all__ = ["BROKEN", "Reads", "Verdict", "verdict"]

PIECE = 256 << 10
FORWARD = 64 << 10
ERROR_BYTES = 64 << 10

BROKEN = (OSError, http.client.HTTPException)

Verdict = Literal["again", "renew", "anew", "past the end", "refuse"]

_AGAIN = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_CODE = re.compile(rb"<Code>([A-Za-z0-9._-]{1,100})</Code>")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")

_log = logging.getLogger("eyas.store")


def verdict(status: int, code: str) -> Verdict:
    """What to do about a refused read."""
    if code in EXPIRED:
        return "renew"
    if status in (429, 500, 502, 503, 504) or code in _AGAIN:
        return "again"
    if status == 412:
        return "anew"
    return "past the end" if status == 416 else "refuse"


class Reads:
    """What a store reads with. Threads share it, each with a connection of its own in flight.

    All calls take full keys and raise botocore's ClientError for a refusal (its status is 416 for a
    range past the end), its errors of credentials, or one of BROKEN when every try has failed.
    """

    def __init__(self, access: Access, attempts: int, stall: float) -> None:
        self._access = access
        self._attempts = attempts
        self._stall = stall
        self._place: tuple[str, Pool, RetryBudget] | None = None

    def whole(self, name: str) -> bytes:
        """The whole object, of one version."""
        read = _Read(0, None)
        self._run(name, read, fresh=False)
        return read.value()

    def range(self, name: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes, at least one, from `start`."""
        memory = io.BytesIO(bytes(length))
        with memory.getbuffer() as view:
            self.into(name, start, view, fresh=False)
        return memory.getvalue()

    def into(self, name: str, start: int, view: memoryview, fresh: bool) -> None:
        """Fill `view`, of at least one byte; `fresh`: on a new connection."""
        self._run(name, _Read(start, view), fresh)

    def _run(self, name: str, read: _Read, fresh: bool) -> None:
        """Ask until it is all there, or there is no sense in asking."""
        tries = _Tries(self._attempts)
        renewed = False
        while True:
            login = self._access.login
            try:
                self._once(login, name, read, fresh)
                return
            except ClientError as refusal:
                what = verdict(status_of(refusal), code_of(refusal))
                if what == "renew" and not renewed:
                    renewed = True
                    self._access.renew(login)
                    continue
                if what not in ("again", "anew"):
                    raise
                if what == "anew":
                    read.restart()
                failure: Exception = refusal
            except BROKEN as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise
                failure = error
            if not tries.more(read.done):
                raise failure
            _log.debug("%s broke off after %d bytes (%s)", name, read.done, type(failure).__name__)
            time.sleep(self._pause(login, tries.failed, failure))
            fresh = True

    def _once(self, login: Login, name: str, read: _Read, fresh: bool) -> None:
        """One request, and as much of its answer as comes."""
        path, headers = login.sign(name)
        pool, _ = self._at(login)
        answer = pool.ask(path, {**headers, **read.headers()}, fresh)
        try:
            if answer.status not in (200, 206):
                raise _refusal(answer)
            view = read.accept(answer)
            while read.done < len(view):
                read.done += answer.into(view[read.done : read.done + PIECE])
            if not answer.isclosed():
                answer.read(1)  # the end of what has no length, or length 0
        finally:
            pool.done(answer)

    def _pause(self, login: Login, failed: int, failure: Exception) -> float:
        """Seconds until the next try: jitter, or what the server asked for, and a token's time."""
        _, budget = self._at(login)
        return max(backoff(failed - 1), _asked(failure)) + budget.wait()

    def _at(self, login: Login) -> tuple[Pool, RetryBudget]:
        """The connections and the budget of the place that `login` leads to."""
        place = self._place
        if place is None or place[0] != login.base:
            pool = Pool(login.base, self._stall, login.ca_bundle)
            place = self._place = (login.base, pool, RetryBudget(pool.origin))
        return place[1], place[2]


class _Read:
    """How far one read has come. `view` is where it goes, None while the size is not known."""

    def __init__(self, start: int, view: memoryview | None) -> None:
        self.done = 0
        self._start = start
        self._view = view
        self._is_whole = view is None
        self._memory = io.BytesIO()
        self._version = ""

    def headers(self) -> dict[str, str]:
        """What to ask for: what is left, of the version that was begun."""
        if self._view is None:
            return {}
        first, last = self._start + self.done, self._start + len(self._view) - 1
        asked = {"Range": f"bytes={first}-{last}"}
        return {**asked, "If-Match": self._version} if self._version else asked

    def accept(self, answer: Answer) -> memoryview:
        """Where the body goes. Raises unless it is what was asked for, of the same version."""
        version = answer.fields.get("etag", "")
        if self._version and version != self._version:
            raise _error(412, "PreconditionFailed")
        if self._view is None:
            length = answer.fields.get("content-length", "")
            if not length.isdecimal():
                raise _error(answer.status, "MissingContentLength")
            self._memory = io.BytesIO(bytes(int(length)))
            self._view = self._memory.getbuffer()
        else:
            self._check_range(answer)
        self._version = version
        return self._view

    def restart(self) -> None:
        """Forget what has come: it is of a version that is no more."""
        self.done = 0
        self._version = ""
        if self._is_whole:
            self._view = None

    def value(self) -> bytes:
        """The whole object; the view of it ends. Its memory is handed out, not copied."""
        assert self._view is not None
        self._view.release()
        return self._memory.getvalue()

    def _check_range(self, answer: Answer) -> None:
        assert self._view is not None
        if answer.status != 206:
            raise _error(answer.status, "RangeIgnored")
        found = _RANGE.fullmatch(answer.fields.get("content-range", ""))
        if found is None or int(found[1]) != self._start + self.done:
            raise http.client.UnknownProtocol("another range than was asked for")
        end = self._start + len(self._view)
        if found[3] != "*" and int(found[3]) < end:
            raise _error(416, "InvalidRange")


class _Tries:
    """Failed tries since the read last moved forward."""

    def __init__(self, limit: int) -> None:
        self.failed = 0
        self._limit = limit
        self._mark = 0
        self._restarts = 0

    def more(self, done: int) -> bool:
        """Whether to try again after a failure with `done` bytes there. A read that was begun anew
        has not moved forward; so one of an object that is replaced all the time ends too."""
        if done < self._mark:
            self._restarts += 1
            self._mark = done
        elif done >= self._mark + FORWARD:
            self.failed = 0
            self._mark = done
        self.failed += 1
        return self.failed < self._limit and self._restarts < self._limit


def _refusal(answer: Answer) -> ClientError:
    found = _CODE.search(answer.read(ERROR_BYTES))
    code = found[1].decode() if found else str(answer.status)
    return _error(answer.status, code, answer.fields.get("retry-after", ""))


def _error(status: int, code: str, retry_after: str = "") -> ClientError:
    """As botocore would raise it, but without the server's own words."""
    about = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": retry_after}}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": about}, "GetObject")


def _asked(failure: Exception) -> float:
    """The pause that the server asked for, within reason."""
    if not isinstance(failure, ClientError):
        return 0.0
    asked = failure.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"]
    return min(float(asked), LONGEST_PAUSE) if asked.isdecimal() else 0.0
