"""Processes that try shares of the candidates, and the loop that shows what they find as they find it.

Without pytest: projects that use Django's test runner may not have it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django_lockstep.lab.finder.findings import Finding, Findings, findings_path
from django_lockstep.lab.finder.report.text import in_a_line
from django_lockstep.lab.finder.shares import Share
from django_lockstep.lab.wording import counted

_LOOK_AGAIN = 0.3
"""Seconds between two looks at what the other session has found."""
_MOST_SHOWN = 4000
"""Characters of its output that are shown if it fails."""


_ERASE = "\r\x1b[K"


class Session:
    """A process that tries a share of the candidates; its output goes into the log."""

    def __init__(self, command: Sequence[str], recording: Path, *, share: Share, folder: Path | None = None) -> None:
        self.log = share.log(recording)
        self._share = str(share)
        self._findings = findings_path(recording)
        self._interrupted = False
        self._command = command
        self._folder = folder
        self.log.unlink(missing_ok=True)
        self._begin()

    def _begin(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C in a terminal reaches the other process alone, which passes it on once.
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs. If its process died in a test, another one goes on behind that test."""
        status = self._process.poll()
        if status is None or self._interrupted or not Findings(self._findings, ()).record_deaths(self._share):
            return status
        self._begin()
        return None

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, for at most so long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def interrupt(self) -> None:
        """Have it end after the try in hand."""
        self._interrupted = True
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Shows findings as they are known; without a terminal only the confirmed ones, in lines that stay."""

    findings: Findings
    write: Callable[[str], object]
    budget: float
    is_terminal: bool

    def update(self, changed: Iterable[Finding]) -> None:
        """Show what has changed, and then how far it has come."""
        for finding in changed:
            if finding.verdict == "confirmed":
                self.write_line(in_a_line(finding, self.findings.models))
        if self.is_terminal:
            # A line as wide as the terminal wraps, and could not be erased by a carriage return.
            self.write(f"{_ERASE}{self._line()[: shutil.get_terminal_size().columns - 1]}")

    def write_line(self, text: str) -> None:
        """Write a line that stays, in place of the one that says how far it is."""
        self.write(f"{_ERASE if self.is_terminal else ''}{text}\n")

    def close(self) -> None:
        """Take the line away."""
        self.write(_ERASE if self.is_terminal else "")

    def _line(self) -> str:
        findings = self.findings.in_order()
        number = sum(finding.verdict != "not decided" for finding in findings)
        confirmed = sum(finding.verdict == "confirmed" for finding in findings)
        spent = max((finding.spent for finding in findings), default=0.0)
        decided = f"{number} of {counted(len(self.findings.candidates), 'candidate')} decided"
        return f"{decided}, {confirmed} confirmed, {spent:.0f} of {self.budget:.0f} s"


def run_sessions(
    sessions: Iterable[Session], progress: Progress, *, completed: Collection[int], interrupted: int, option: str
) -> int:
    """Start the sessions, show what they find until all have ended, and return the worst status.

    It is 0 if all ended with one of the ``completed`` statuses, and ``interrupted`` if they were; then the ``option``
    goes on. The log of one that ends otherwise is shown.
    """
    begun: list[Session] = []
    try:
        # One after the other, so that an interrupt ends those that have begun.
        begun.extend(sessions)
        _show(begun, progress)
    except KeyboardInterrupt:
        for session in begun:
            session.interrupt()
        _show(begun, progress)
    progress.close()
    # An interrupt before it could handle one ends it by the signal.
    ends = {**dict.fromkeys(completed, 0), -signal.SIGINT: interrupted}
    statuses = [ends.get(session.status or 0, session.status or 0) for session in begun]
    if progress.findings.deaths:
        progress.write_line(f"How a session died: {', '.join(str(session.log) for session in begun)}")
    if interrupted in statuses:
        progress.write_line(f"Interrupted; {option} goes on from here")
    for session, status in zip(begun, statuses, strict=True):
        if status not in (0, interrupted):
            progress.write_line(f"The session that tries candidates ended with {status}: {session.log}")
            progress.write_line(session.log.read_text("utf-8")[-_MOST_SHOWN:])
    # The worst: those of a crash or a signal are far from 0.
    return max(statuses, key=abs, default=interrupted)


def _show(sessions: Sequence[Session], progress: Progress) -> None:
    """Show what is found as soon as it is known, until the sessions end."""
    running = list(sessions)
    while running:
        for session in running:
            session.wait(_LOOK_AGAIN / len(running))
        running = [session for session in running if session.status is None]
        progress.update(progress.findings.read())
