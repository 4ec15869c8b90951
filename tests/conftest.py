"""Stores for every test: a folder, and a real S3 server that is started when first asked for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import seaweed as weed

from eyas.store import Store, open_store

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

# No property may fail for the load of the machine: a deadline is a timed assertion.
settings.register_profile("eyas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("eyas")


@pytest.fixture(scope="session")
def seaweed() -> Iterator[weed.Seaweed]:
    """One server a test process; the environment points at it from then on."""
    with weed.start() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(name, raising=False)
        for name, value in server.environ.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def folder_store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def s3_store(seaweed: weed.Seaweed) -> Store:
    """A prefix of its own in the bucket `eyas`."""
    return open_store(f"s3://{weed.BUCKET}/{uuid.uuid4().hex}")


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """A promise is tested on both kinds."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for servers and processes, runs whole stages or trains under layouts is left to
    `make test`."""
    waiting = [f"test_{name}.py" for name in "curate packages run_stage seaweed server".split()]
    waiting += [f"test_{name}.py" for name in "supervisor tokenize tokens_stage".split()]
    waiting += [f"test_{name}.py" for name in "engines removals".split()]
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        kinds = getattr(item, "callspec", None)
        on_s3 = kinds is not None and "s3" in kinds.params.values()
        trains = item.path.parent.name == "train" and item.path.name != "test_values.py"
        if on_s3 or trains or item.path.name in waiting or names & {"s3_store", "seaweed"}:
            item.add_marker(pytest.mark.slow)
