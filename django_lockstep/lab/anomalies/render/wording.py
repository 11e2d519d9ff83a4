"""Words that tables, pages and timelines share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from django_lockstep.lab.anomalies.results import AnomalyReport, Cell, Kind, Named

__all__ = ["HOW", "MEANS", "TITLES", "headline", "how", "objections", "place", "sections"]

_SHORT = {"StaleVersionError": "conflict"}

MEANS: Mapping[str, str] = MappingProxyType(
    {
        "waits": "one transaction waited for the other's lock",
        "40001": "the server refused one: serialization failure",
        "40P01": "the server ended one: deadlock",
        "conflict": "a version had changed, so that one gave up",
        "snapshots": "nobody waited or failed: what was not committed was not seen",
    }
)
"""What the cells name as preventing an anomaly."""

HOW = "Each cell says POSSIBLE, or what prevents the anomaly in every interleaving"
"""How to read the tables."""

TITLES: Mapping[Kind, str] = MappingProxyType(
    {
        "level": "By isolation level, plain statements in one transaction",
        "strategy": "By locking strategy, at READ COMMITTED but for the last",
    }
)
"""Headings of the two tables."""


def how(cell: Cell) -> tuple[str, ...]:
    """Return what prevents it, in words of `MEANS` where it has them."""
    return tuple(_SHORT.get(word, word) for word in cell.how)


def sections(report: AnomalyReport) -> list[tuple[Kind, tuple[Named, ...]]]:
    """Return the tables that have columns, with these."""
    tables: list[tuple[Kind, tuple[Named, ...]]] = [("level", report.levels), ("strategy", report.strategies)]
    return [(kind, columns) for kind, columns in tables if columns]


def place(cell: Cell) -> str:
    """Return where in the tables the cell is."""
    return f"{cell.anomaly} {'at' if cell.kind == 'level' else 'with'} {cell.column}"


def headline(report: AnomalyReport) -> str:
    """Return what was done, in a line."""
    schedules = sum(cell.schedules for cell in report.cells)
    return f"Isolation anomalies on {report.server}: {schedules:,} schedules run in {report.seconds:.1f} s"


def objections(report: AnomalyReport) -> Iterator[str]:
    """Yield what is not as published, or not known; if all is well, that."""
    for cell in report.disagreements:
        yield f"{place(cell)} is {cell.verdict}, published is {cell.published}."
    for cell in report.incomplete:
        yield f"{place(cell)} is not known: {cell.reason}."
    compared = sum(cell.published is not None and cell.verdict != "incomplete" for cell in report.cells)
    if compared and not report.disagreements:
        yield f"All {compared} results that can be compared agree with the published ones."
