"""The report on what may race, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from django_lockstep.lab.finder.candidates import Candidate
from django_lockstep.lab.finder.findings import VERDICTS, Finding
from django_lockstep.lab.finder.report_data import Entry, Report
from django_lockstep.lab.wording import counted

__all__ = ["as_text", "full_text", "in_a_line", "list_candidates", "summary_of"]


def full_text(report: Report) -> str:
    """Return counts and notes, and what became of the candidates; if none was tried, only these."""
    return f"{summary_of(report)}\n{as_text(report) if report.tried else list_candidates(report)}"


def summary_of(report: Report) -> str:
    """Return how many candidates there are, with what could not be recorded."""
    return "\n".join([*report.notes, report.summary])


def list_candidates(report: Report) -> str:
    """Return the candidates, the worst first, as nothing has been tried yet."""
    return "\n".join(line for number, entry in enumerate(report.entries, 1) for line in _lines(number, entry.candidate))


def _lines(number: int, candidate: Candidate) -> Iterator[str]:
    yield ""
    yield f"{number}. {candidate.kind} {candidate.id} in {candidate.unit}"
    yield f"   {candidate.sentence}"
    if candidate.partner:
        yield f"   together with: {candidate.partner}"
    yield f"   shown by: {candidate.witnesses[0].test}"


def as_text(report: Report) -> str:
    """Return the confirmed races with how they end and what helps; of the other candidates a line each."""
    verdicts = [entry.finding.verdict for entry in report.entries]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS]
    lines = [f"{counted(len(verdicts), 'candidate')}: {', '.join(counts)}"]
    for entry in report.entries:
        confirmed = entry.finding.verdict == "confirmed"
        lines += _paragraph(entry) if confirmed else [in_a_line(entry.candidate, entry.finding)]
    return "\n".join(lines)


def in_a_line(candidate: Candidate, finding: Finding) -> str:
    """Return verdict, kind, unit and why in a line."""
    ends = "; ".join(finding.differences) if finding.verdict == "confirmed" else finding.reason
    return f"{finding.verdict}: {candidate.kind} {candidate.id} in {candidate.unit}: {ends}"


def _paragraph(entry: Entry) -> Iterator[str]:
    candidate, finding = entry.candidate, entry.finding
    yield ""
    yield f"CONFIRMED: {candidate.kind} {candidate.id} in {candidate.unit} ({finding.consequence})"
    if entry.suppressed:
        yield f"  suppressed: {entry.suppressed}"
    yield f"  {candidate.sentence}"
    yield f"  it ends like no serial order: {entry.difference}"
    yield f"  schedule {finding.schedule} of {finding.pairing}, in {finding.test}"
    yield textwrap.indent(finding.timeline, "  | ")
    if finding.remedy:
        yield f"  tried: {finding.remedy}"
    yield from (f"  fits: {remedy}" for remedy in entry.remedies)
