"""Who may ask: API keys in the Bearer scheme, compared in constant time.

Only SHA-256 digests of the keys are kept, and every one is compared whatever the others said, so
neither the time taken nor a memory dump of this object tells a key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from eyas.recipe import UsageError

from .errors import ApiError

__all__ = ["Keys"]


class Keys:
    """The keys that open the server; none at all: everybody may ask."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        found = list(keys)
        if any(not key or key.strip() != key or not key.isascii() for key in found):
            raise UsageError(
                "an API key must be of ASCII characters, without spaces around it, and not empty"
            )
        self._digests = [_digest(key) for key in found]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, authorization: str | None) -> None:
        """Raises ApiError 401 unless the header `Authorization` carries one of the keys."""
        if not self._digests:
            return
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiError(
                401,
                "No API key was given. Send it in the header `Authorization: Bearer KEY`.",
                code="missing_api_key",
            )
        given = _digest(key.strip())
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        if not any(matches):
            raise ApiError(401, "This API key is not known here.", code="invalid_api_key")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
