"""Made-up rows, as a simulation would yield them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from django_lockstep.lab.simulator.advice import advice_on_load, advice_on_sweep
from django_lockstep.lab.simulator.audit import AuditVerdict
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep
from django_lockstep.lab.simulator.report import Latency, LoadReport, LoadRow

ENVIRONMENT = {
    "database": "PostgreSQL 18.4",
    "isolation": "read committed",
    "django": "5.2",
    "python": "3.11",
    "cpus": 2,
}
LOAD = {
    "accounts": 1,
    "mix": "1:1:0",
    "seed": 7,
    "opening_balance": "500.00",
    "overdraft_limit": "200.00",
    "amounts": ["1.00", "100.00"],
}
LOST = AuditVerdict(entries=1000, overwritten=812, money_lost=Decimal("3212.50"), money_difference=Decimal("-3212.50"))


def row(strategy: str, *, rate: float = 100.0, p99: float | None = 10.0, **changes: Any) -> LoadRow:
    """Return the row of a strategy that is safe and right, unless the changes say otherwise."""
    plain = LoadRow(
        strategy=strategy,
        safe=True,
        guarantee=f"{strategy} guards.",
        verdict=AuditVerdict(entries=300),
        workers=8,
        seconds=3.0,
        succeeded=290,
        refused=10,
        errors={},
        error_examples={},
        operations_per_second=rate,
        latency_ms=Latency(p50=1.5, p95=5.0, p99=p99, max=123.4),
        retries=0,
        conflicts=0,
        deadlocks=0,
        fairness=0.99,
    )
    return replace(plain, **changes)


def naive(**changes: Any) -> LoadRow:
    """Return a row that lost updates, and had not claimed otherwise."""
    return row("naive", **{"safe": False, "verdict": LOST, **changes})


def load_report(*rows: LoadRow, **changes: Any) -> LoadReport:
    """Return a report of these rows."""
    plain = LoadReport(
        environment=ENVIRONMENT,
        plan=LoadPlan(),
        load=LOAD,
        planned=tuple(row.strategy for row in rows),
        rows=rows,
        advice=advice_on_load(rows),
    )
    return replace(plain, **changes)


def sweep_report(*points: tuple[Any, ...], values: tuple[int, ...] = (), **changes: Any) -> LoadReport:
    """Return a report over numbers of workers: of each number, followed by the rows."""
    sweep = Sweep(axis="workers", values=values or tuple(size for size, *_ in points))
    rows = tuple(replace(row, size=size) for size, *rows in points for row in rows)
    planned = tuple(dict.fromkeys(row.strategy for row in rows))
    plain = load_report(*rows, sweep=sweep, planned=planned, advice=advice_on_sweep(sweep, rows))
    return replace(plain, **changes)
