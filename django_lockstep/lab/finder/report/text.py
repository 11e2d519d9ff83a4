"""The report as text, for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from django_lockstep.lab.finder.confirm.remedies import REMEDIES
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.findings import Finding
from django_lockstep.lab.finder.report.races import MOST_UNITS, Race, Report, title_of
from django_lockstep.lab.wording import counted, listed


def full_text(report: Report) -> str:
    """Return counts and notes, and what became of the candidates; if none was tried, only these."""
    if report.tried:
        return f"{report.store.summary}\n{as_text(report)}"
    return f"{summary_of(report)}\n{list_candidates(report)}"


def summary_of(report: Report) -> str:
    """Return how many candidates there are, with what could not be recorded."""
    return "\n".join([*report.store.notes, report.store.summary])


def list_candidates(report: Report) -> str:
    """Return the candidates, the worst first, as nothing has been tried yet; or why there can be none."""
    lines = (line for number, it in enumerate(report.findings, 1) for line in _lines(number, it.candidate))
    return report.obstacle if report.store.is_empty else "\n".join(lines)


def _lines(number: int, candidate: Candidate) -> Iterator[str]:
    yield ""
    yield f"{number}. {_named(candidate)}"
    yield f"   {candidate.sentence}"
    if candidate.partners:
        yield f"   together with: {', '.join(partner.unit for partner in candidate.partners)}"
    yield f"   shown by: {candidate.witnesses[0].test}"


def as_text(report: Report) -> str:
    """Return each race with its schedule and what helps, why the rest is not confirmed, and all in a few lines.

    The counts and a line for each race stand at the end, where a terminal shows them; last of all is
    `Report.obstacle`.
    """
    races = report.races()
    lines = [*report.store.notes]
    for number, race in enumerate(races, 1):
        lines += _paragraph(number, race)
    for verdict, reasons in report.rest().items():
        lines += ["", f"{verdict}:"]
        for reason, findings in reasons.items():
            units = dict.fromkeys(finding.candidate.unit for finding in findings)
            lines.append(f"  {counted(len(findings), 'candidate')}: {reason}")
            lines.append(f"    in {listed(units, most=MOST_UNITS)}")
    lines.append("")
    for number, race in enumerate(races, 1):
        accepted = "suppressed: " if race.worst.suppressed else ""
        lines.append(f"{number}. {accepted}{race.title} {race.worst.candidate.unit}, at {race.worst.fault}")
    counts = ", ".join(f"{count} {status}" for status, count in report.counts().items())
    lines.append(f"{counted(len(races), 'race')}; {counted(len(report.findings), 'candidate')}: {counts}")
    return "\n".join([*lines, *filter(None, [report.obstacle])])


def in_a_line(finding: Finding, models: Mapping[str, str]) -> str:
    """Return verdict, kind, unit, and what it does or why, in a line; ``models`` are by table."""
    told = title_of(finding, models) if finding.verdict == "confirmed" else finding.reason
    return f"{finding.verdict}: {_named(finding.candidate)}: {told}"


def _named(candidate: Candidate) -> str:
    return f"{candidate.kind} {candidate.id} in {candidate.unit}"


def _paragraph(number: int, race: Race) -> Iterator[str]:
    finding, candidate = race.worst, race.worst.candidate
    yield ""
    yield f"{number}. CONFIRMED: {race.title}"
    if finding.suppressed:
        yield f"  suppressed: {finding.suppressed}"
    yield f"  {candidate.kind} {candidate.id} at {finding.fault}, in {race.reached_by}"
    yield f"  {candidate.sentence}"
    yield f"  it ends like no serial order: {finding.difference}"
    yield f"  schedule {finding.schedule} of {finding.pairing}, in {finding.test}"
    yield from (f"  {actor}" for actor in finding.actors)
    yield textwrap.indent(finding.timeline, "  | ")
    followers = race.findings[1:]
    for follower in followers[:MOST_UNITS]:
        yield f"  the same cause: {_named(follower.candidate)}: {follower.difference}"
    if more := followers[MOST_UNITS:]:
        yield f"  the same cause: {counted(len(more), 'more candidate')}"
    if finding.remedy:
        yield f"  tried: {finding.remedy}"
        yield from (f"  | {line}" for line in finding.patch.splitlines())
    yield from (f"  fits: {remedy}" for remedy in REMEDIES[candidate.kind])
