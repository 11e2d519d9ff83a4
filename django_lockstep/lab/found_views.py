"""The page of the races that ``--find-races`` has found in the project's tests, as a recording and its findings say.

It has the access of the other pages of the lab, and runs nothing. The code beside each access is read from the
project's files as they are now.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.report_data import Report, report_on
from django_lockstep.lab.finder.report_page import page_context
from django_lockstep.lab.finder.suppressions import read_suppressions
from django_lockstep.lab.views import for_lab_users

__all__ = ["found_races"]


@require_safe
@for_lab_users
def found_races(request: HttpRequest) -> HttpResponse:
    """Show the candidates of the recording, or how to make one; filtering and copying alone need script."""
    context: dict[str, Any] = {}
    path = conf.found_races()
    try:
        if path is not None:
            context = page_context(_report(path, _changed(path), _changed(findings_path(path))))
    except (OSError, FinderError) as error:
        context["problem"] = str(error)
    return render(request, "lockstep_lab/found.html", context)


@functools.lru_cache(maxsize=1)  # candidates are derived in seconds where a project is large
def _report(path: Path, recorded: int, tried: int) -> Report:
    root = Path.cwd()
    return report_on(Findings.on(path), read_suppressions(root), root=root)


def _changed(path: Path) -> int:
    """Return when the file was changed, in nanoseconds; 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0
