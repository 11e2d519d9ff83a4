"""The report as a file, in the format that its ending asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from django_lockstep.lab.explorer import Step
from django_lockstep.lab.explorer.render.ci_reports import CheckResult, CheckStep, Location, as_junit, as_sarif
from django_lockstep.lab.explorer.render.reports import ENDINGS, format_of
from django_lockstep.lab.explorer.render.summaries import describe_step
from django_lockstep.lab.finder.derive.candidates import Access
from django_lockstep.lab.finder.report.page import as_html
from django_lockstep.lab.finder.report.reports import Entry, Report, as_json, full_text
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.wording import listed

__all__ = ["render_report", "require_report", "write_report"]


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


_FORMATS: Mapping[str, Callable[[Report], str]] = {
    "text": full_text,
    "json": as_json,
    "html": as_html,
    "sarif": lambda report: as_sarif(_check_results(report)),
    "junit": lambda report: as_junit(_check_results(report), suite="races"),
}
