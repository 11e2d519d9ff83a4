"""Leases as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from django_lockstep.stores.terms import Holder

__all__ = ["as_json", "facts_of", "facts_of_holders", "print_table"]

_COLUMNS = ("key", "owner", "token", "state", "age", "remaining")


def facts_of(leases: Any) -> list[dict[str, Any]]:
    """Return each lease as plain values; durations are seconds by the database's clock."""
    return [_facts(row) for row in leases.with_times()]


def facts_of_holders(holders: Sequence[Holder]) -> list[dict[str, Any]]:
    """Return the same of what a store lists; times are by the holders' clocks and by this process's."""
    now = datetime.now(UTC)
    return [
        {
            "key": holder.key,
            "owner": holder.owner,
            "token": holder.token,
            "state": "kept" if holder.released else "held",
            "acquired_at": holder.since.isoformat(),
            "expires_at": (now + timedelta(seconds=holder.remaining)).isoformat(),
            "age": round((now - holder.since).total_seconds(), 3),
            "remaining": round(holder.remaining, 3),
            "data": holder.data,
        }
        for holder in holders
    ]


def as_json(facts: Sequence[dict[str, Any]]) -> str:
    """Return the facts as a JSON array."""
    return json.dumps(facts, indent=2)


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


def _facts(row: Any) -> dict[str, Any]:
    return {
        "key": row.key,
        "owner": row.owner,
        "token": row.token,
        "state": _state(row),
        "acquired_at": row.acquired_at.isoformat(),
        "expires_at": row.expires_at.isoformat(),
        "age": round(row.age.total_seconds(), 3),
        "remaining": max(0.0, round(row.remaining.total_seconds(), 3)),
        "data": row.data,
    }


def _state(row: Any) -> str:
    if row.remaining > timedelta():
        state = "kept" if row.released_at else "held"
    else:
        state = "expired" if row.under_guard else "free"
    return f"{state}, under guard" if row.under_guard else state


def _cell(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, float) else str(value)
