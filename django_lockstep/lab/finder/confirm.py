"""Confirms candidates: at the request that shows one, schedules of the request against itself are really run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.http.response import HttpResponseBase

from django_lockstep.lab.explorer import Exploration, ExplorerError, Outcome, Run
from django_lockstep.lab.explorer.reports import run_data
from django_lockstep.lab.finder.candidates import Candidate, Witness
from django_lockstep.lab.finder.findings import CONSEQUENCES, Finding, consequence_of, tables_of
from django_lockstep.lab.finder.forks import Fork, RequestActor
from django_lockstep.lab.wording import counted

__all__ = ["Confirmation"]

MOST_WITNESSES = 2
"""Tests in which a candidate is tried before it counts as not confirmed."""
SECONDS_EACH = 20.0
"""Seconds that one fork may take, of whatever budget."""
TWICE = "the request twice"


@dataclass(slots=True)
class Confirmation:
    """Decides at which requests of which tests to fork, and what the forks say about the candidates.

    ``report`` is called with each finding as soon as it is known; a better one may follow for the same candidate.
    """

    candidates: Sequence[Candidate]
    budget: float
    """Seconds that all forks together may take."""
    report: Callable[[Finding], None]
    findings: dict[str, Finding] = field(default_factory=dict)
    _spent: float = 0.0
    _tried: dict[str, int] = field(default_factory=dict)
    _test: str = ""
    _number: int = 0

    def tests(self) -> list[str]:
        """Return the witness tests, those of the worst candidates first."""
        rounds = range(max((len(candidate.witnesses) for candidate in self.candidates), default=0))
        ordered = sorted(self.candidates, key=lambda candidate: candidate.rank)
        tests = [one.witnesses[turn].test for turn in rounds for one in ordered if turn < len(one.witnesses)]
        return list(dict.fromkeys(tests))

    def begin(self, test: str) -> None:
        """Note which test runs from now on."""
        self._test, self._number = test, 0

    def is_wanted(self, test: str) -> bool:
        """Whether the test shows a candidate that is still open, and there is time left."""
        return self._spent < self.budget and any(self._open(test))

    def handle(
        self, environ: Mapping[str, Any], call: Callable[[dict[str, Any]], HttpResponseBase]
    ) -> HttpResponseBase:
        """Fork at the request if it is wanted, then send it as the test does."""
        number, self._number = self._number, self._number + 1
        wanted = [candidate for candidate, witness in self._open(self._test) if witness.number == number]
        request = RequestActor.of(environ, call)
        if wanted and self._spent < self.budget:
            self._try(wanted, request, number)
        return request.send()

    def close(self, *, because: str = "") -> None:
        """Report the candidates that no fork was made for."""
        why = because or ("the time was over" if self._spent >= self.budget else "its tests did not come to the request")
        for candidate in self.candidates:
            if candidate.id not in self.findings:
                self._note(Finding(candidate=candidate.id, verdict="not tried", reason=_obstacle(candidate) or why))

    def _open(self, test: str) -> Iterable[tuple[Candidate, Witness]]:
        for candidate in self.candidates:
            if self._is_open(candidate):
                yield from ((candidate, witness) for witness in candidate.witnesses if witness.test == test)

    def _is_open(self, candidate: Candidate) -> bool:
        known = self.findings.get(candidate.id)
        confirmed = known is not None and known.verdict == "confirmed"
        return not (confirmed or _obstacle(candidate) or self._tried.get(candidate.id, 0) >= MOST_WITNESSES)

    def _try(self, wanted: Sequence[Candidate], request: RequestActor, number: int) -> None:
        fork = Fork({"A": request, "B": request}, alias="default")
        begun = time.monotonic()
        try:
            found: Exploration | str = fork.explore(seconds=min(SECONDS_EACH, self.budget - self._spent))
        except ExplorerError as error:
            found = str(error)
        for candidate in wanted:
            self._tried[candidate.id] = self._tried.get(candidate.id, 0) + 1
            finding = _judge(candidate, found, fork)
            self._note(finding, test=self._test, number=number, pairing=TWICE, seconds=time.monotonic() - begun)
        self._spent += time.monotonic() - begun

    def _note(self, finding: Finding, **more: Any) -> None:
        finding = replace(finding, **more)
        known = self.findings.get(finding.candidate)
        # What one test could not show, another one may have.
        if known is None or _ORDER[finding.verdict] <= _ORDER[known.verdict]:
            self.findings[finding.candidate] = finding
            self.report(finding)


_ORDER = {"confirmed": 0, "not confirmed": 1, "not tried": 2}


def _obstacle(candidate: Candidate) -> str:
    """Return why no fork can show the candidate; empty if one may."""
    if candidate.kind == "effect-before-commit":
        return "what has left the process cannot be compared"
    return "" if candidate.unit_kind == "request" else f"it is not in a request but in {candidate.unit}"


def _judge(candidate: Candidate, found: Exploration | str, fork: Fork) -> Finding:
    """Return what an exploration says about one candidate; ``found`` is a text where it could not be made."""
    if isinstance(found, str) or found.verdict in {"nondeterministic", "stuck"}:
        reason = found if isinstance(found, str) else found.reason
        return Finding(candidate=candidate.id, verdict="not tried", reason=reason.partition("\n")[0])
    if (shown := _showing(candidate, found, fork)) is None:
        ways = counted(sum(not outcome.holds for outcome in found.outcomes), "way")
        elsewhere = f"; {ways} to end wrong in other tables" if found.verdict == "broken" else ""
        return Finding(
            candidate=candidate.id,
            verdict="not confirmed",
            reason=f"{counted(found.schedules, 'schedule')} leave in {candidate.table} what serial orders do{elsewhere}",
            schedules=found.schedules,
        )
    outcome, run = shown
    return Finding(
        candidate=candidate.id,
        verdict="confirmed",
        reason=outcome.reason,
        schedules=found.schedules,
        schedule=outcome.schedule,
        differences=outcome.differences,
        consequence=consequence_of(outcome.differences),
        run=run_data(run),
    )


def _showing(candidate: Candidate, found: Exploration, fork: Fork) -> tuple[Outcome, Run] | None:
    """Return the worst outcome that differs in what the candidate writes, with a run that has it."""
    for outcome in sorted((one for one in found.outcomes if not one.holds), key=_badness):
        touched = candidate.table in tables_of(outcome.differences)
        # What the database has refused, such as the second row of a key, is in no table.
        refused = consequence_of(outcome.differences) == "server errors"
        if touched or refused:
            failure = found.failure
            run = failure if failure and failure.schedule == outcome.schedule else fork.replay(outcome.schedule)
            if touched or any(step.sqlstate and candidate.table in step.sql for step in run.steps):
                return outcome, run
    return None


def _badness(outcome: Outcome) -> tuple[int, int, str]:
    consequence = consequence_of(outcome.differences)
    worst = CONSEQUENCES.index(consequence) if consequence else len(CONSEQUENCES)
    return worst, len(outcome.schedule), outcome.schedule
