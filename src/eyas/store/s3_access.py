"""The right to ask: one store's botocore session and client, and signatures for our own reads.

botocore finds credentials and refreshes them before they expire. Where a server calls them expired
all the same (a role that was rotated, a file that another program has written anew), everything is
looked up once more from the start, once, and the request repeated. A read is signed by botocore's
signer too, without its range: S3 wants only the host and the `x-amz-` headers signed, so one
signature serves all ranges of an object for a minute, far less than the quarter of an hour that
servers allow.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, NoCredentialsError

from .s3_client import code_of, connect

__all__ = ["EXPIRED", "Access", "Login"]

EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
)
_MUTE = frozenset({"400", "403"})  # what HEAD answers has no body that could say why
SIGNED_SECONDS = 60.0
SIGNED_KEPT = 1024


@dataclass(frozen=True)
class _Signed:
    path: str
    headers: Mapping[str, str]
    until: float
    credentials: Any


class Login:
    """A botocore session and its S3 client, as they were found at one time."""

    def __init__(self, url: str, bucket: str) -> None:
        self._bucket = bucket
        self.session, self.client = connect(url)
        self._signed: dict[str, _Signed] = {}

    @cached_property
    def base(self) -> str:
        """The URL before a key, as botocore would address the bucket. Raises what botocore raises
        without credentials."""
        example = {"Bucket": self._bucket, "Key": "-"}
        parts = urllib.parse.urlsplit(self.client.generate_presigned_url("get_object", example))
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path.removesuffix('-')}"

    @property
    def ca_bundle(self) -> str | None:
        """The certificates to trust, where the environment or a profile names some."""
        found: str | None = self.session.get_config_variable("ca_bundle")
        return found

    def sign(self, name: str) -> tuple[str, Mapping[str, str]]:
        """Path and headers of a GET of the object whose full key is `name`. Raises what botocore
        raises without credentials."""
        found = self.session.get_credentials()
        if found is None:
            raise NoCredentialsError
        credentials = found.get_frozen_credentials()
        signed = self._signed.get(name)
        now = time.monotonic()
        if signed is None or signed.until < now or signed.credentials != credentials:
            signed = self._sign(name, credentials, now + SIGNED_SECONDS)
            if len(self._signed) >= SIGNED_KEPT:
                self._signed.clear()
            self._signed[name] = signed
        return signed.path, signed.headers

    def _sign(self, name: str, credentials: Any, until: float) -> _Signed:
        request = AWSRequest(method="GET", url=self.base + urllib.parse.quote(name, safe="/~"))
        service = "s3express" if self._bucket.endswith("--x-s3") else "s3"
        S3SigV4Auth(credentials, service, self.client.meta.region_name).add_auth(request)
        path = urllib.parse.urlsplit(request.url).path
        return _Signed(path, dict(request.headers.items()), until, credentials)


class Access:
    """What the requests of one store are made with. Threads share it."""

    def __init__(self, url: str, bucket: str) -> None:
        self._url = url
        self._bucket = bucket
        self._lock = threading.Lock()
        self._login = Login(url, bucket)

    @property
    def login(self) -> Login:
        """The one in use."""
        return self._login

    def renew(self, refused: Login) -> None:
        """Look everything up anew, unless another thread has done so since `refused` was in use.
        Raises StoreError if the environment cannot be used any more."""
        with self._lock:
            if self._login is refused:
                self._login = Login(self._url, self._bucket)

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One of botocore's calls; once more with new credentials if the old ones have expired."""
        login = self._login
        try:
            return _call(login, operation, arguments)
        except ClientError as error:
            if code_of(error) not in EXPIRED | _MUTE:
                raise
        self.renew(login)
        return _call(self._login, operation, arguments)


def _call(login: Login, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = getattr(login.client, operation)(**arguments)
    return answer
