"""Counts the results of an exploration's runs, and derives the verdict from them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.errors import Nondeterminism, Stuck
from django_lockstep.lab.explorer.options import Options
from django_lockstep.lab.explorer.oracle import RunResult, describe_error, error_name, is_conflict
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run, RunEnding, Verdict
from django_lockstep.lab.explorer.search.branches import Schedule
from django_lockstep.lab.explorer.search.directed import AnySearch
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined, ngettext

TracedResult = tuple[RunResult, Trace]
"""How a run ended, and how it went."""


_MOST_UNREDUCED = 2_000
"""Schedules after a missed outcome, where the options set no limit: there may be thousands of times as many as the
reduced search has."""
_CANNOT_SET = (
    "The actors' role may not set deadlock_timeout, so the server chose which of them lost a deadlock, and may choose "
    "differently the next time: GRANT SET ON PARAMETER deadlock_timeout TO that role."
)


@dataclass(slots=True, kw_only=True)
class Observations:
    """What runs have shown beside how they ended; can be pickled."""

    yields: int = 0
    """How often an actor had to yield."""
    opaque: set[str] = field(default_factory=set)
    """Why statements were taken to depend on everything."""
    unordered_locks: set[tuple[str, str]] = field(default_factory=set)
    """Actors that have locked several rows of a table in an order that the server has chosen, with the table."""
    several_locks: set[tuple[str, str]] = field(default_factory=set)
    """Those that have locked several in whatever order."""
    waits: Counter[str] = field(default_factory=Counter)
    """Statements that waited, by their first word."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors of statements, by SQLSTATE or class."""
    active: set[str] = field(default_factory=set)
    """Actors that sent a statement."""
    changes: bool = False
    """Whether one of them wrote or locked anything."""
    raised: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Errors by actor and class, without conflicts, violated constraints and expected ones."""
    first_errors: dict[tuple[str, str], str] = field(default_factory=dict)
    """The words of the first of these: those of later ones may name another row."""
    failed: Counter[str] = field(default_factory=Counter)
    """Errors of actors in words, whatever they are."""
    succeeded: bool = False
    """Whether an actor of a run that ended raised nothing."""

    def add(self, run: Observations) -> None:
        """Add what another run has shown."""
        for part in fields(self):
            before, new = getattr(self, part.name), getattr(run, part.name)
            adds_up = isinstance(before, Counter) or part.name == "yields"
            setattr(self, part.name, before + new if adds_up else new | before)


@dataclass(slots=True, kw_only=True)
class ExplorationTally:
    """Counts the results of runs."""

    options: Options
    begun: float
    names: Sequence[str]
    """Of the actors."""
    runs: int = 0
    redundant: int = 0
    deadlocks: int = 0
    unsteerable: int = 0
    observed: Observations = field(default_factory=Observations)
    ends: dict[tuple[object, ...], Run] = field(default_factory=dict)
    """The simplest run of each outcome."""
    counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    schedules: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Those that were run to their end, with their outcomes."""
    audited: int = 0
    """Schedules beside the search that have ended as one of its own; see `django_lockstep.lab.explorer.audit`."""
    missed: str = ""
    """The outcome that a reduced search has missed, in words; empty if there is none."""
    broken: tuple[Run, JudgedRun] | None = None
    """The simplest wrong run."""
    stopped: bool = False
    """Whether a run has ended the search."""

    def wants_more(self) -> bool:
        """Whether no limit is reached yet."""
        most = self.options.max_schedules
        if most is None and self.missed:
            most = _MOST_UNREDUCED
        return not (
            (most is not None and self.runs >= most)
            or (self.deadline is not None and time.monotonic() >= self.deadline)
            or self.stopped
        )

    @property
    def deadline(self) -> float | None:
        """When the time is over, by `time.monotonic`; None without a limit."""
        return None if self.options.timeout is None else self.begun + self.options.timeout

    def start_over(self) -> None:
        """Forget the runs until now; the time that they took still counts."""
        self.runs = self.redundant = self.deadlocks = self.unsteerable = 0
        self.observed = Observations()
        self.ends, self.counts, self.schedules, self.broken = {}, Counter(), {}, None

    def add(self, judged: JudgedRun, schedule: Schedule) -> None:
        """Count a run of the schedule."""
        self.observed.add(judged.observed)
        if schedule.unreached:
            self.unsteerable += 1
            return
        if (run := judged.run) is None:
            # Abandoned by a sleep set: the same up to the order of independent steps as a run that is complete.
            self.redundant += 1
            return
        self.runs += 1
        self.deadlocks += bool(run.deadlocks)
        self.unsteerable += run.unsteerable
        self.schedules[run.schedule] = judged.key
        self.counts[judged.key] += 1
        self.ends[judged.key] = min(run, self.ends.get(judged.key, run), key=_simplicity)
        if callable(self.options.stop_on_first):
            self.stopped |= self.options.stop_on_first(run)
        elif self.options.stop_on_first:
            self.stopped |= not run.holds
        if not run.holds and (self.broken is None or _simplicity(run) < _simplicity(self.broken[0])):
            self.broken = run, judged

    def exploration(
        self,
        session: ExplorationSession,
        strategy: AnySearch,
        *,
        failure: Run | None,
        trouble: Nondeterminism | Stuck | None,
    ) -> Exploration:
        """Return the verdict; ``failure`` is the simplest wrong run, ``trouble`` what ended the search early."""
        verdict, reason = self._verdict(strategy, failure, trouble)
        if (self.deadlocks or trouble is not None) and any(actor.cannot_set for actor in session.controller.actors):
            reason = f"{reason.rstrip('.')}. {_CANNOT_SET}"
        outcomes = self._outcomes()
        positions = {end: position for position, end in enumerate(outcomes)}
        return Exploration(
            verdict=verdict,
            reason=reason,
            actors=session.names,
            directed=not strategy.exhaustive,
            schedules=self.runs,
            redundant=self.redundant,
            unsteerable=self.unsteerable,
            yields=self.observed.yields,
            opaque=tuple(sorted(self.observed.opaque)),
            left=strategy.left,
            audited=self.audited,
            missed=self.missed,
            not_explored=self._possible_deadlocks(),
            outcomes=tuple(outcomes.values()),
            deadlocks=self.deadlocks,
            errors=dict(sorted(self.observed.errors.items())),
            waits=dict(sorted(self.observed.waits.items())),
            seconds=time.monotonic() - self.begun,
            failure=failure,
            not_compared=session.oracle.not_compared,
            ends={schedule: positions[end] for schedule, end in self.schedules.items()},
        )

    def _verdict(
        self, strategy: AnySearch, failure: Run | None, trouble: Nondeterminism | Stuck | None
    ) -> tuple[Verdict, str]:
        schedules = _schedules(self.runs)
        if trouble is not None:
            return ("stuck" if isinstance(trouble, Stuck) else "nondeterministic"), str(trouble)
        if failure is not None:
            return self._broken(failure)
        if self.missed:
            return "missed", self.missed
        if strategy.left:
            text = _(
                "{schedules} ended right; at least {number} more are left", schedules=schedules, number=strategy.left
            )
            return "incomplete", text
        if self.unsteerable and strategy.exhaustive:
            return "incomplete", ngettext(
                "In {number} move the server alone decided the order of the waiters",
                "In {number} moves the server alone decided the order of the waiters",
                self.unsteerable,
            )
        if nothing_raced := self._nothing_raced():
            return "vacuous", nothing_raced
        if not strategy.exhaustive:
            return "nothing found", _("nothing found in {schedules}", schedules=schedules)
        return self._proved(schedules)

    def _proved(self, schedules: str) -> tuple[Verdict, str]:
        deadlocks = self._possible_deadlocks()
        if deadlocks and self.options.no_deadlock:
            return "incomplete", _("{schedules} ended right, but {why}", schedules=schedules, why=deadlocks)
        proof = _("Every interleaving was explored, in {schedules}", schedules=schedules)
        if self.observed.yields:
            proof = _("Every fair interleaving was explored, in {schedules}", schedules=schedules)
        if self.audited:
            agreed = ngettext("{number} other at random agrees", "{number} others at random agree", self.audited)
            proof = joined([proof, agreed], "; ")
        if deadlocks:
            proof = _("{proof}. Not explored: {why}", proof=proof, why=deadlocks)
        return "holds", proof

    def _possible_deadlocks(self) -> str:
        """Return what is not explored, in words: within one statement the server alone decides who is first."""
        for name, table in sorted(self.observed.unordered_locks):
            several = self.observed.several_locks
            if others := sorted(actor for actor, locked in several if locked == table and actor != name):
                return _(
                    "{actor} locks several rows of {table} in one statement, in an order that the server chooses, so "
                    "that it may deadlock with {other}; lock_rows() and update_in_order() lock by key",
                    actor=name,
                    table=table,
                    other=others[0],
                )
        return ""

    def _broken(self, failure: Run) -> tuple[Verdict, str]:
        if not failure.schedule and (nothing_raced := self._nothing_raced()):
            return "vacuous", nothing_raced  # the actors failed before their first statement
        text = _("Schedule {schedule}: {end}", schedule=failure.schedule, end=failure.reason)
        return "broken", joined([text, self.missed], ". ") if self.missed else text

    def _outcomes(self) -> dict[tuple[object, ...], Outcome]:
        outcomes = {
            end: Outcome(count=self.counts[end], **{part.name: getattr(run, part.name) for part in fields(RunEnding)})
            for end, run in self.ends.items()
        }
        return dict(sorted(outcomes.items(), key=lambda item: (item[1].holds, -item[1].count, item[1].schedule)))

    def _nothing_raced(self) -> str:
        """Return why the race is vacuous, in a sentence; empty if it is not: code that never ran holds everywhere."""
        if len(self.names) == 1:
            return _("nothing was raced: {actor} is the only actor", actor=self.names[0])
        observed = self.observed
        everywhere = _("the only schedule")
        if self.runs > 1:
            everywhere = _("all {schedules}", schedules=_schedules(self.runs))
        for name in self.names:
            raised = {kind: count for (actor, kind), count in observed.raised.items() if actor == name}
            if raised and sum(raised.values()) == self.runs:
                errors = Counter({observed.first_errors[name, kind]: count for kind, count in raised.items()})
                text = _(
                    "nothing was raced: {actor} raised {errors} in {schedules}",
                    actor=name,
                    errors=_listed(errors),
                    schedules=everywhere,
                )
                hint = next((hint for part, hint in _HINTS.items() if part in " ".join(errors)), "")
                return joined([text, hint], "; ") if hint else text
            if name not in observed.active:
                return _(
                    "nothing was raced: {actor} sent no statement in {schedules}", actor=name, schedules=everywhere
                )
        if not observed.changes:
            return _("nothing was raced: no actor wrote or locked anything")
        if self.runs and not observed.succeeded:
            return _(
                "nothing was raced: no actor succeeded: they raised {errors} in {schedules}",
                errors=_listed(observed.failed),
                schedules=everywhere,
            )
        return ""


def _schedules(number: int) -> str:
    return ngettext("{number} schedule", "{number} schedules", number)


def _simplicity(run: Run) -> tuple[int, int, str]:
    return run.preemptions, len(run.schedule), run.schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run, and what is said of it."""

    run: Run | None
    """None if it was abandoned, because an equivalent one is run elsewhere."""
    key: tuple[object, ...]
    """Equal for runs with the same outcome."""
    observed: Observations
    traced: TracedResult | None
    """How it ended and went, with objects of the code under test: another process could not load, or send, them."""


def judge_run(session: ExplorationSession, trace: Trace, ended: RunResult | None) -> JudgedRun:
    """Judge the run that was just played; ``ended`` is None if it was abandoned."""
    names, raises = session.names, session.options.raises
    errors = ended.errors if ended else {}
    sent = [(names[step.actor], step.operation) for step in trace.steps]
    statements = [operation.statement for _, operation in sent]
    # A conflict or a violated constraint in every schedule is a result of the race; another error is more likely a
    # mistake in the scenario.
    unexpected = {
        (name, f"{type(error).__module__}.{type(error).__qualname__}"): describe_error(error)
        for name, error in errors.items()
        if not (isinstance(error, raises) or is_conflict(error) or (sqlstate_of(error) or "").startswith("23"))
    }
    observed = Observations(
        yields=trace.yields,
        opaque={reason for statement in statements if statement for reason in statement.reasons},
        unordered_locks={(name, table) for name, operation in sent for table in operation.unordered_locks},
        several_locks={(name, table) for name, operation in sent for table in operation.several_locks},
        waits=Counter(step.operation.template.split()[0].upper() for step in trace.steps if step.waited_for),
        errors=Counter(error_name(operation.error) for _, operation in sent if operation.error is not None),
        active={name for name, _ in sent},
        changes=any(statement is None or statement.may_change for statement in statements),
        raised=Counter(unexpected.keys()),
        first_errors=unexpected,
        failed=Counter(map(describe_error, errors.values())),
        succeeded=ended is not None and len(errors) < len(names),
    )
    run = session.judge(ended, trace) if ended else None
    return JudgedRun(
        run=run,
        key=(session.oracle.key(ended), run.holds) if ended and run else (),
        observed=observed,
        traced=(ended, trace) if ended else None,
    )


# Celery's word for running in a task is one for the process, so an eager task of another actor counts as well.
_HINTS = {"Never call result.get() within a task": _("with eager tasks of Celery, leave out .get() in the actors")}
_MOST_ERRORS = 4
"""Errors that a sentence names."""


def _listed(errors: Counter[str]) -> str:
    """Return the most common errors, with counts if there are several."""
    if len(errors) == 1:
        return next(iter(errors))
    return joined(
        [_("{error} ({number} times)", error=text, number=count) for text, count in errors.most_common(_MOST_ERRORS)],
        "; ",
    )
