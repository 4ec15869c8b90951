"""A store whose every request passes the fault proxy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.faults import Proxy, proxy
from tests.seaweed import Seaweed

from eyas.store.s3 import S3Store


@pytest.fixture
def between(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the real server, to which the environment points."""
    with proxy(seaweed.endpoint) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.endpoint)
        yield found


@pytest.fixture
def behind(between: Proxy) -> S3Store:
    """A prefix of its own behind the proxy."""
    return S3Store(f"s3://eyas/{uuid.uuid4().hex}")
