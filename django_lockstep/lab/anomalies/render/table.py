"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from django_lockstep.lab.anomalies.render.wording import (
    CAPTION,
    PREVENTIONS,
    TITLES,
    headline,
    prevention,
    remarks,
    sections,
)
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport, Heading, TableKind
from django_lockstep.lab.tables import bold, plain_table, render

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["as_table"]


def as_table(report: AnomalyReport, *, width: int = 80, colour: bool = False) -> str:
    """Return the report as text of this width; ``colour`` puts terminal codes into it."""
    return render(_blocks(report), width=width, colour=colour)


def _blocks(report: AnomalyReport) -> Iterable[RenderableType]:
    yield bold(headline(report))
    yield f"{CAPTION}:"
    yield _pairs((word, text) for word, text in PREVENTIONS.items())
    for kind, columns in sections(report):
        yield ""
        yield bold(TITLES[kind])
        yield ""
        yield _cells(report, kind, columns)
    yield ""
    yield _pairs((named.name, f"{named.title}: {named.text}") for named in report.anomalies)
    yield from _strategies(report)
    yield ""
    yield from remarks(report)
    yield "Published in:"
    yield _pairs(("-", source) for source in report.sources)


def _strategies(report: AnomalyReport) -> Iterable[RenderableType]:
    if report.strategies:
        yield ""
        yield _pairs((named.name, named.text) for named in report.strategies)


def _cells(report: AnomalyReport, kind: TableKind, columns: Sequence[Heading]) -> Table:
    headings = [named.name.replace("_", "\n") if kind == "strategy" else named.name for named in columns]
    table = plain_table("Anomaly", *headings)
    for anomaly in report.anomalies:
        cells = (report.cell(kind, anomaly.name, named.name) for named in columns)
        table.add_row(anomaly.name, *map(_cell, cells))
    return table


def _cell(cell: AnomalyCell) -> Text:
    from rich.text import Text

    mark = "" if cell.agrees or cell.verdict == "incomplete" else " (!)"
    if cell.verdict == "prevented":
        return Text("\n".join(prevention(cell)) + mark, style="green")
    return Text(cell.verdict.upper() + mark, style="bold red" if cell.verdict == "possible" else "yellow")


def _pairs(pairs: Iterable[tuple[str, str]]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    for pair in pairs:
        grid.add_row(*pair)
    return grid
