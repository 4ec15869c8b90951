"""Cost is what the ledger recorded, divided by what was read."""

from __future__ import annotations

import json

import pytest
from tests.corpus.report import made

from eyas.corpus.report.cost import StageWork, cost_facts
from eyas.store import ObjectRef
from eyas.work import Shard, ShardResult


def test_throughput_and_money_by_stage() -> None:
    cost = made.cost(price=0.05)
    extract, filtered = cost["stages"]
    assert (extract["shards"], extract["hosts"], extract["rows"]) == (4, 2, 20_000)
    assert extract["rows_per_cpu_second"] == pytest.approx(20_000 / 320)
    assert extract["megabytes_per_cpu_second"] == pytest.approx(360 / 320)
    assert filtered["rows"] == 4 * 4400
    assert cost["total"]["cpu_seconds"] == pytest.approx(338)
    assert cost["total"]["cpu_hours_per_billion_pages"] == pytest.approx(338 / 3600 * 50_000)
    assert cost["total"]["dollars"] == pytest.approx(338 / 3600 * 0.05)
    assert cost["total"]["megabytes"] == extract["megabytes"]
    json.dumps(cost, allow_nan=False)


def test_without_a_price_there_is_no_money() -> None:
    cost = made.cost(price=0.0)
    assert cost["total"]["dollars"] is None
    assert cost["stages"][0]["dollars"] is None


def test_a_ledger_that_knows_no_times_divides_by_nothing() -> None:
    work = StageWork("extract", [Shard("a", (ObjectRef("a", 9, "0" * 8),))], [ShardResult(())])
    cost = cost_facts([work], 0, 1.0)
    assert cost["total"]["rows_per_cpu_second"] is None
    assert cost["total"]["cpu_hours_per_billion_pages"] is None
    json.dumps(cost, allow_nan=False)
