"""Made-up rows, as a simulation would yield them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from django_lockstep.lab.simulator.advice import advice_on_load, advice_on_sweep
from django_lockstep.lab.simulator.audit import AuditVerdict
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.simulator.tally import Tally

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
LATENCIES = {50: 1.5, 95: 5.0, 99: 10.0}
LOST = AuditVerdict(entries=1000, overwritten=812, money_lost=Decimal("3212.50"), money_difference=Decimal("-3212.50"))


SECONDS = 3


def row(
    strategy: str,
    *,
    rate: float = 100.0,
    latencies: Mapping[int, float] = LATENCIES,
    p99: float | None = LATENCIES[99],
    largest: float = 123.4,
    errors: Mapping[str, int] = {},
    **changes: Any,
) -> LoadRow:
    """Return the row of a strategy that is safe and right, unless the changes say otherwise."""
    measured: Any = SimpleNamespace(milliseconds={**latencies, 99: p99}.get, largest=largest * 1e6)
    answered: Any = {"succeeded": round(rate * SECONDS) - 10, "refused": 10, "ended": SECONDS * 10**9}
    plain = LoadRow(
        strategy=strategy,
        safe=True,
        verdict=AuditVerdict(entries=300),
        workers=8,
        tally=Tally(**answered, errors=Counter(errors), latencies=measured),
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
