"""Reports as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django_lockstep.lab.simulator.report import LoadReport, LoadRow

SCHEMA_VERSION = 2
"""Incremented when a key is removed or changes its meaning; new keys may be added without."""


def as_json(report: LoadReport) -> str:
    """Return the whole report as JSON; money is a string with two places, latencies are milliseconds.

    ``kind`` is load or sweep.
    """
    plan = {**dataclasses.asdict(report.plan), **report.load}
    body: dict[str, Any] = {"plan": plan, "strategies": list(map(load_row, report.rows))}
    if sweep := report.sweep:
        rows = {size: [load_row(row) for row in report.rows if row.size == size] for size in report.sizes}
        points = [{sweep.axis: size, "strategies": strategies} for size, strategies in rows.items()]
        body = {"sweep": dataclasses.asdict(sweep), "plan": plan, "points": points}
    data = {
        "schema_version": SCHEMA_VERSION,
        "kind": "sweep" if sweep else "load",
        "environment": dict(report.environment),
        "planned": list(report.planned),
        "interrupted": report.interrupted,
        "notes": list(report.notes),
        **body,
        "advice": list(report.advice),
    }
    return json.dumps(data, indent=2)


def load_row(row: LoadRow) -> dict[str, Any]:
    """Return a strategy's figures as plain values."""
    verdict = row.verdict
    return {
        "strategy": row.strategy,
        "claims_safe": row.safe,
        "verdict": row.status,
        "lost_updates": verdict.lost_updates,
        "money_lost": f"{verdict.money_lost:.2f}",
        "money_difference": f"{verdict.money_difference:.2f}",
        "overdrawn_accounts": verdict.overdrawn_accounts,
        "overdrawn_by": f"{verdict.overdrawn_by:.2f}",
        "entries": verdict.entries,
        "missing_entries": verdict.missing,
        "unexpected_entries": verdict.unexpected,
        "broken_links": verdict.broken_links,
        "without_acknowledgements": verdict.without_acknowledgements,
        "workers": row.workers,
        "seconds": round(row.tally.seconds, 3),
        "operations": row.tally.operations,
        "succeeded": row.tally.succeeded,
        "refused": row.tally.refused,
        "failed": row.tally.failed,
        "operations_per_second": round(row.tally.rate, 1),
        "latency_ms": {name: _rounded(value) for name, value in row.latency_ms.items()},
        "retries": row.tally.retries,
        "retries_per_operation": round(row.tally.retries_per_operation, 3),
        "conflicts": row.tally.conflicts,
        "deadlocks": row.tally.deadlocks,
        "fairness": _rounded(row.fairness),
        "errors": dict(row.tally.errors),
        "error_examples": dict(row.tally.examples),
        "worker_failures": list(row.worker_failures),
        "cut_short": row.cut_short,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
