"""What the corpus cost: processor time, throughput and money, stage by stage.

In: the results of every stage with what the ledger recorded of each shard (`spent`); out: one
JSON-able table. A shard's seconds are those of the worker that did it, whenever that was, so a run
that found everything done reports what the work cost when it was done. These figures tell of
machines and time; they are kept apart from the report, which is the same for the same corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eyas.work import Shard, ShardResult

__all__ = ["StageWork", "cost_facts"]

_HOUR = 3600.0
_BILLION = 1e9


@dataclass(frozen=True)
class StageWork:
    """A stage's name, its shards and their results, in the same order."""

    stage: str
    shards: Sequence[Shard]
    results: Sequence[ShardResult]


def cost_facts(work: Iterable[StageWork], pages: int, cpu_hour_price: float) -> dict[str, Any]:
    """Rows by stage under "stages", their sum under "total". `pages` are those that came in;
    `cpu_hour_price` is in dollars, 0 leaves money out.

    Of each stage: shards, hosts, CPU seconds, seconds of workers, rows (pages, documents, hashes)
    and megabytes (10^6) read, both per CPU-second, CPU-hours per billion pages of the crawl,
    dollars. The total's rows are pages.
    """
    stages = [_stage(w, pages, cpu_hour_price) for w in work]
    first = stages[0] if stages else {}
    total: dict[str, Any] = {
        "stage": "total",
        "shards": sum(s["shards"] for s in stages),
        "hosts": max((s["hosts"] for s in stages), default=0),
        "rows": pages,
        "megabytes": first.get("megabytes", 0.0),
    }
    total |= {k: sum(s[k] for s in stages) for k in ("cpu_seconds", "seconds")}
    return {
        "cpu_hour_price": cpu_hour_price,
        "stages": stages,
        "total": total | _rates(total, pages, cpu_hour_price),
    }


def _stage(work: StageWork, pages: int, price: float) -> dict[str, Any]:
    spent = [r.spent for r in work.results]
    inputs = [ref for shard in work.shards for ref in shard.inputs]
    row: dict[str, Any] = {
        "stage": work.stage,
        "shards": len(work.results),
        "hosts": len({s["host"] for s in spent if "host" in s}),
        "cpu_seconds": sum(float(s.get("cpu_seconds", 0)) for s in spent),
        "seconds": sum(float(s.get("seconds", 0)) for s in spent),
        "rows": _counted(work.results) or sum(ref.rows for ref in inputs),
        "megabytes": sum(ref.size for ref in inputs) / 1e6,
    }
    return row | _rates(row, pages, price)


def _counted(results: Iterable[ShardResult]) -> int:
    """What the stage itself counted: pages where it reads the crawl, else documents."""
    counted = (r.counters.get("pages", r.counters.get("documents", 0)) for r in results)
    return int(sum(counted))


def _rates(row: Mapping[str, Any], pages: int, price: float) -> dict[str, float | None]:
    """None where nothing was spent, or nothing was read to divide by."""
    cpu = row["cpu_seconds"]
    hours = cpu / _HOUR
    return {
        "rows_per_cpu_second": row["rows"] / cpu if cpu else None,
        "megabytes_per_cpu_second": row["megabytes"] / cpu if cpu else None,
        "cpu_hours_per_billion_pages": hours * _BILLION / pages if pages else None,
        "dollars": hours * price if price else None,
        "dollars_per_billion_pages": hours * price * _BILLION / pages if price and pages else None,
    }
