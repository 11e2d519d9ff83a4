"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.template import Context, Engine

from django_lockstep.lab.anomalies.render.wording import (
    CAPTION,
    PREVENTIONS,
    TITLES,
    cell_title,
    headline,
    prevention,
    remarks,
    sections,
)
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport, Heading, TableKind
from django_lockstep.lab.explorer import timeline

__all__ = ["as_html"]

_PAGE = Path(__file__).with_name("page.html")


def as_html(report: AnomalyReport) -> str:
    """Return the page: both tables, and the timeline of the simplest schedule for each possible anomaly."""
    template = Engine().from_string(_PAGE.read_text(encoding="utf-8"))
    context = {
        "report": report,
        "headline": headline(report),
        "caption": CAPTION,
        "preventions": PREVENTIONS,
        "remarks": list(remarks(report)),
        "well": not (report.disagreements or report.incomplete),
        "tables": [
            {"title": TITLES[kind], "columns": columns, "rows": list(_rows(report, kind, columns))}
            for kind, columns in sections(report)
        ],
        "runs": [_run(cell) for cell in report.cells if cell.run is not None],
    }
    return template.render(Context(context))


def _rows(report: AnomalyReport, kind: TableKind, columns: tuple[Heading, ...]) -> Iterator[dict[str, Any]]:
    for anomaly in report.anomalies:
        cells = (report.cell(kind, anomaly.name, named.name) for named in columns)
        yield {"anomaly": anomaly, "cells": [_cell(cell) for cell in cells]}


def _cell(cell: AnomalyCell) -> dict[str, Any]:
    return {
        "verdict": cell.verdict,
        "prevention": ", ".join(prevention(cell)),
        "link": _anchor(cell) if cell.run is not None else "",
        "differs": cell.verdict != "incomplete" and not cell.agrees,
    }


def _run(cell: AnomalyCell) -> dict[str, Any]:
    shown = timeline(cell.run) if cell.run is not None else ""
    return {"anchor": _anchor(cell), "cell_title": cell_title(cell), "schedule": cell.schedule, "timeline": shown}


def _anchor(cell: AnomalyCell) -> str:
    return "-".join([cell.kind, cell.anomaly, *cell.column.split()])
