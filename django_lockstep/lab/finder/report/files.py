"""The report as a file, in the format that its ending asks for."""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.utils.safestring import mark_safe

from django_lockstep.lab.explorer import Step
from django_lockstep.lab.explorer.render.reports import (
    ENDINGS,
    CheckResult,
    CheckStep,
    Location,
    as_junit,
    as_sarif,
    format_of,
    render_page,
)
from django_lockstep.lab.explorer.render.summaries import describe_step
from django_lockstep.lab.finder.confirm.remedies import REMEDIES
from django_lockstep.lab.finder.findings import Finding
from django_lockstep.lab.finder.record.recording import RecordedStatement, Site
from django_lockstep.lab.finder.report.races import STATUSES, Race, Report
from django_lockstep.lab.finder.report.text import full_text
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.wording import listed


def require_report(path: Path, *, option: str) -> None:
    """Raise ``ValueError`` unless a report can be written there; call it before any test runs."""
    endings = [ending for ending, name in ENDINGS.items() if name in _FORMATS]
    if path.suffix.lower() not in endings:
        raise ValueError(f"{option} {path}: the name of a report must end with one of {listed(endings)}")
    require_writable(path, option=option)


def write_reports(report: Report, path: Path | None, fix: Path | None) -> None:
    """Write the report where a path is given, and there the diff of the first change that helps, or an empty file.

    A reader sees the old file or the whole new one. Changes against accepted races do not count.
    """
    if path:
        write_atomically(path, render_report(report, path))
    if fix:
        patches = (race.worst.patch for race in report.races() if not race.worst.suppressed)
        write_atomically(fix, next(filter(None, patches), ""))


def render_report(report: Report, path: Path) -> str:
    """Return the report in the format that the file's ending asks for."""
    return _FORMATS[format_of(path)](report)


def as_json(report: Report) -> str:
    """Return the races by cause, and the candidates with all that is known about each, beside counts and notes."""
    races = [
        {
            "title": race.title,
            "fault": race.worst.fault,
            "units": race.units,
            "tests": race.tests,
            "candidates": [finding.candidate.id for finding in race.findings],
        }
        for race in report.races()
    ]
    data = {"summary": report.store.summary, "notes": report.store.notes, "counts": report.counts(), "races": races}
    return json.dumps({**data, "candidates": list(map(_fields, report.findings))}, indent=2)


_OF_CANDIDATE = ("id", "kind", "table", "columns", "unit", "unit_kind", "sentence", "tests")
_OF_FINDING = (
    *("verdict", "reason", "obstacles", "consequence", "pairing", "test", "number", "schedules", "schedule", "seconds"),
    *("actors", "fault", "patch", "difference", "suppressed", "test_file", "run"),
)


def _fields(finding: Finding) -> dict[str, Any]:
    candidate = finding.candidate
    return {
        **{name: getattr(candidate, name) for name in _OF_CANDIDATE},
        "partners": [partner.unit for partner in candidate.partners],
        "read": _access(candidate.read),
        "write": _access(candidate.write),
        **{name: getattr(finding, name) for name in _OF_FINDING},
        "remedy_tried": finding.remedy,
        "remedies": REMEDIES[candidate.kind],
    }


def _access(access: RecordedStatement) -> Mapping[str, Any]:
    return {**(asdict(access.site) if access.site else {"path": "", "line": 0, "function": ""}), "sql": access.sql}


def _check_results(report: Report) -> Iterator[CheckResult]:
    for finding in report.findings:
        candidate = finding.candidate
        decided = finding.verdict in {"confirmed", "not confirmed"}
        end = f"{finding.verdict.capitalize()}: {finding.reason}"
        if finding.verdict == "confirmed":
            end = f"It ends like no serial order: {finding.difference}"
        yield CheckResult(
            name=f"{candidate.kind} in {candidate.unit}, table {candidate.table} ({candidate.id})",
            ok=finding.verdict != "confirmed",
            kind=candidate.kind if finding.verdict != "not confirmed" else "",
            message=f"{candidate.sentence} {end}",
            location=_location(candidate.write),
            details=finding.timeline,
            steps=tuple(_steps(finding)),
            suppressed=finding.suppressed,
            skipped="" if decided else f"{finding.verdict}: {finding.reason}",
            seconds=finding.seconds,
        )


def _steps(finding: Finding) -> Iterator[CheckStep]:
    """Yield the steps of the run that shows it; without one, what is read and what is written."""
    candidate = finding.candidate
    if finding.run:
        for data in finding.run["steps"]:
            step = Step(**{**data, "arguments": tuple(data["arguments"])})
            yield CheckStep(actor=step.actor, text=describe_step(step), location=Location.parse(step.source))
        return
    for verb, access in {"reads": candidate.read, "writes": candidate.write}.items():
        yield CheckStep(actor=candidate.unit, text=f"{verb} {candidate.table}", location=_location(access))


def _location(access: RecordedStatement) -> Location | None:
    return Location(path=access.site.path, line=access.site.line) if access.site else None


_AROUND = 4
"""Lines of code that are shown before and after an access."""


def as_html(report: Report) -> str:
    """Return the page: the races by cause, the worst first, with code, timelines and remedies; then the rest.

    Without JavaScript all of it can be read; with it the candidates can be filtered and the tests copied.
    """
    return render_page("lockstep_lab/found_races.html", page_context(report), scripts=["found_races.js"])


def page_context(report: Report) -> dict[str, Any]:
    """Return what a page on the report shows."""
    present = {finding.status for finding in report.findings}
    return {
        "report": report,
        "counts": report.counts(),
        "statuses": [status for status in STATUSES if status in present],
        "kinds": sorted({finding.candidate.kind for finding in report.findings}),
        "races": [_shown_race(race, report.root) for race in report.races()],
        "rest": [
            {
                "verdict": verdict,
                "reasons": {reason: len(findings) for reason, findings in reasons.items()},
                "findings": [finding for finding in report.findings if finding.verdict == verdict],
            }
            for verdict, reasons in report.rest().items()
        ],
    }


def _shown_race(race: Race, root: Path) -> dict[str, object]:
    candidate = race.worst.candidate
    accesses = [("Reads", candidate.read), ("Writes", candidate.write)]
    return {
        "race": race,
        "remedies": REMEDIES[candidate.kind],
        "accesses": [_shown_access(verb, access, root) for verb, access in accesses],
        # svg() has escaped everything that came from outside.
        "drawing": mark_safe(race.worst.drawing),  # noqa: S308
    }


def _shown_access(verb: str, access: RecordedStatement, root: Path) -> dict[str, object]:
    """Return the access with the lines around it, as they are now; none if its file does not exist."""
    site = access.site or Site(path="", line=0, function="")
    # Installed apps are named as they are imported.
    files = (str(folder / site.path) for folder in (root, *map(Path, sys.path)))
    lines = next(filter(None, map(linecache.getlines, files)), []) if site.path else []
    numbers = range(max(1, site.line - _AROUND), min(len(lines), site.line + _AROUND) + 1)
    shown = [
        {"number": number, "text": lines[number - 1].rstrip(), "marked": number == site.line} for number in numbers
    ]
    return {"verb": verb, "access": access, "lines": shown}


_FORMATS: Mapping[str, Callable[[Report], str]] = {
    "text": full_text,
    "json": as_json,
    "html": as_html,
    "sarif": lambda report: as_sarif(_check_results(report)),
    "junit": lambda report: as_junit(_check_results(report), suite="races"),
}
