"""What reports say: each candidate with what became of it, the worst first; as data, as text and as JSON."""

from __future__ import annotations

import json
import linecache
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from django_lockstep.lab.finder.confirm.judging import REMEDIES
from django_lockstep.lab.finder.derive.candidates import Access, Candidate
from django_lockstep.lab.finder.errors import NotASuppression
from django_lockstep.lab.finder.findings import VERDICTS, Finding, Findings
from django_lockstep.lab.finder.record.recording import Site
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.wording import counted, listed

__all__ = [
    "NOTHING_TRIED",
    "Report",
    "Suppression",
    "as_json",
    "as_text",
    "entries_of",
    "in_a_line",
    "list_candidates",
    "page_context",
    "read_suppressions",
    "render_report",
    "report_on",
    "require_report",
    "summary_of",
    "write_report",
]

_CONFIRMED, *_OTHERS = VERDICTS
STATUSES = (_CONFIRMED, "suppressed", *_OTHERS)
"""The verdicts; a race that is confirmed and accepted counts as suppressed."""
NOTHING_TRIED = 11
"""pytest's exit status if nothing was looked at; 2 to 5 are its own, 10 is a missed outcome's."""
_IF_SOME = {"suppressed", "not decided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One candidate."""

    candidate: Candidate
    finding: Finding
    suppressed: str = ""
    """Why it is accepted, if it is confirmed."""
    same_as: str = ""
    """The id of a worse candidate that the same schedule has confirmed: both are one race."""

    @property
    def status(self) -> str:
        """The verdict, or that it is suppressed: one of `STATUSES`."""
        return "suppressed" if self.suppressed else self.finding.verdict

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it."""
        places = (*self.candidate.witnesses, *self.candidate.partner_witnesses)
        return tuple(dict.fromkeys(place.test for place in places))

    @property
    def remedies(self) -> tuple[str, ...]:
        """What fits its kind, the first choice first."""
        return REMEDIES[self.candidate.kind]

    @property
    def difference(self) -> str:
        """What differs from every serial end."""
        return "; ".join(self.finding.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is known about a recording."""

    root: Path
    """The project's folder."""
    summary: str
    """How many candidates there are, from how much."""
    notes: tuple[str, ...]
    """What could not be recorded."""
    tried: bool
    """Whether something was tried; otherwise the candidates are only listed."""
    entries: tuple[Entry, ...]
    is_empty: bool = False
    """Whether nothing was recorded."""

    def counts(self) -> dict[str, int]:
        """Return how many have each status; suppressed and undecided ones only if there are some."""
        counts = {status: sum(entry.status == status for entry in self.entries) for status in STATUSES}
        return {status: count for status, count in counts.items() if count or status not in _IF_SOME}

    @property
    def obstacle(self) -> str:
        """Why nothing was looked at, in a line; empty if a candidate was tried, or there is none to be tried."""
        if self.is_empty:
            return " ".join(["NOTHING WAS LOOKED AT: nothing that a test writes was recorded.", *self.notes])
        reasons = Counter(entry.finding.reason for entry in self.entries if entry.finding.verdict == "not tried")
        if not self.tried or not reasons or reasons.total() < len(self.entries):
            return ""
        ((reason, _),) = reasons.most_common(1)
        return f"NOTHING WAS LOOKED AT: none of {counted(len(self.entries), 'candidate')} was tried: {reason}"

    @property
    def exit_status(self) -> int:
        """1 if a race is confirmed that the project does not accept, `NOTHING_TRIED` if nothing was looked at, or 0."""
        if any(entry.status == "confirmed" for entry in self.entries):
            return 1
        return NOTHING_TRIED if self.obstacle else 0


def report_on(found: Findings, suppressed: Sequence[Suppression], *, root: Path, tried: bool = True) -> Report:
    """Return the report on all candidates; without ``tried``, as if none of them had been tried."""
    known = found.pairs() if tried else []
    decided = {candidate.id for candidate, _ in known}
    rest = [
        (candidate, Finding(candidate=name, verdict="not tried", reason="nothing was tried yet"))
        for name, candidate in found.candidates.items()
        if name not in decided
    ]
    return Report(
        root=root,
        summary=found.summary,
        notes=found.notes,
        tried=bool(known),
        entries=entries_of([*known, *rest], suppressed),
        is_empty=found.is_empty,
    )


def entries_of(pairs: Iterable[tuple[Candidate, Finding]], suppressed: Sequence[Suppression]) -> tuple[Entry, ...]:
    """Return what reports say about these candidates, in this order, those that are accepted after the confirmed."""
    entries = []
    for candidate, finding in pairs:
        covering = (one.reason for one in suppressed if finding.verdict == "confirmed" and one.covers(candidate))
        entries.append(Entry(candidate=candidate, finding=finding, suppressed=next(covering, "")))
    races: dict[object, str] = {}
    for number, entry in enumerate(entries):
        finding = entry.finding
        if finding.verdict == "confirmed":
            race = finding.test, finding.schedule, finding.differences, entry.suppressed
            first = races.setdefault(race, entry.candidate.id)
            entries[number] = replace(entry, same_as="" if first == entry.candidate.id else first)
    return tuple(sorted(entries, key=lambda entry: (STATUSES.index(entry.status), bool(entry.same_as))))


def as_json(report: Report) -> str:
    """Return the candidates with all that is known about each, beside counts and notes."""
    data = {"summary": report.summary, "notes": report.notes, "counts": report.counts()}
    return json.dumps({**data, "candidates": [dict(_facts(entry)) for entry in report.entries]}, indent=2)


def _facts(entry: Entry) -> Iterator[tuple[str, Any]]:
    candidate, finding = entry.candidate, entry.finding
    names = ("id", "kind", "table", "columns", "unit", "unit_kind", "partner", "also", "sentence")
    yield from ((name, getattr(candidate, name)) for name in names)
    yield "read", candidate.read and _access(candidate.read)
    yield "write", _access(candidate.write)
    yield "tests", entry.tests
    yield "suppressed", entry.suppressed
    yield "same_as", entry.same_as
    names = ("verdict", "reason", "consequence", "pairing", "test", "number", "schedules", "schedule", "seconds")
    yield from ((name, getattr(finding, name)) for name in names)
    yield "actors", finding.actors
    yield "difference", entry.difference
    yield "remedy_tried", finding.remedy
    yield "remedies", entry.remedies
    yield "test_file", finding.test_file
    yield "run", finding.run


def _access(access: Access) -> Mapping[str, Any]:
    return {**(asdict(access.site) if access.site else {"path": "", "line": 0, "function": ""}), "sql": access.sql}


# As text


def full_text(report: Report) -> str:
    """Return counts and notes, and what became of the candidates; if none was tried, only these."""
    if report.tried:
        return f"{report.summary}\n{as_text(report)}"
    return f"{summary_of(report)}\n{list_candidates(report)}"


def summary_of(report: Report) -> str:
    """Return how many candidates there are, with what could not be recorded."""
    return "\n".join([*report.notes, report.summary])


def list_candidates(report: Report) -> str:
    """Return the candidates, the worst first, as nothing has been tried yet; or why there can be none."""
    lines = (line for number, entry in enumerate(report.entries, 1) for line in _lines(number, entry.candidate))
    return report.obstacle if report.is_empty else "\n".join(lines)


def _lines(number: int, candidate: Candidate) -> Iterator[str]:
    yield ""
    yield f"{number}. {candidate.kind} {candidate.id} in {candidate.unit}"
    yield f"   {candidate.sentence}"
    if candidate.partner:
        yield f"   together with: {candidate.partner}"
    yield f"   shown by: {candidate.witnesses[0].test}"


def as_text(report: Report) -> str:
    """Return the confirmed races with how they end and what helps, a line each of the others, and `Report.obstacle`."""
    verdicts = [entry.finding.verdict for entry in report.entries]
    counts = [f"{verdicts.count(name)} {name}" for name in VERDICTS if name in verdicts or name not in _IF_SOME]
    if shared := sum(bool(entry.same_as) for entry in report.entries):
        counts[0] += f" ({counted(verdicts.count(_CONFIRMED) - shared, 'race')})"
    lines = [*report.notes, f"{counted(len(verdicts), 'candidate')}: {', '.join(counts)}"]
    for entry in report.entries:
        confirmed = entry.finding.verdict == "confirmed"
        lines += _paragraph(entry) if confirmed else [in_a_line(entry.candidate, entry.finding)]
    return "\n".join([*lines, *filter(None, [report.obstacle])])


def in_a_line(candidate: Candidate, finding: Finding) -> str:
    """Return verdict, kind, unit and why in a line."""
    ends = "; ".join(finding.differences) if finding.verdict == "confirmed" else finding.reason
    return f"{finding.verdict}: {candidate.kind} {candidate.id} in {candidate.unit}: {ends}"


def _paragraph(entry: Entry) -> Iterator[str]:
    candidate, finding = entry.candidate, entry.finding
    yield ""
    yield f"CONFIRMED: {candidate.kind} {candidate.id} in {candidate.unit} ({finding.consequence})"
    if entry.same_as:
        yield f"  shown by the schedule of {entry.same_as}: one race"
        return
    if entry.suppressed:
        yield f"  suppressed: {entry.suppressed}"
    yield f"  {candidate.sentence}"
    yield f"  it ends like no serial order: {entry.difference}"
    yield f"  schedule {finding.schedule} of {finding.pairing}, in {finding.test}"
    yield from (f"  {actor}" for actor in finding.actors)
    yield textwrap.indent(finding.timeline, "  | ")
    if finding.remedy:
        yield f"  tried: {finding.remedy}"
    yield from (f"  fits: {remedy}" for remedy in entry.remedies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A write site whose races are accepted: of ``[[tool.lockstep.races]]`` in the project's pyproject.toml."""

    site: str
    """The path of the file that writes, with the function after a space; or a candidate's id."""
    reason: str

    def covers(self, candidate: Candidate) -> bool:
        """Whether the candidate writes there."""
        site = candidate.write.site
        places = {candidate.id} | ({site.path, f"{site.path} {site.function}"} if site else set())
        return self.site in places


def read_suppressions(root: Path, baseline: Path | None = None) -> list[Suppression]:
    """Return the suppressions of the project in this folder, and the races that an earlier report has confirmed.

    Raises `NotASuppression` without site or reason, and if ``baseline`` is no report in JSON; ``OSError`` without it.
    """
    path = root / "pyproject.toml"
    given = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    entries = given.get("tool", {}).get("lockstep", {}).get("races", [])
    if not isinstance(entries, list):
        raise NotASuppression("races of tool.lockstep in pyproject.toml must be tables [[tool.lockstep.races]]")
    for entry in entries:
        texts = entry.values() if isinstance(entry, dict) and set(entry) == {"site", "reason"} else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise NotASuppression(
                f"an entry of tool.lockstep.races in pyproject.toml must have site and reason, not {entry!r}"
            )
    earlier = _confirmed_in(baseline) if baseline is not None else []
    return [*(Suppression(**entry) for entry in entries), *earlier]


def _confirmed_in(baseline: Path) -> list[Suppression]:
    try:
        candidates = json.loads(baseline.read_text("utf-8"))["candidates"]
        names = [candidate["id"] for candidate in candidates if candidate["verdict"] == "confirmed"]
    except (ValueError, KeyError, TypeError) as error:
        raise NotASuppression(f"{baseline} is no report in JSON, as a report named .json is") from error
    return [Suppression(site=name, reason=f"in the baseline {baseline.name}") for name in names]


# The report as a file, in the format that its ending asks for.


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
        decided = finding.verdict in {"confirmed", "not confirmed"}
        yield CheckResult(
            name=f"{candidate.kind} in {candidate.unit}, table {candidate.table} ({candidate.id})",
            ok=finding.verdict != "confirmed",
            kind=candidate.kind if finding.verdict != "not confirmed" else "",
            message=_message(entry),
            location=_location(candidate.write),
            details=finding.timeline,
            steps=tuple(_steps(entry)),
            suppressed=entry.suppressed,
            skipped="" if decided else f"{finding.verdict}: {finding.reason}",
            seconds=finding.seconds,
        )


def _message(entry: Entry) -> str:
    if entry.finding.verdict == "confirmed":
        return f"{entry.candidate.sentence} It ends like no serial order: {entry.difference}"
    return f"{entry.candidate.sentence} {entry.finding.verdict.capitalize()}: {entry.finding.reason}"


def _steps(entry: Entry) -> Iterator[CheckStep]:
    """Yield the steps of the run that shows it; without one, what is read and what is written."""
    if entry.finding.run:
        for data in entry.finding.run["steps"]:
            step = Step(**{**data, "arguments": tuple(data["arguments"])})
            yield CheckStep(actor=step.actor, text=describe_step(step), location=Location.parse(step.source))
        return
    accesses = {"reads": entry.candidate.read, "writes": entry.candidate.write}
    for verb, access in accesses.items():
        if access is not None:
            text = f"{verb} {entry.candidate.table}"
            yield CheckStep(actor=entry.candidate.unit, text=text, location=_location(access))


def _location(access: Access) -> Location | None:
    return Location(path=access.site.path, line=access.site.line) if access.site else None


_AROUND = 4
"""Lines of code that are shown before and after an access."""


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
        "accesses": [_shown_access(verb, access, root) for verb, access in accesses.items() if access is not None],
        # svg() has escaped everything that came from outside.
        "drawing": mark_safe(entry.finding.drawing),  # noqa: S308
    }


def _shown_access(verb: str, access: Access, root: Path) -> dict[str, object]:
    """Return the access with the lines around it, as they are now; none where its file is not found."""
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
