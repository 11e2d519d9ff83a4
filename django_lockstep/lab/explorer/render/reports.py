"""Reports on any number of races, as text, JSON, one self-contained HTML page, JUnit XML, SARIF and SVG."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from django.template import Context, Engine
from django.utils import translation
from django.utils.safestring import mark_safe

from django_lockstep.lab.explorer.render.drawing.svg import STYLE, svg
from django_lockstep.lab.explorer.render.explanations import explain, find_explanation
from django_lockstep.lab.explorer.render.summaries import clean, describe_step, truncate
from django_lockstep.lab.explorer.render.timelines import fitting_width, timeline
from django_lockstep.lab.explorer.render.tree_rows import TreeRow, tree_rows
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run
from django_lockstep.lab.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source code."""

    path: str
    """Relative to the project's root, or absolute."""
    line: int
    """From 1."""

    @classmethod
    def parse(cls, source: str) -> Location | None:
        """Return the location of a text such as ``shows/booking.py:12``; None for any other text."""
        path, _, line = source.rpartition(":")
        return cls(path=path, line=int(line)) if path and line.isdecimal() and int(line) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One of the steps that lead to what was found."""

    actor: str
    """Who made it."""
    text: str
    """What it does, in a few words."""
    location: Location | None = None
    """The line that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check, such as a race that was explored."""

    name: str
    """What was examined."""
    ok: bool
    """Whether the result is as it should be."""
    kind: str = ""
    """What was found, such as ``lost update``; empty if there is nothing to report."""
    message: str = ""
    """What was found, in a sentence."""
    location: Location | None = None
    """The line where it breaks."""
    details: str = ""
    """Text of several lines, such as a timeline."""
    steps: tuple[CheckStep, ...] = ()
    """The steps that lead to it."""
    suppressed: str = ""
    """Why it is accepted, if it is."""
    skipped: str = ""
    """Why it was not examined, if it was not."""
    seconds: float = 0.0
    """How long it was examined."""


# JUnit XML, as CI systems show it: a test case for each check, which fails unless its result is right. One that is
# accepted, or was not examined, is skipped.


def as_junit(checks: Iterable[CheckResult], *, suite: str) -> str:
    """Return one test suite with this name."""
    results = list(checks)
    counts = {
        "name": clean(suite),
        "tests": str(len(results)),
        "failures": str(sum(not check.ok and not _why_skipped(check) for check in results)),
        "errors": "0",
        "skipped": str(sum(bool(_why_skipped(check)) for check in results)),
        "time": f"{sum(check.seconds for check in results):.3f}",
    }
    root = ET.Element("testsuites")
    element = ET.SubElement(root, "testsuite", counts)
    for check in results:
        _add_case(element, check, suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add_case(parent: ET.Element, check: CheckResult, suite: str) -> None:
    attributes = {"classname": clean(suite), "name": clean(check.name), "time": f"{check.seconds:.3f}"}
    if check.location is not None:
        attributes |= {"file": clean(check.location.path), "line": str(check.location.line)}
    case = ET.SubElement(parent, "testcase", attributes)
    if why := _why_skipped(check):
        ET.SubElement(case, "skipped", {"message": clean(why)})
    elif not check.ok:
        failure = ET.SubElement(case, "failure", {"type": clean(check.kind), "message": clean(check.message)})
        failure.text = _clean_lines(check.details or check.message)
    elif check.kind:
        ET.SubElement(case, "system-out").text = _clean_lines(f"{check.message}\n{check.details}")


def _why_skipped(check: CheckResult) -> str:
    return f"suppressed: {check.suppressed}" if check.suppressed else check.skipped


def _clean_lines(text: str) -> str:
    """Return the text with its line breaks and columns, without characters that XML cannot hold."""
    # Word by word, because clean() makes one space of several.
    return "\n".join(" ".join(map(clean, line.split(" "))) for line in text.splitlines())


def as_annotation(check: CheckResult) -> str:
    """Return the workflow command with which GitHub Actions shows the message at the line of code."""
    place = {"file": check.location.path, "line": check.location.line} if check.location else {}
    escapes = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
    values = {**place, "title": f"{check.name}: {check.kind}"}.items()
    message = clean(check.message).replace("%", "%25")
    return f"::error {','.join(f'{name}={str(value).translate(escapes)}' for name, value in values)}::{message}"


# SARIF 2.1.0 (OASIS, 2020), as code scanning of GitHub and editors show it.

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_TOOL = {
    "name": "django-lockstep",
    "informationUri": "https://github.com/django-lockstep/django-lockstep",
}


def as_sarif(checks: Iterable[CheckResult]) -> str:
    """Return one run: a result for each check with something to report, a rule for each kind.

    What is as it should be, such as a race that has to break, is a note, anything else an error. The steps are a thread
    flow for each actor.
    """
    results = [check for check in checks if check.kind]
    kinds = list(dict.fromkeys(check.kind for check in results))
    rules = [{"id": _rule_id(kind), "name": kind, "shortDescription": {"text": kind}} for kind in kinds]
    run = {
        "tool": {"driver": {**_TOOL, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(check, kinds.index(check.kind)) for check in results],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule_id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(check: CheckResult, rule: int) -> dict[str, Any]:
    result = {
        "ruleId": _rule_id(check.kind),
        "ruleIndex": rule,
        "level": "note" if check.ok else "error",
        "message": {"text": f"{check.name}: {check.message}"},
        # The same race with the same anomaly is the same alert, wherever its lines have moved.
        "partialFingerprints": {"race/v1": f"{check.name}: {check.kind}"},
    }
    if check.suppressed:
        # Not in the source: a file of the project names the place.
        result["suppressions"] = [{"kind": "external", "justification": check.suppressed}]
    if check.location is not None:
        result["locations"] = [_location(check.location)]
    if check.steps:
        result["codeFlows"] = [{"threadFlows": list(_thread_flows(check.steps))}]
    return result


def _thread_flows(steps: Sequence[CheckStep]) -> Iterator[dict[str, Any]]:
    for actor in dict.fromkeys(step.actor for step in steps):
        own = [
            {"executionOrder": order, "location": {**_location(step.location), "message": {"text": step.text}}}
            for order, step in enumerate(steps, start=1)
            if step.actor == actor
        ]
        yield {"id": actor, "locations": own}


def _location(location: Location | None) -> dict[str, Any]:
    if location is None:
        return {}
    absolute = Path(location.path).is_absolute()
    artifact = {"uri": Path(location.path).as_uri()} if absolute else {"uri": quote(Path(location.path).as_posix())}
    # Relative paths are below the root of the checkout.
    artifact |= {} if absolute else {"uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": location.line}}}


_ROOM = Path(__file__).parents[2]
_PAGES_STYLE = _ROOM.parent / "static" / "lockstep" / "pages.css"
_MOST_WAYS = 8
"""Wrong outcomes that a text lists at most."""
_COLUMNS = 160
"""Width of the line on one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceReport:
    """The report on one race: an exploration, single runs, or both."""

    name: str
    """The race's name."""
    text: str = ""
    """What is raced, in a sentence."""
    exploration: Exploration | None = None
    """What exploring it found; None if one schedule was replayed."""
    runs: tuple[Run, ...] = ()
    """Runs to draw."""
    serial: tuple[Run, ...] = ()
    """One run for each serial order of the actors; none where that was not asked for."""
    as_expected: bool = True
    """Whether the race ended as it is meant to."""

    def rows(self) -> list[TreeRow]:
        """Return the exploration's schedules as the lines of a tree."""
        return list(tree_rows(self.exploration)) if self.exploration else []

    def drawings(self) -> Iterator[dict[str, Any]]:
        """Yield what templates show of each run."""
        slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in self.name)
        for number, run in enumerate(self.runs, start=1):
            picture = svg(run, ident=f"{slug}-{number}", styled=False, language=None)
            # svg() has escaped everything that came from outside.
            yield {"run": run, "svg": mark_safe(picture), "text": timeline(run), "why": explain(run)}  # noqa: S308


def run_data(run: Run) -> dict[str, Any]:
    """Return the run as plain data, with its explanation."""
    return {**run.to_dict(), "explanation": explain(run)}


def as_json(reports: Sequence[RaceReport]) -> str:
    """Return explorations by name; a single replayed run alone."""
    if len(reports) == 1 and reports[0].exploration is None:
        return json.dumps(run_data(reports[0].runs[0]), indent=2)
    return json.dumps({report.name: _data(report.exploration) for report in reports}, indent=2)


def _data(exploration: Exploration | None) -> dict[str, Any] | None:
    if exploration is None:
        return None
    return {**exploration.to_dict(), "failure": run_data(exploration.failure) if exploration.failure else None}


def summary_lines(exploration: Exploration) -> list[str]:
    """Return the result in one line and, if the race is broken in several ways, one line for each."""
    wrong = [outcome for outcome in exploration.outcomes if not outcome.holds]
    if exploration.verdict != "broken":
        return [exploration.reason, *_compared(exploration)]
    count, ways = sum(outcome.count for outcome in wrong), counted(len(wrong), "way")
    what = _describe_failure(exploration.failure) if exploration.failure else wrong[0].reason
    more = [f"  and {len(wrong) - _MOST_WAYS} more"] if len(wrong) > _MOST_WAYS else []
    return [
        f"{count} of {counted(exploration.schedules, 'schedule')} end wrong, in {ways}: {truncate(what, _COLUMNS)}",
        # The timeline tells of a single way.
        *(map(_way, wrong[:_MOST_WAYS]) if len(wrong) > 1 else ()),
        *more,
        *_compared(exploration),
        *filter(None, [exploration.missed]),
    ]


def _describe_failure(run: Run) -> str:
    """Return in one line what is wrong at the end of a run, and the anomaly's name."""
    why = find_explanation(run)
    # What the invariant says, or which rows differ; without words of its own, how it came about. pytest adds lines to
    # the message of an assertion.
    _, said, detail = run.reason.partition("\n")[0].partition(": ")
    if why.kind == "unexplained":
        return detail or run.reason
    return f"{detail} ({why.kind})" if said else why.text


def _compared(exploration: Exploration) -> list[str]:
    return [f"not compared: {', '.join(exploration.not_compared)}"] if exploration.not_compared else []


def _way(outcome: Outcome) -> str:
    raised = [f"{name} raised {error}" for name, error in outcome.errors.items()]
    said = "; ".join([outcome.reason, *raised, f"end: {outcome.end}"])
    return f"  {outcome.count} x {truncate(f'Schedule {outcome.schedule}: {said}', _COLUMNS)}"


def as_text(reports: Iterable[RaceReport], *, columns: int = 0) -> str:
    """Return verdicts, and timelines of wrong runs, for a terminal of so many columns."""
    return "\n".join(line for report in reports for line in _lines(report, columns))


def _lines(report: RaceReport, columns: int) -> Iterator[str]:
    exploration = report.exploration
    if exploration is None:
        yield from (timeline(run, width=fitting_width(columns, run)) for run in report.runs)
        return
    audited = f" and {exploration.audited} at random" if exploration.audited else ""
    schedules = f"{counted(exploration.schedules, 'schedule')}{audited}"
    counts = f"{schedules}, {exploration.seconds:.2f} s, {exploration.deadlocks} with deadlocks"
    yield f"{report.name}: {exploration.verdict} ({counts})"
    yield from _compared(exploration) if exploration.verdict == "holds" else summary_lines(exploration)
    if exploration.not_explored and exploration.passed:
        yield f"not explored: {exploration.not_explored}"
    if exploration.failure is not None:
        yield timeline(exploration.failure, width=fitting_width(columns, exploration.failure))
    yield from (f"depends on everything: {sentence}" for sentence in exploration.opaque)


def as_html(reports: Sequence[RaceReport]) -> str:
    """Return one self-contained page: verdicts, counts, outcomes, and timelines as drawings and as text."""
    unexpected = [report.name for report in reports if not report.as_expected]
    return render_page("lockstep_lab/report.html", {"reports": reports, "unexpected": unexpected})


def render_page(template: str, context: Mapping[str, Any], *, scripts: Sequence[str] = ()) -> str:
    """Return a page in English that needs no other file: the template is given the lab's style sheets as ``style``.

    ``scripts`` are the lab's files that it is given as ``script``.
    """
    folder = STYLE.parent
    files = {"style": (_PAGES_STYLE, STYLE, folder / "lab.css"), "script": [folder / name for name in scripts]}
    # Only files of the library.
    texts = {
        name: mark_safe("\n".join(path.read_text(encoding="utf-8") for path in paths))  # noqa: S308
        for name, paths in files.items()
    }
    with translation.override("en"):
        return _engine().get_template(template).render(Context({**context, **texts}))


@functools.cache
def _engine() -> Engine:
    # Not the project's engine, so that reports need no template settings.
    return Engine(dirs=[str(_ROOM / "templates")], libraries={"i18n": "django.templatetags.i18n"})


ENDINGS = {".txt": "text", ".json": "json", ".html": "html", ".svg": "svg", ".xml": "junit", ".sarif": "sarif"}
"""The format that a file's ending asks for."""


def format_of(path: Path | None) -> str:
    """Return the format that the file's ending asks for; text for any other, and without a file."""
    return ENDINGS.get(path.suffix.lower(), "text") if path else "text"


def check_results(reports: Sequence[RaceReport]) -> Iterator[CheckResult]:
    """Yield a result for each race; one that ends as it is meant to is all right, even if it is meant to break."""
    for report in reports:
        exploration = report.exploration
        wrong = exploration.failure if exploration else next((run for run in report.runs if not run.holds), None)
        seconds = exploration.seconds if exploration else 0.0
        if wrong is not None and (exploration is None or exploration.verdict == "broken"):
            yield _broken(report, wrong, seconds)
        else:
            verdict, reason = (exploration.verdict, exploration.reason) if exploration else ("holds", "")
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
