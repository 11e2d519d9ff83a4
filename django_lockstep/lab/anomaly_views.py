"""Pages of the isolation anomalies: the published results, and for each cell of the tables a page that runs it.

They have the access, the switch and the limits of the pages of races, see `django_lockstep.lab.views`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.anomalies.access_patterns import LEVELS, STRATEGIES
from django_lockstep.lab.anomalies.definitions import ANOMALIES
from django_lockstep.lab.anomalies.published import SOURCES
from django_lockstep.lab.anomalies.render import as_html
from django_lockstep.lab.anomalies.render.wording import PREVENTIONS, prevention
from django_lockstep.lab.anomalies.requests import anomaly_test
from django_lockstep.lab.anomalies.results import AnomalyReport, TableKind
from django_lockstep.lab.anomalies.run import AnomalyCase, select_cases
from django_lockstep.lab.downloads import FORMS, attachment, file_name
from django_lockstep.lab.explorer import svg
from django_lockstep.lab.explorer.reports import RaceReport
from django_lockstep.lab.page_runs import RunRefused, run_anomaly, run_anomaly_spec
from django_lockstep.lab.views import for_lab_users, for_runs, stepped_drawings

__all__ = ["anomalies", "anomaly"]


@require_safe
@for_lab_users
def anomalies(request: HttpRequest) -> HttpResponse:
    context = {
        "tables": [_table("level", LEVELS), _table("strategy", tuple(STRATEGIES))],
        "anomalies": ANOMALIES.values(),
        "strategies": {name: pattern.text for name, pattern in STRATEGIES.items()},
        "sources": SOURCES,
        "runs": conf.runs_in_pages(),
    }
    return render(request, "lockstep_lab/anomalies.html", context)


def _table(kind: TableKind, columns: Sequence[str]) -> dict[str, Any]:
    return {"kind": kind, "columns": columns, "rows": list(_rows(kind))}


def _rows(kind: TableKind) -> Iterator[dict[str, Any]]:
    for each in ANOMALIES.values():
        cases = [case for case in select_cases([each.name]) if case.kind == kind]
        yield {"anomaly": each, "cells": [{"url": _url(case), "published": case.published} for case in cases]}


def _url(case: AnomalyCase) -> str:
    return reverse("lockstep_lab:anomaly", args=[case.anomaly.name, case.kind, _slug(case)])


def _slug(case: AnomalyCase) -> str:
    return case.column.replace(" ", "-")


@for_runs
def anomaly(request: HttpRequest, anomaly: str, kind: str, column: str) -> HttpResponse:
    """Show one cell; POST explores it, to show or ``download`` it."""
    case = _find_case(anomaly, kind, column)
    context: dict[str, Any] = {
        "case": case,
        "strategy_text": STRATEGIES[case.column].text if case.kind == "strategy" else "",
        "published": case.published,
        "runs": conf.runs_in_pages(),
    }
    status = 200
    try:
        if request.POST.get("download"):
            return _download(case, form=request.POST["download"])
        if request.method == "POST":
            context |= _result(run_anomaly(case))
    except RunRefused as refused:
        context["refusal"], status = str(refused), refused.status
    return render(request, "lockstep_lab/anomaly.html", context, status=status)


def _download(case: AnomalyCase, *, form: str) -> HttpResponse:
    """Return what the case comes to as a file; it is explored again, as nothing is kept of it."""
    if form not in FORMS:
        raise RunRefused(f"A download is one of {', '.join(FORMS)}, not {form!r}", status=400)
    report = run_anomaly(case)
    (cell,) = report.cells
    if cell.run is None:
        raise RunRefused(f"There is no run to download: {cell.reason}", status=409)
    if form == "spec":
        text = run_anomaly_spec(case, schedule=cell.run.schedule)
    elif form == "py":
        text = anomaly_test(cell)
    else:
        text = svg(cell.run) if form == "svg" else as_html(report)
    return attachment(text, file_name(cell.anomaly, case.column, form=form))


def _find_case(anomaly: str, kind: str, column: str) -> AnomalyCase:
    for case in select_cases():
        if (case.anomaly.name, case.kind, _slug(case)) == (anomaly, kind, column):
            return case
    raise Http404(f"There is no anomaly {anomaly!r} with {kind} {column!r}")


def _result(report: AnomalyReport) -> dict[str, Any]:
    """Return what the template shows of the report's only cell."""
    (cell,) = report.cells
    drawn = RaceReport(name=cell.anomaly, runs=(cell.run,) if cell.run else ())
    return {
        "cell": cell,
        "server": report.server,
        "preventions": [(word, PREVENTIONS.get(word, "")) for word in prevention(cell)],
        "drawings": stepped_drawings(drawn),
    }
