"""The botocore client of an S3 store, and botocore's errors as sentences.

Credentials, region, profile and endpoint come from the usual environment (AWS_ACCESS_KEY_ID,
AWS_PROFILE, instance roles, AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL); botocore refreshes
what expires. A custom endpoint is addressed by path, since few servers have a name a bucket. The
checksum of each put is ours (CRC32C needs awscrt in botocore), so botocore adds and checks none
that is not required. No message holds what a server or a library said: only our own words, an error
code, the key and the endpoint without any user name in it; so no secret can come through.
"""

from __future__ import annotations

import functools
import http.client
import logging
import os
import random
import re
import ssl
import time
import urllib.parse
from typing import Any

from botocore import exceptions as failures
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session

from .base import NotFound, StoreError
from .s3_wire import trusting

__all__ = [
    "LONGEST_PAUSE",
    "READ_ATTEMPTS",
    "attempts",
    "backoff",
    "bare",
    "code_of",
    "connect",
    "explain",
    "parse_url",
    "pause",
    "status_of",
]

ATTEMPTS = 10
READ_ATTEMPTS = (
    16  # pauses of 40 s on average: a server that is started again meanwhile ends no read
)
CONNECT_SECONDS = 10
READ_SECONDS = 60
STALL_SECONDS = 20  # of our own reads
POOL = 64
LONGEST_PAUSE = 10.0

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_REFUSED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_NONE = {"404", "NoSuchKey", "NotFound"}  # HEAD has no body, so no code
_ELSEWHERE = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_CREDENTIALS = (
    failures.NoCredentialsError,
    failures.PartialCredentialsError,
    failures.CredentialRetrievalError,
    failures.TokenRetrievalError,
    failures.SSOError,
    failures.ProfileNotFound,
)
_UNANSWERED = (
    failures.HTTPClientError,
    failures.ConnectionError,
    http.client.HTTPException,
    OSError,
)
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"}


def parse_url(url: str) -> tuple[str, str]:
    """Bucket and prefix (empty, or ending in `/`) of `s3://bucket[/prefix]`."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise StoreError(
            "store: write s3://bucket/prefix; credentials come from the environment, never a URL"
        )
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def connect(url: str) -> tuple[Any, Any]:
    """A session and its client for this process. Raises StoreError if the environment cannot be
    used."""
    _say_no_secrets()
    try:
        session = Session()
        _check_certificates(session, url)
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        client = _create(session, by_path=_environment_endpoint() is not None)
        if _is_custom(client.meta.endpoint_url):  # an endpoint may also come from a profile
            client = _create(session, by_path=True)
        return session, client
    except _CREDENTIALS as error:
        raise _no_credentials(error, url) from error
    except (ValueError, failures.BotoCoreError) as error:
        raise StoreError(
            f"{url}: the environment cannot be used ({type(error).__name__}): check "
            "AWS_ENDPOINT_URL, AWS_PROFILE and AWS_REGION"
        ) from error


def _say_no_secrets() -> None:
    """botocore's debug log holds tokens and signatures: it does not follow when everybody's is
    switched on."""
    log = logging.getLogger("botocore")
    if log.level == logging.NOTSET:
        log.setLevel(max(logging.INFO, log.getEffectiveLevel()))


def _check_certificates(session: Any, url: str) -> None:
    """What AWS_CA_BUNDLE or a profile names can be read: otherwise every request would fail, many
    times, as if the server were at fault."""
    named = session.get_config_variable("ca_bundle")
    try:
        if named:
            trusting(named)
    except OSError as error:
        raise StoreError(
            f"{url}: AWS_CA_BUNDLE (or ca_bundle of the profile) is {named}, which is no file or "
            f"folder of certificates ({type(error).__name__}): correct it, or unset it"
        ) from error


@functools.cache
def _loader(data_path: str | None) -> Any:
    """botocore's description of S3, parsed once a process: four fifths of the time of a client."""
    return create_loader(data_path)


def _create(session: Any, by_path: bool) -> Any:
    return session.create_client(
        "s3",
        region_name=_region(session),
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=POOL,
            tcp_keepalive=True,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": attempts()},
            s3={"addressing_style": "path" if by_path else "virtual"},
        ),
    )


def _region(session: Any) -> str:
    return str(os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1")


def _environment_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _is_custom(endpoint: str) -> bool:
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    return ".amazonaws.com" not in f"{host}."


def attempts(usual: int = ATTEMPTS) -> int:
    """Tries of one request, or of a read between steps forward: AWS_MAX_ATTEMPTS, or `usual`."""
    given = os.environ.get("AWS_MAX_ATTEMPTS", str(usual))
    if not given.isdecimal() or not 1 <= int(given) <= 100:
        raise StoreError(f"AWS_MAX_ATTEMPTS is {given!r}: give 1 to 100")
    return int(given)


def backoff(attempt: int) -> float:
    """Seconds to wait before try `attempt` + 1, counted from 0: full jitter."""
    return random.uniform(0, min(LONGEST_PAUSE, 0.05 * 2**attempt))  # noqa: S311


def pause(attempt: int) -> None:
    """Wait that long."""
    time.sleep(backoff(attempt))


def bare(endpoint: str) -> str:
    """The endpoint's scheme, host, port and path."""
    parts = urllib.parse.urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def code_of(error: BaseException | None) -> str:
    """S3's error code, or the empty string."""
    if not isinstance(error, failures.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: BaseException | None) -> int:
    """The HTTP status of a refused request, or 0."""
    if not isinstance(error, failures.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def explain(error: Exception, url: str, endpoint: str, verb: str, key: str) -> StoreError:
    """What went wrong and what to do, as the error to raise. `verb` and `key` say at what."""
    if isinstance(error, failures.ClientError):
        return _explain_answer(error, url, endpoint, verb, key)
    if isinstance(error, _CREDENTIALS):
        return _no_credentials(error, url)
    if _is_untrusted(error):
        return StoreError(
            f"{url}: cannot {verb} {key}: the certificate of {endpoint} is not trusted here: set "
            "AWS_CA_BUNDLE to a file of those to trust"
        )
    if isinstance(error, _UNANSWERED):
        tries = attempts(READ_ATTEMPTS if verb == "get" else ATTEMPTS)
        return StoreError(
            f"{url}: cannot {verb} {key}: {endpoint} does not answer ({type(error).__name__}, "
            f"{tries} tries): check AWS_ENDPOINT_URL and the network"
        )
    return StoreError(f"{url}: cannot {verb} {key}: {type(error).__name__}")


def _is_untrusted(error: Exception) -> bool:
    """Whether a certificate was refused; botocore wraps all that can go wrong with TLS alike."""
    if isinstance(error, failures.SSLError):
        return "CERTIFICATE_VERIFY_FAILED" in str(error)
    return isinstance(error, ssl.SSLCertVerificationError)


def _no_credentials(error: Exception, url: str) -> StoreError:
    return StoreError(
        f"{url}: no usable credentials ({type(error).__name__}): set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give this machine a role"
    )


def _explain_answer(error: Exception, url: str, endpoint: str, verb: str, key: str) -> StoreError:
    code, status = code_of(error), status_of(error)
    if code == "NoSuchBucket" or (verb == "list" and code in _NONE):
        bucket = parse_url(url)[0]
        return StoreError(
            f"{url}: there is no bucket {bucket} at {endpoint}: make it, or correct the name"
        )
    if code in _NONE:
        return NotFound(url, key)
    if code in _REFUSED:
        hint = "renew them" if "Token" in code else "check the key, its secret and AWS_REGION"
        return StoreError(f"{url}: {endpoint} refuses these credentials ({code}): {hint}")
    if code == "RequestTimeTooSkewed":
        return StoreError(f"{url}: this machine's clock is off by minutes ({code}): set it right")
    if code in _ELSEWHERE or status in (301, 307):
        return StoreError(f"{url}: the bucket is in another region ({code}): set AWS_REGION to it")
    if code in _DAMAGED:
        return StoreError(
            f"{url}: cannot {verb} {key}: the bytes that arrived were not those sent ({code})"
        )
    if status == 403:
        return StoreError(
            f"{url}: access denied: these credentials may not {verb} {key} ({code}); grant "
            "s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload and ListBucket on it"
        )
    return StoreError(f"{url}: cannot {verb} {key}: {endpoint} answered {code} (HTTP {status})")
