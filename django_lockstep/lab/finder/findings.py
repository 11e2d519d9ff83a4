"""Findings: what became of each candidate; plain frozen data, which reports only render."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from django_lockstep.lab.finder.consequences import CONSEQUENCES, of_now
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.derive.derivation import find_candidates
from django_lockstep.lab.finder.record.recording import read_recording
from django_lockstep.lab.finder.shares import Share
from django_lockstep.lab.wording import as_data, from_data, joined, ngettext
from django_lockstep.lab.wording import gettext as _

Verdict = Literal["confirmed", "not decided", "not confirmed", "not tried"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Against = Literal["", "another user", "another object", "the other order", "a lower limit"]
"""How one is raced with itself: the same, by a copy of its user, for another row, with rows that it locks exchanged, or
where the limit of what it counts is lowered for both."""
TIME_OVER, NOT_REACHED = _("the time was over"), _("its tests did not reach it")
"""Reasons why a candidate was not tried, which a further search may remove."""
MORE_LEFT = _("more is left to try, with a larger budget")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a test was forked."""

    test: str = ""
    number: int = 0
    """Which request of that test it was, or which call of the function, from 0."""
    call: str = ""
    """The function; empty for a request."""


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """With what a request or a call was raced; with itself if nothing is set."""

    after: int | None = None
    """The number of an earlier one of the test."""
    after_call: str = ""
    """The function that the earlier one is a call of; empty for a request."""
    against: Against = ""
    """What differed in the second one, if it was raced with itself."""
    partner_test: str = ""
    """Another test, one of whose requests or calls it was raced with."""
    partner_number: int = 0
    """Which one of them."""
    partner_call: str = ""
    """Of a call, its function."""


@dataclass(frozen=True, kw_only=True)
class Finding(Place, Opponent):
    """What became of one candidate."""

    candidate: Candidate
    verdict: Verdict
    """``confirmed`` only if a schedule was run that ends as no serial order does, in what the candidate writes; ``not
    decided`` as long as something is left to try."""
    reason: str
    """Why it is not confirmed; of a confirmed one, how it ends."""
    obstacles: tuple[str, ...] = ()
    """What could not be raced, and why."""
    suppressed: str = ""
    """Why the project accepts it, if it is confirmed; not kept in the file."""
    fault: str = ""
    """The line by which it goes wrong, or the one that writes, such as ``shop/views.py:49``; without one the id."""
    pairing: str = ""
    """Which requests were raced, such as ``the request twice``."""
    actors: tuple[str, ...] = ()
    """What each of them is, such as ``A: POST seats/7/book``."""
    schedules: int = 0
    """Schedules that were run."""
    schedule: str = ""
    """The one that shows it."""
    differences: tuple[str, ...] = ()
    """How it ends, compared with the nearest serial end."""
    consequence: str = ""
    """The worst of these differences, one of `CONSEQUENCES`."""
    remedy: str = ""
    """What was tried against it, and helped."""
    patch: str = ""
    """The change of the code that helped, as a diff."""
    run: Mapping[str, Any] | None = None
    """The schedule's run, as data."""
    timeline: str = ""
    """The run as text."""
    drawing: str = ""
    """The run as SVG, for a page with the style sheet of timelines."""
    test_file: str = ""
    """A test that fails as long as the race is there."""
    seconds: float = 0.0
    """Time that it took."""
    spent: float = 0.0
    """Seconds of the budget that were used by then."""

    @property
    def status(self) -> str:
        """The verdict, or that it is suppressed."""
        return "suppressed" if self.suppressed else self.verdict

    @property
    def difference(self) -> str:
        """What differs from every serial end."""
        return joined(of_now(self.differences), "; ")

    @property
    def is_left(self) -> bool:
        """Whether a further search may decide it."""
        return self.verdict == "not decided" or (
            self.verdict == "not tried" and self.reason in (TIME_OVER, NOT_REACHED)
        )


class Findings:
    """A recording's candidates with the findings on them, each of which is appended to a file as soon as it is known.

    Candidates are derived in seconds where a project is large: one object serves all of a process.
    """

    def __init__(
        self,
        path: Path,
        candidates: Iterable[Candidate],
        *,
        summary: str = "",
        notes: Sequence[str] = (),
        models: Mapping[str, str] | None = None,
    ) -> None:
        """Take up what the file has; ``summary`` and ``notes`` say how much was recorded, and what could not be."""
        self.path = path
        self.models = models or {}
        """Labels of models, by table."""
        self.candidates = {candidate.id: candidate for candidate in candidates}
        self.summary = summary
        self.is_empty = False
        """Whether nothing was recorded."""
        self._notes = tuple(notes)
        self._found: dict[str, Finding] = {}
        self.share = "1/1"
        self.spent = 0.0
        """Seconds of the budget that the sessions of this share have used."""
        self.deaths: dict[str, None] = {}
        """Tests in which a session died; no session runs them again."""
        self._running: dict[str, Mapping[str, Any]] = {}
        self.read()

    @classmethod
    def on(cls, recording: Path) -> Findings:
        """Return those on a recording's candidates. Raises ``OSError`` and `FinderError` if there is none."""
        collected = gc.isenabled()
        gc.disable()  # hundreds of thousands of objects, all of which live to the end: each collection would visit them
        try:
            recorded = read_recording(recording)
            candidates = find_candidates(recorded)
        finally:
            if collected:
                gc.enable()
        summary = _(
            "{candidates} in {units} of work that write, from {tests}",
            candidates=ngettext("{number} candidate", "{number} candidates", len(candidates)),
            units=ngettext("{number} unit", "{number} units", len(recorded.writers)),
            tests=ngettext("{number} test", "{number} tests", recorded.tests),
        )
        models = {name: table.model for name, table in recorded.tables.items() if table.model}
        findings = cls(findings_path(recording), candidates, summary=summary, notes=recorded.notes, models=models)
        findings.is_empty = not recorded.writers
        return findings

    def read(self) -> list[Finding]:
        """Read what another process has appended; return what is new or has changed. The last one counts."""
        before = dict(self._found)
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            with suppress(ValueError):  # of a run that was killed, or is still writing, a line may be incomplete
                self._take(from_data(json.loads(line)))
        return [finding for name, finding in self._found.items() if before.get(name) != finding]

    def add(self, finding: Finding) -> None:
        """Append a finding; it replaces an earlier one on its candidate."""
        self.spent = finding.spent
        self._append({**vars(finding), "candidate": finding.candidate.id})

    def _take(self, data: Mapping[str, Any]) -> None:
        if "running" in data:
            self._running[data["share"]] = data
            self.deaths |= dict.fromkeys(data["died"])
        # A finding on a candidate that is no longer derived, since the finder has changed, says nothing.
        elif candidate := self.candidates.get(data["candidate"]):
            texts = {name: tuple(data.get(name, ())) for name in ("differences", "actors", "obstacles")}
            self._found[candidate.id] = Finding(**{**data, **texts, "candidate": candidate})

    def _append(self, data: Mapping[str, Any]) -> None:
        self._take(data)
        # One write without a buffer: other processes append to the file, too.
        with self.path.open("ab", buffering=0) as file:
            # Each in a line of its own, also after one that was not finished.
            file.write(f"\n{json.dumps(as_data(data))}\n".encode())

    def mark_running(self, test: str) -> None:
        """Have the file say which test this process runs, empty for none: when it dies, it cannot."""
        self._append({"running": test, "share": self.share, "spent": self.spent, "died": []})

    def record_deaths(self, share: str = "") -> bool:
        """Record the tests that sessions of this share, or of all, have left unfinished; return if there are any."""
        running = [data for name, data in self._running.items() if data["running"] and share in ("", name)]
        for data in running:
            self._append({**data, "running": "", "died": [data["running"]]})
        return bool(running)

    def go_on(self, share: str) -> None:
        """Go on for the session of this share, if there was one before that died, or whose worker was lost."""
        self.share, self.spent = share, self._running.get(share, {"spent": 0.0})["spent"]
        self.mark_running("")

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be recorded, and the tests that ended a session."""
        died = [
            _("{test}: the session that tries candidates died in it, and went on behind it", test=test)
            for test in self.deaths
        ]
        return (*self._notes, *died)

    def undecided(self) -> list[Candidate]:
        """Return the share's candidates that are neither confirmed nor were tried in vain."""
        decided = {name for name, finding in self._found.items() if finding.verdict in {"confirmed", "not confirmed"}}
        left = Share.parse(self.share).of(self.candidates.values()) - decided
        return [candidate for name, candidate in self.candidates.items() if name in left]

    def in_order(self) -> list[Finding]:
        """Return what became of the candidates, as far as that is known: the confirmed first, of these the worst."""
        findings = [self._found[name] for name in self.candidates if name in self._found]
        order = (*CONSEQUENCES, "")
        return sorted(
            findings, key=lambda it: (VERDICTS.index(it.verdict), order.index(it.consequence), it.candidate.rank)
        )


def findings_path(recording: Path) -> Path:
    """Return where the findings on a recording's candidates are kept."""
    return recording.with_name(f"{recording.name}.findings")
