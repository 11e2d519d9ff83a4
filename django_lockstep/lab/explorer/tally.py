"""Counts the results of an exploration's runs, and derives the verdict from them."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.errors import Nondeterminism, Stuck
from django_lockstep.lab.explorer.oracle import RunResult
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run, Verdict
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.explorer.strategy import SearchStrategy
from django_lockstep.lab.explorer.trace import Trace
from django_lockstep.lab.explorer.vacuity import Vacuity
from django_lockstep.lab.wording import counted

__all__ = ["ExplorationTally", "TracedResult"]

TracedResult = tuple[RunResult, Trace]
"""How a run ended, and how it went."""


@dataclass(slots=True, kw_only=True)
class ExplorationTally:
    """Counts the results of runs."""

    limit: int | None
    timeout: float | None
    stop_on_first: bool
    begun: float
    vacuity: Vacuity
    runs: int = 0
    redundant: int = 0
    deadlocks: int = 0
    unsteerable: int = 0
    yields: int = 0
    opaque: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    ends: dict[tuple[object, ...], list[Run]] = field(default_factory=dict)
    counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    broken: tuple[Run, TracedResult] | None = None

    def wants_more(self) -> bool:
        """Whether no limit is reached yet."""
        return not (
            (self.limit is not None and self.runs >= self.limit)
            or (self.timeout is not None and time.monotonic() - self.begun >= self.timeout)
            or (self.stop_on_first and self.broken is not None)
        )

    def note(self, trace: Trace) -> None:
        """Count the waits and errors of statements, and the forced yields."""
        self.yields += trace.yields
        self.vacuity.note_steps(trace.steps)
        for step in trace.steps:
            if step.operation.statement is not None:
                self.opaque |= step.operation.statement.reasons
            if step.waited_for:
                self.waits[step.operation.template.split()[0].upper()] += 1
            if step.operation.error is not None:
                error = step.operation.error
                self.errors[sqlstate_of(error) or type(error).__name__] += 1

    def add(self, session: ExplorationSession, ended: RunResult, trace: Trace) -> None:
        """Judge and count a run that has ended."""
        run = session.judge(ended, trace)
        self.vacuity.note_end(ended.errors)
        self.runs += 1
        self.deadlocks += bool(run.deadlocks)
        self.unsteerable += run.unsteerable
        end = (session.oracle.key(ended), run.holds)
        self.counts[end] += 1
        self.ends[end] = [min([run, *self.ends.get(end, [])], key=_simplicity)]
        if not run.holds and (self.broken is None or _simplicity(run) < _simplicity(self.broken[0])):
            self.broken = run, (ended, trace)

    def exploration(
        self,
        session: ExplorationSession,
        strategy: SearchStrategy,
        *,
        failure: Run | None,
        trouble: Nondeterminism | Stuck | None,
    ) -> Exploration:
        """Return the verdict; ``failure`` is the simplest wrong run, ``trouble`` what ended the search early."""
        verdict, reason = self._verdict(strategy, failure, trouble)
        return Exploration(
            verdict=verdict,
            reason=reason,
            actors=session.names,
            directed=not strategy.exhaustive,
            schedules=self.runs,
            redundant=self.redundant,
            unsteerable=self.unsteerable,
            yields=self.yields,
            opaque=tuple(sorted(self.opaque)),
            left=strategy.left,
            outcomes=tuple(self._outcomes()),
            deadlocks=self.deadlocks,
            errors=dict(sorted(self.errors.items())),
            waits=dict(sorted(self.waits.items())),
            seconds=time.monotonic() - self.begun,
            failure=failure,
            not_compared=session.oracle.not_compared,
        )

    def _verdict(
        self, strategy: SearchStrategy, failure: Run | None, trouble: Nondeterminism | Stuck | None
    ) -> tuple[Verdict, str]:
        schedules = counted(self.runs, "schedule")
        if trouble is not None:
            return ("stuck" if isinstance(trouble, Stuck) else "nondeterministic"), str(trouble)
        if failure is not None:
            return "broken", f"Schedule {failure.schedule}: {failure.reason}"
        if strategy.left:
            return "incomplete", f"{schedules} ended right; at least {strategy.left} more are left"
        if self.unsteerable and strategy.exhaustive:
            return "incomplete", f"In {self.unsteerable} moves the server alone decided in which order waiters went on"
        if self.vacuity.reason:
            return "vacuous", self.vacuity.reason
        if not strategy.exhaustive:
            return "nothing found", f"nothing found in {schedules}"
        fair = "fair " if self.yields else ""
        return "holds", f"Every {fair}interleaving was explored, in {schedules}"

    def _outcomes(self) -> list[Outcome]:
        outcomes = [
            Outcome(
                errors=runs[0].errors,
                results=runs[0].results,
                state=runs[0].state,
                holds=runs[0].holds,
                count=self.counts[end],
                schedule=runs[0].schedule,
                reason=runs[0].reason,
                differences=runs[0].differences,
            )
            for end, runs in self.ends.items()
        ]
        return sorted(outcomes, key=lambda outcome: (outcome.holds, -outcome.count, outcome.schedule))


def _simplicity(run: Run) -> tuple[int, int, str]:
    return run.preemptions, len(run.schedule), run.schedule
