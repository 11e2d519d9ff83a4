"""Texts that tables, pages and timelines share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport, Heading, TableKind

__all__ = ["CAPTION", "PREVENTIONS", "TITLES", "cell_title", "headline", "prevention", "remarks", "sections"]

_SHORT = {"StaleVersionError": "conflict"}

PREVENTIONS: Mapping[str, str] = MappingProxyType(
    {
        "waits": "one transaction waited for a lock of the other",
        "40001": "the server refused one: serialization failure",
        "40P01": "the server ended one: deadlock",
        "conflict": "one found a changed version and gave up",
        "snapshots": "no transaction waited or failed, and none saw uncommitted changes",
    }
)
"""What may prevent an anomaly, by the word in the cells."""

CAPTION = "Each cell says POSSIBLE, or what prevents the anomaly in every interleaving"
"""How to read the tables."""

TITLES: Mapping[TableKind, str] = MappingProxyType(
    {
        "level": "By isolation level, plain statements in one transaction",
        "strategy": "By locking strategy, at READ COMMITTED except for the last",
    }
)
"""Headings of the two tables."""


def prevention(cell: AnomalyCell) -> tuple[str, ...]:
    """Return what prevents the anomaly, in words of `PREVENTIONS` if there is one."""
    return tuple(_SHORT.get(word, word) for word in cell.prevented_by)


def sections(report: AnomalyReport) -> list[tuple[TableKind, tuple[Heading, ...]]]:
    """Return the tables that have columns, and their columns."""
    tables: list[tuple[TableKind, tuple[Heading, ...]]] = [("level", report.levels), ("strategy", report.strategies)]
    return [(kind, columns) for kind, columns in tables if columns]


def cell_title(cell: AnomalyCell) -> str:
    """Return the cell's row and column as text."""
    return f"{cell.anomaly} {'at' if cell.kind == 'level' else 'with'} {cell.column}"


def headline(report: AnomalyReport) -> str:
    """Return a summary in a line."""
    schedules = sum(cell.schedules for cell in report.cells)
    return f"Isolation anomalies on {report.server}: {schedules:,} schedules run in {report.seconds:.1f} s"


def remarks(report: AnomalyReport) -> Iterator[str]:
    """Yield which results differ from published ones or are incomplete; if all agree, that."""
    for cell in report.disagreements:
        yield f"{cell_title(cell)} is {cell.verdict}; the published result is {cell.published}."
    for cell in report.incomplete:
        yield f"{cell_title(cell)} is incomplete: {cell.reason}."
    compared = sum(cell.published is not None and cell.verdict != "incomplete" for cell in report.cells)
    if compared and not report.disagreements:
        yield f"All {compared} results for which there are published ones agree with them."
