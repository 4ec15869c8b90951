"""An S3 bucket, or a prefix in one, as a store.

botocore carries every request but the reads, with at least ten attempts in its standard mode. What
it leaves open is closed here: the server verifies a CRC32C of ours on each put; a conditional put
whose answer was lost comes back as "exists" and is settled by reading back; a listing is in byte
order on servers with an order of their own; every error is a sentence. Bytes are read by `s3_read`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore import exceptions as failures

from . import s3_client, s3_list
from .base import (
    NotFound,
    ObjectInfo,
    StoreError,
    bytes_of,
    check_key,
    check_prefix,
    check_process,
    check_range,
    ends_before,
)
from .s3_access import Access
from .s3_client import attempts, bare, explain, parse_url, pause, status_of
from .s3_read import BROKEN, Reads
from .s3_upload import PART, checksum, split, upload

if TYPE_CHECKING:
    from .base import Buffer

__all__ = ["S3Store"]

SINGLE_PUT = 64 << 20
BATCH = 1000
_FAILURES = (failures.BotoCoreError, failures.ClientError, *BROKEN)
_PASSING = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}


class S3Store:
    """`s3://bucket[/prefix]`. Threads may share it; a forked child opens its own."""

    def __init__(self, url: str) -> None:
        self._bucket, self._prefix = parse_url(url)
        self._pid = os.getpid()
        self._access = Access(self.url, self._bucket)
        self._attempts = attempts()
        tries = attempts(s3_client.READ_ATTEMPTS)
        self._reads = Reads(self._access, tries, s3_client.STALL_SECONDS)
        self._bucket_seen = False

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def endpoint(self) -> str:
        """Where requests go, as configured."""
        return bare(self._access.login.client.meta.endpoint_url)

    @property
    def client(self) -> Any:
        """The botocore client, for what only `doctor` asks."""
        check_process(self._pid)
        return self._access.login.client

    def address(self, key: str) -> dict[str, str]:
        """`Bucket` and `Key` of an object, as botocore's calls take them."""
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def server_lists_in_order(self, prefix: str) -> bool:
        """Whether the server's own order below `prefix` is byte order."""
        found = [info.key for info in s3_list.streamed(self._pages, self._prefix + prefix)]
        return found == sorted(found, key=str.encode)

    def unfinished_uploads(self, prefix: str) -> int:
        """Multipart uploads below `prefix` neither completed nor aborted, at most 1,000."""
        check_process(self._pid)
        with self._errors("list", prefix):
            answer = self._access.call(
                "list_multipart_uploads", Bucket=self._bucket, Prefix=self._prefix + prefix
            )
        return len(answer.get("Uploads", []))

    def get(self, key: str) -> bytes:
        with self._reading(key) as name:
            return self._reads.whole(name)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        if length == 0:
            self._check_there(key)
            return b""
        with self._reading(key, start, length) as name:
            return self._reads.range(name, start, length)

    def read_into(self, key: str, start: int, buffer: Buffer, fresh: bool = False) -> None:
        view = bytes_of(buffer)
        check_range(key, start, len(view))
        if not view:
            self._check_there(key)
            return
        with self._reading(key, start, len(view)) as name:
            self._reads.into(name, start, view, fresh)

    def put(self, key: str, data: bytes) -> None:
        if len(data) > SINGLE_PUT:
            self.put_chunks(key, [data])
        else:
            self._put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        for attempt in range(self._attempts):
            try:
                self._put(key, data, IfNoneMatch="*")
                return True
            except StoreError as error:
                status = status_of(error.__cause__)
                if status not in (409, 412):  # 409: another put is on its way
                    raise
            with contextlib.suppress(NotFound):  # deleted since: once more
                if status == 412:
                    return self.get(key) == data
            pause(attempt)
        raise StoreError(
            f"{self.url}: cannot put {key}: {self._attempts} times the server said it exists, and "
            "there was none to read; is it a folder of other keys, or put and deleted all the time?"
        )

    def put_chunks(self, key: str, chunks: Iterable[bytes]) -> int:
        parts = split(chunks)
        first = next(parts, b"")
        if len(first) < PART:
            self._put(key, first)
            return len(first)
        return upload(partial(self._call, "put", key), itertools.chain([first], parts))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_process(self._pid)
        full = self._prefix + check_prefix(prefix)
        listing = s3_list.streamed if self._lists_in_order() else s3_list.ordered
        cut = len(self._prefix)
        for info in listing(self._pages, full):
            yield ObjectInfo(info.key[cut:], info.size, info.etag, info.modified)

    def stat(self, key: str) -> ObjectInfo | None:
        try:
            found = self._call("look up", key, "head_object")
        except NotFound:
            self._check_bucket()  # HEAD does not say which of the two is missing
            return None
        etag = found["ETag"].strip('"')
        return ObjectInfo(key, found["ContentLength"], etag, found["LastModified"].timestamp())

    def delete(self, keys: Iterable[str]) -> None:
        names = (self._prefix + check_key(key) for key in keys)
        while batch := list(itertools.islice(names, BATCH)):
            self._delete(batch)

    def _lists_in_order(self) -> bool:
        amazon = ".amazonaws.com" in self.endpoint
        return amazon and not self._bucket.endswith("--x-s3")

    def _call(self, verb: str, key: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """One request about one object. Raises StoreError whose cause is botocore's error."""
        check_process(self._pid)
        with self._errors(verb, key):
            answer = self._access.call(operation, **self.address(key), **arguments)
        self._bucket_seen = True
        return answer

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise explain(error, self.url, self.endpoint, verb, key) from error

    def _put(self, key: str, data: bytes, **arguments: Any) -> None:
        body = bytes(data)
        self._call("put", key, "put_object", Body=body, ChecksumCRC32C=checksum(body), **arguments)

    @contextlib.contextmanager
    def _reading(self, key: str, start: int = 0, length: int = 0) -> Iterator[str]:
        """Gives the full key to read; the read's errors become sentences."""
        check_process(self._pid)
        name = self._prefix + check_key(key)
        try:
            with self._errors("get", key):
                yield name
        except StoreError as error:
            if status_of(error.__cause__) == 416:
                raise ends_before(self.url, key, start, length) from error
            raise
        self._bucket_seen = True

    def _check_there(self, key: str) -> None:
        if self.stat(key) is None:
            raise NotFound(self.url, key)

    def _pages(self, prefix: str, delimiter: str) -> Iterator[dict[str, Any]]:
        arguments = {"Prefix": prefix}
        if delimiter:
            arguments["Delimiter"] = delimiter
        while True:
            with self._errors("list", prefix or "everything"):
                page = self._access.call("list_objects_v2", Bucket=self._bucket, **arguments)
            yield page
            if not page["IsTruncated"]:
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _delete(self, names: Sequence[str]) -> None:
        check_process(self._pid)
        for attempt in range(self._attempts):
            wanted = {"Objects": [{"Key": name} for name in names], "Quiet": True}
            with self._errors("delete", names[0]):
                answer = self._access.call("delete_objects", Bucket=self._bucket, Delete=wanted)
            refused = answer.get("Errors", [])
            lasting = [e for e in refused if e.get("Code") not in _PASSING]
            if lasting or not refused:
                break
            names = [e["Key"] for e in refused]
            pause(attempt)
        if refused:
            first = (lasting or refused)[0]
            raise StoreError(
                f"{self.url}: cannot delete {len(refused)} objects, {first.get('Key')} among them: "
                f"{self.endpoint} answered {first.get('Code')}"
            )

    def _check_bucket(self) -> None:
        if self._bucket_seen:
            return
        try:
            with self._errors("look up", "the bucket"):
                self._access.call("head_bucket", Bucket=self._bucket)
        except NotFound as error:
            raise StoreError(
                f"{self.url}: there is no bucket {self._bucket} at {self.endpoint}: make it, or "
                "correct the name"
            ) from error
        self._bucket_seen = True
