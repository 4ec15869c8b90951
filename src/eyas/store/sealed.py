"""Checksums and canonical JSON: how bytes vouch for themselves.

All data is vouched for by CRC32C (Castagnoli, RFC 3720 B.4), taken over what was meant to be
written and compared with what was read, since no S3 client verifies a ranged read. A sealed object
is one line of JSON that carries the checksum of its own body; identities are SHA-256 over canonical
JSON.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crc32c import crc32c as _crc32c

from .base import Corrupt, Store

if TYPE_CHECKING:
    from .base import Buffer

__all__ = ["crc32c", "dump_json", "identity", "now", "seal", "unseal"]


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C of any contiguous buffer, continuing from `value`. Nothing is copied, and from 32 KiB
    on other threads run meanwhile."""
    plain: Any = data  # Python 3.11 has no type for what arrays can do
    return _crc32c(plain, value)


def identity(*parts: Any) -> str:
    """SHA-256 (hex) of JSON-able parts: what a stage's result depends on."""
    return hashlib.sha256(dump_json(parts)).hexdigest()


def dump_json(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. Dataclasses are objects."""
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain
    )
    return text.encode(errors="surrogatepass")  # as json.loads reads it


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seal(body: Mapping[str, Any]) -> bytes:
    """JSON with a CRC32C of itself, so that a manifest or commit vouches for its own bytes."""
    payload = dump_json(body)
    return b'{"crc32c":"%08x","body":%s}\n' % (crc32c(payload), payload)


def unseal(store: Store, key: str, data: bytes) -> dict[str, Any]:
    """The body of what `seal` wrote. Raises Corrupt."""
    try:
        head, tail = data[:28], data[28:-2]
        if not head.startswith(b'{"crc32c":"') or not data.endswith(b"}\n"):
            raise ValueError("not a sealed object")
        if head[19:] != b'","body":' or head[11:19] != b"%08x" % crc32c(tail):
            raise ValueError("checksum differs")
        body = json.loads(tail)
    except ValueError as error:
        raise Corrupt(f"{store.url}: {key} is damaged ({error}); run `eyas verify`") from error
    if not isinstance(body, dict):
        raise Corrupt(f"{store.url}: {key} is damaged (not an object); run `eyas verify`")
    return body
