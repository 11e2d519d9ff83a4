"""The formats of reports on any number of races, and which one a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from django_lockstep.lab.explorer.render.ci_reports import CheckResult, CheckStep, Location, as_junit, as_sarif
from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.reports import RaceReport, as_html, as_json, as_text
from django_lockstep.lab.explorer.render.summaries import describe_step
from django_lockstep.lab.explorer.render.timelines import timeline
from django_lockstep.lab.explorer.results import Run

__all__ = ["ENDINGS", "FORMATS", "check_results", "format_of"]

ENDINGS = {".txt": "text", ".json": "json", ".html": "html", ".svg": "svg", ".xml": "junit", ".sarif": "sarif"}
"""The format that a file's ending asks for."""


def format_of(path: Path | None) -> str:
    """Return the format that the file's ending asks for; text for any other, and without a file."""
    return ENDINGS.get(path.suffix.lower(), "text") if path else "text"


def check_results(reports: Sequence[RaceReport]) -> Iterator[CheckResult]:
    """Yield a result for each race; one that ends as it is meant to is all right, even if it is meant to break."""
    for report in reports:
        found = report.exploration
        wrong = found.failure if found else next((run for run in report.runs if not run.holds), None)
        seconds = found.seconds if found else 0.0
        if wrong is not None and (found is None or found.verdict == "broken"):
            yield _broken(report, wrong, seconds)
        else:
            verdict, reason = (found.verdict, found.reason) if found else ("holds", "")
            kind = "" if report.as_expected else verdict
            yield CheckResult(name=report.name, ok=report.as_expected, kind=kind, message=reason, seconds=seconds)


def _broken(report: RaceReport, run: Run, seconds: float) -> CheckResult:
    why = find_explanation(run)
    sources = [why.step.source if why.step else "", *(raised.source for raised in run.raised.values())]
    return CheckResult(
        name=report.name,
        ok=report.as_expected,
        kind=why.kind,
        message=run.reason if why.kind == "unexplained" else why.text,
        location=next(filter(None, map(Location.parse, sources)), None),
        details=timeline(run),
        steps=tuple(
            CheckStep(actor=step.actor, text=describe_step(step, run), location=Location.parse(step.source))
            for step in run.steps
        ),
        seconds=seconds,
    )


FORMATS: Mapping[str, Callable[[Sequence[RaceReport]], str]] = {
    "text": as_text,
    "json": as_json,
    "html": as_html,
    "junit": lambda reports: as_junit(check_results(reports), suite="races"),
    "sarif": lambda reports: as_sarif(check_results(reports)),
}
"""The formats that hold any number of races in one text."""
