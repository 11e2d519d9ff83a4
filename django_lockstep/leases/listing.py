"""Leases as plain values and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from django_lockstep.stores.terms import Holder

__all__ = ["facts_of", "facts_of_holders", "print_table"]

_COLUMNS = ("key", "owner", "token", "state", "age", "remaining")


def facts_of(leases: Any) -> list[dict[str, Any]]:
    """Return each lease as plain values; durations are seconds by the database's clock."""
    return [
        _facts(row, _state(row), row.acquired_at, row.expires_at, age=row.age, remaining=row.remaining)
        for row in leases.with_times()
    ]


def facts_of_holders(holders: Sequence[Holder]) -> list[dict[str, Any]]:
    """Return the same of what a store lists; times are by the holders' clocks and by this process's."""
    facts, now = [], datetime.now(UTC)
    for holder in holders:
        state, remaining = "kept" if holder.released else "held", timedelta(seconds=holder.remaining)
        facts.append(_facts(holder, state, holder.since, now + remaining, age=now - holder.since, remaining=remaining))
    return facts


def print_table(facts: Sequence[dict[str, Any]], out: IO[str]) -> None:
    """Print the facts as a table; a plain one where ``rich`` is not installed."""
    rows = [[_cell(fact[column]) for column in _COLUMNS] for fact in facts]
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _print_plain(rows, out)
        return
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=out).print(table)


def _print_plain(rows: list[list[str]], out: IO[str]) -> None:
    lines = [list(_COLUMNS), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line in lines:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


def _facts(
    lease: Any, state: str, acquired_at: datetime, expires_at: datetime, *, age: timedelta, remaining: timedelta
) -> dict[str, Any]:
    return {
        "key": lease.key,
        "owner": lease.owner,
        "token": lease.token,
        "state": state,
        "acquired_at": acquired_at.isoformat(),
        "expires_at": expires_at.isoformat(),
        "age": round(age.total_seconds(), 3),
        "remaining": max(0.0, round(remaining.total_seconds(), 3)),
        "data": lease.data,
    }


def _state(row: Any) -> str:
    if row.remaining > timedelta():
        state = "kept" if row.released_at else "held"
    else:
        state = "expired" if row.under_guard else "free"
    return f"{state}, under guard" if row.under_guard else state


def _cell(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, float) else str(value)
