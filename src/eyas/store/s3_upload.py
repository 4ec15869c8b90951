"""Objects of any size into S3, in parts.

Pieces of any size come in; parts of 16 MiB go out, four at a time, each with its CRC32C, which the
server checks. At most six parts are in memory. Nothing is visible before the last call; whatever
fails before it (a part, the caller's own iterator, Ctrl-C) aborts the upload, so that no part is
left to pay for. Only a killed process leaves an unfinished upload: a lifecycle rule of the bucket
(AbortIncompleteMultipartUpload) takes those away.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from .base import StoreError
from .sealed import crc32c

__all__ = ["PART", "Call", "checksum", "split", "upload"]

PART = 16 << 20
PARALLEL = 4
MOST_PARTS = 10_000

_log = logging.getLogger("eyas.store")


class Call(Protocol):
    """One request about the object that is uploaded; raises StoreError."""

    def __call__(self, operation: str, **arguments: Any) -> dict[str, Any]: ...


def checksum(data: bytes) -> str:
    """CRC32C as S3's headers have it: base64 of four bytes, big-endian."""
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def split(chunks: Iterable[bytes], size: int = PART) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `size`, the last one shorter and perhaps none."""
    buffer = bytearray()
    for chunk in chunks:
        with memoryview(chunk).cast("B") as view:
            start = 0
            while len(buffer) + len(view) - start >= size:
                end = start + size - len(buffer)
                piece = bytes(buffer) + view[start:end] if buffer else bytes(view[start:end])
                buffer.clear()
                start = end
                yield piece
            buffer += view[start:]
    if buffer:
        yield bytes(buffer)


def upload(call: Call, parts: Iterable[bytes]) -> int:
    """Write the object from `parts` of at least 5 MiB but the last; returns its size. What `parts`
    raises passes through, after the abort."""
    upload_id = call("create_multipart_upload", ChecksumAlgorithm="CRC32C")["UploadId"]
    pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="eyas-upload")
    try:
        sent, size = _send(pool, call, upload_id, parts)
        call("complete_multipart_upload", UploadId=upload_id, MultipartUpload={"Parts": sent})
    except BaseException:
        pool.shutdown(
            cancel_futures=True
        )  # a part that is still on its way would outlive the abort
        _abort(call, upload_id)
        raise
    finally:
        pool.shutdown()
    return size


def _send(
    pool: ThreadPoolExecutor, call: Call, upload_id: str, parts: Iterable[bytes]
) -> tuple[list[dict[str, Any]], int]:
    pending: set[Future[dict[str, Any]]] = set()
    sent: list[dict[str, Any]] = []
    size = 0
    for number, part in enumerate(parts, 1):
        if number > MOST_PARTS:
            most = MOST_PARTS * PART >> 30
            raise StoreError(f"an object may have {most} GiB at most: write several")
        size += len(part)
        if len(pending) == PARALLEL:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            sent += [future.result() for future in done]
        pending.add(pool.submit(_send_part, call, upload_id, number, part))
    sent += [future.result() for future in pending]
    return sorted(sent, key=lambda part: part["PartNumber"]), size


def _send_part(call: Call, upload_id: str, number: int, part: bytes) -> dict[str, Any]:
    value = checksum(part)
    answer = call(
        "upload_part", UploadId=upload_id, PartNumber=number, Body=part, ChecksumCRC32C=value
    )
    return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32C": value}


def _abort(call: Call, upload_id: str) -> None:
    try:
        call("abort_multipart_upload", UploadId=upload_id)
    except StoreError as error:
        _log.warning("an unfinished upload is left behind: %s", error)
