"""How far trying candidates has come: on a terminal one line that is rewritten, below the races that were confirmed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

from django_lockstep.lab.finder.findings import Finding, Findings
from django_lockstep.lab.finder.report.text import in_a_line
from django_lockstep.lab.wording import counted

__all__ = ["Progress"]

_ERASE = "\r\x1b[K"


class Progress:
    """Shows findings as they are known; without a terminal only the confirmed ones, in lines that stay."""

    def __init__(self, findings: Findings, write: Callable[[str], object], *, budget: float, is_terminal: bool) -> None:
        self._findings = findings
        self._write = write
        self._budget = budget
        self._erase = _ERASE if is_terminal else ""

    def update(self, changed: Iterable[Finding]) -> None:
        """Show what has changed, and then how far it has come."""
        for finding in changed:
            if finding.verdict == "confirmed":
                candidate = self._findings.candidates[finding.candidate]
                self._write(f"{self._erase}{in_a_line(candidate, finding)}\n")
        if self._erase:
            # A line as wide as the terminal wraps, and could not be erased by a carriage return.
            self._write(f"{self._erase}{self._line()[: shutil.get_terminal_size().columns - 1]}")

    def close(self) -> None:
        """Take the line away."""
        self._write(self._erase)

    def _line(self) -> str:
        findings = [finding for _, finding in self._findings.pairs()]
        number = sum(finding.verdict != "not decided" for finding in findings)
        confirmed = sum(finding.verdict == "confirmed" for finding in findings)
        spent = max((finding.spent for finding in findings), default=0.0)
        decided = f"{number} of {counted(len(self._findings.candidates), 'candidate')} decided"
        return f"{decided}, {confirmed} confirmed, {spent:.0f} of {self._budget:.0f} s"
