"""The page of the races that ``--find-races`` has found in the project's tests, as a recording and its findings say.

It has the access of the other pages of the lab, and runs nothing. The code beside each access is read from the
project's files as they are now.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.render.drawing.svg import with_style
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.report.files import page_context, render_report
from django_lockstep.lab.finder.report.races import Report, read_suppressions
from django_lockstep.lab.pages.views import attachment, file_name, for_lab_users

REPORTS = {"html": "HTML", "json": "JSON", "sarif": "SARIF", "xml": "JUnit XML"}
"""What the whole report can be downloaded as, by the endings of the files."""


@require_safe
@for_lab_users
def found_races(request: HttpRequest) -> HttpResponse:
    """Show the candidates of the recording, or how to make one; filtering and copying alone need script."""
    context: dict[str, Any] = {}
    try:
        if (report := _current_report()) is not None:
            context = {**page_context(report), "downloads": REPORTS}
    except (OSError, FinderError) as error:
        context["problem"] = str(error)
    return render(request, "lockstep_lab/found.html", context)


@require_safe
@for_lab_users
def found_report(request: HttpRequest, form: str) -> HttpResponse:
    """Return the whole report as a file."""
    if form not in REPORTS:
        raise Http404(f"There is no report as {form!r}")
    name = file_name("races-found", form=form)
    return attachment(render_report(_report_or_404(), Path(name)), name)


@require_safe
@for_lab_users
def found_file(request: HttpRequest, candidate: str, form: str) -> HttpResponse:
    """Return the drawing of a race that was confirmed, or its test, as a file."""
    findings = {finding.candidate.id: finding for finding in _report_or_404().findings}
    if candidate not in findings or form not in ("svg", "py"):
        raise Http404(f"There is no candidate {candidate!r} as {form!r}")
    finding = findings[candidate]
    text = with_style(finding.drawing) if form == "svg" else finding.test_file
    if not text:
        raise Http404(f"Candidate {candidate!r} was not confirmed")
    return attachment(text, file_name("race", candidate, form=form))


def _report_or_404() -> Report:
    try:
        report = _current_report()
    except (OSError, FinderError) as error:
        raise Http404(str(error)) from error
    if report is None:
        raise Http404("There is no recording")
    return report


def _current_report() -> Report | None:
    """Return the report on the project's recording; None if there is none. Raises ``OSError`` and `FinderError`."""
    path = conf.found_races()
    return None if path is None else _report(path, _changed(path), _changed(findings_path(path)))


@functools.lru_cache(maxsize=1)  # candidates are derived in seconds where a project is large
def _report(path: Path, recorded: int, tried: int) -> Report:
    root = Path.cwd()
    return Report(Findings.on(path), read_suppressions(root), root=root)


def _changed(path: Path) -> int:
    """Return when the file was changed, in nanoseconds; 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0
