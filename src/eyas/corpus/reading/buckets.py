"""Buckets that are not this run's store: `s3://bucket/a/b` to a store and a key in it."""

from __future__ import annotations

import functools

from eyas.store import Store, open_store

__all__ = ["at_bucket", "split_url"]


def at_bucket(url: str) -> tuple[Store, str]:
    """The store of the bucket, opened once a process, and the key."""
    bucket, key = split_url(url)
    return _open(bucket), key


def split_url(url: str) -> tuple[str, str]:
    """`s3://bucket/a/b` to (`s3://bucket`, `a/b`)."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return f"s3://{bucket}", key


@functools.cache
def _open(bucket: str) -> Store:
    return open_store(bucket)
