"""The report on what may race, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from django_lockstep.lab.finder.candidates import Candidate
from django_lockstep.lab.finder.findings import VERDICTS, Finding, Findings
from django_lockstep.lab.finder.recording import Recording
from django_lockstep.lab.finder.remedies import REMEDIES
from django_lockstep.lab.finder.suppressions import Suppression
from django_lockstep.lab.wording import counted

__all__ = ["as_text", "count_candidates", "in_a_line", "list_candidates", "status_of"]


def count_candidates(recording: Recording, candidates: Sequence[Candidate]) -> str:
    """Return how many there are, from how much; with what could not be recorded."""
    found = f"{counted(len(candidates), 'candidate')} in {counted(len(recording.units), 'unit')} of work that write"
    return "\n".join([*recording.notes, f"{found}, from {counted(recording.tests, 'test')}"])


def list_candidates(candidates: Sequence[Candidate]) -> str:
    """Return the candidates, the worst first, as nothing has been tried yet."""
    return "\n".join(line for number, each in enumerate(candidates, 1) for line in _lines(number, each))


def _lines(number: int, candidate: Candidate) -> Iterator[str]:
    yield ""
    yield f"{number}. {candidate.kind} {candidate.id} in {candidate.unit}"
    yield f"   {candidate.sentence}"
    if candidate.partner:
        yield f"   together with: {candidate.partner}"
    yield f"   shown by: {candidate.witnesses[0].test}"


def status_of(found: Findings, suppressed: Sequence[Suppression]) -> int:
    """Return 1 if a race is confirmed that the project does not suppress, otherwise 0."""
    confirmed = (candidate for candidate, finding in found.pairs() if finding.verdict == "confirmed")
    return int(any(not any(one.covers(candidate) for one in suppressed) for candidate in confirmed))


def as_text(found: Findings) -> str:
    """Return the confirmed races with how they end and what helps; of the other candidates a line each."""
    pairs = found.pairs()
    counts = [f"{sum(finding.verdict == verdict for _, finding in pairs)} {verdict}" for verdict in VERDICTS]
    lines = [f"{counted(len(pairs), 'candidate')}: {', '.join(counts)}"]
    for candidate, finding in pairs:
        lines += _paragraph(candidate, finding) if finding.verdict == "confirmed" else [in_a_line(candidate, finding)]
    return "\n".join(lines)


def in_a_line(candidate: Candidate, finding: Finding) -> str:
    """Return verdict, kind, unit and why in a line."""
    ends = "; ".join(finding.differences) if finding.verdict == "confirmed" else finding.reason
    return f"{finding.verdict}: {candidate.kind} {candidate.id} in {candidate.unit}: {ends}"


def _paragraph(candidate: Candidate, finding: Finding) -> Iterator[str]:
    yield ""
    yield f"CONFIRMED: {candidate.kind} {candidate.id} in {candidate.unit} ({finding.consequence})"
    yield f"  {candidate.sentence}"
    yield f"  it ends like no serial order: {'; '.join(finding.differences)}"
    yield f"  schedule {finding.schedule} of {finding.pairing}, in {finding.test}"
    yield textwrap.indent(finding.timeline, "  | ")
    if finding.remedy:
        yield f"  tried: {finding.remedy}"
    yield from (f"  fits: {remedy}" for remedy in REMEDIES[candidate.kind])
