"""The report as a file, in the format that its ending asks for."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from django_lockstep.lab.finder.derive.candidates import Access
from django_lockstep.lab.finder.record.recording import Site
from django_lockstep.lab.finder.report.reports import STATUSES, Entry, Report, as_json, full_text
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.wording import listed

__all__ = ["page_context", "render_report", "require_report", "write_report"]


def require_report(path: Path, *, option: str) -> None:
    """Raise ``ValueError`` unless a report can be written there; call it before any test runs."""
    endings = [ending for ending, name in ENDINGS.items() if name in _FORMATS]
    if path.suffix.lower() not in endings:
        raise ValueError(f"{option} {path}: the name of a report must end with one of {listed(endings)}")
    require_writable(path, option=option)


def write_report(path: Path, report: Report) -> None:
    """Write the report, so that a reader sees the old file or the whole new one."""
    write_atomically(path, render_report(report, path))


def render_report(report: Report, path: Path) -> str:
    """Return the report in the format that the file's ending asks for."""
    return _FORMATS[format_of(path)](report)


def _check_results(report: Report) -> Iterator[CheckResult]:
    for entry in report.entries:
        candidate, finding = entry.candidate, entry.finding
        tried = finding.verdict != "not tried"
        yield CheckResult(
            name=f"{candidate.kind} in {candidate.unit}, table {candidate.table} ({candidate.id})",
            ok=finding.verdict != "confirmed",
            kind=candidate.kind if finding.verdict != "not confirmed" else "",
            message=_message(entry),
            location=_location(candidate.write),
            details=finding.timeline,
            steps=tuple(_steps(entry)),
            suppressed=entry.suppressed,
            skipped="" if tried else f"not tried: {finding.reason}",
            seconds=finding.seconds,
        )


def _message(entry: Entry) -> str:
    if entry.finding.verdict == "confirmed":
        return f"{entry.candidate.sentence} It ends like no serial order: {entry.difference}"
    return f"{entry.candidate.sentence} {entry.finding.verdict.capitalize()}: {entry.finding.reason}"


def _steps(entry: Entry) -> Iterator[CheckStep]:
    """Yield the steps of the run that shows it; without one, what is read and what is written."""
    if entry.finding.run:
        yield from map(_step, entry.finding.run["steps"])
        return
    accesses = {"reads": entry.candidate.read, "writes": entry.candidate.write}
    for verb, access in accesses.items():
        if access is not None:
            text = f"{verb} {entry.candidate.table}"
            yield CheckStep(actor=entry.candidate.unit, text=text, location=_location(access))


def _step(data: Mapping[str, Any]) -> CheckStep:
    step = Step(**{**data, "arguments": tuple(data["arguments"])})
    return CheckStep(actor=step.actor, text=describe_step(step), location=Location.parse(step.source))


def _location(access: Access) -> Location | None:
    return Location(path=access.site.path, line=access.site.line) if access.site else None


_AROUND = 4
"""Lines of code that are shown before and after an access."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    marked: bool


def as_html(report: Report) -> str:
    """Return the page: the candidates, the worst first, with code, timelines and remedies.

    Without JavaScript all of it can be read; with it the candidates can be filtered and the tests copied.
    """
    return render_page("lockstep_lab/found_races.html", page_context(report), scripts=["found_races.js"])


def page_context(report: Report) -> dict[str, Any]:
    """Return what a page on the report shows."""
    present = {entry.status for entry in report.entries}
    return {
        "report": report,
        "counts": report.counts(),
        "statuses": [status for status in STATUSES if status in present],
        "kinds": sorted({entry.candidate.kind for entry in report.entries}),
        "races": [_shown(entry, report.root) for entry in report.entries],
    }


def _shown(entry: Entry, root: Path) -> dict[str, object]:
    accesses = {"Reads": entry.candidate.read, "Writes": entry.candidate.write}
    return {
        "entry": entry,
        "candidate": entry.candidate,
        "finding": entry.finding,
        "accesses": [_access(verb, access, root) for verb, access in accesses.items() if access is not None],
        # svg() has escaped everything that came from outside.
        "drawing": mark_safe(entry.finding.drawing),  # noqa: S308
    }


def _access(verb: str, access: Access, root: Path) -> dict[str, object]:
    """Return the access with the lines around it, as they are now; none where its file is not found."""
    lines = _source_lines(access.site, root) if access.site else []
    line = access.site.line if access.site else 0
    numbers = range(max(1, line - _AROUND), min(len(lines), line + _AROUND) + 1)
    shown = [_Line(number, lines[number - 1].rstrip(), number == line) for number in numbers]
    return {"verb": verb, "access": access, "lines": shown}


def _source_lines(site: Site, root: Path) -> Sequence[str]:
    # Installed apps are named as they are imported.
    for folder in (root, *map(Path, sys.path)):
        if lines := linecache.getlines(str(folder / site.path)):
            return lines
    return []


_FORMATS: Mapping[str, Callable[[Report], str]] = {
    "text": full_text,
    "json": as_json,
    "html": as_html,
    "sarif": lambda report: as_sarif(_check_results(report)),
    "junit": lambda report: as_junit(_check_results(report), suite="races"),
}
