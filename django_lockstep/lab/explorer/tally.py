"""Counts the results of an exploration's runs, and derives the verdict from them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.trace import StepRecord, Trace
from django_lockstep.lab.explorer.errors import Nondeterminism, Stuck
from django_lockstep.lab.explorer.options import Errors, ExploreOptions
from django_lockstep.lab.explorer.oracle import RunResult, describe_error, error_name, is_conflict
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run, RunEnding, Verdict
from django_lockstep.lab.explorer.search.branches import State
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.search.schedules import SearchStrategy, parse_schedule, serial_order
from django_lockstep.lab.explorer.search.tree import TreeBuilder, TreeLine
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.wording import counted

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
class ExplorationTally:
    """Counts the results of runs."""

    options: ExploreOptions
    begun: float
    vacuity: Vacuity
    tree: TreeBuilder | None
    """Where the schedules are to be kept as a tree."""
    runs: int = 0
    redundant: int = 0
    deadlocks: int = 0
    unsteerable: int = 0
    yields: int = 0
    opaque: set[str] = field(default_factory=set)
    unordered_locks: set[tuple[str, str]] = field(default_factory=set)
    """Actors that have locked several rows of a table in an order that the server has chosen, with the table."""
    several_locks: set[tuple[str, str]] = field(default_factory=set)
    """Those that have locked several in whatever order."""
    errors: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    ends: dict[tuple[object, ...], list[Run]] = field(default_factory=dict)
    counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    schedules: set[str] = field(default_factory=set)
    """Those that were run to their end."""
    audited: int = 0
    """Schedules beside the search that have ended as one of its own; see `django_lockstep.lab.explorer.audit`."""
    missed: str = ""
    """The outcome that a reduced search has missed, in words; empty if there is none."""
    broken: tuple[Run, JudgedRun, TracedResult | None] | None = None
    """The simplest wrong run; how it ended is known only where it was run in this process."""
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
        self.runs = self.redundant = self.deadlocks = self.unsteerable = self.yields = 0
        for noted in (self.opaque, self.unordered_locks, self.several_locks, self.errors, self.waits):
            noted.clear()
        for known in (self.ends, self.counts, self.schedules):
            known.clear()
        self.broken = None
        if self.tree is not None:
            self.tree.clear()

    def note_missed(self, missed: str) -> None:
        """Forget the runs of a search that has missed this outcome; the next one leaves nothing out."""
        self.start_over()
        self.missed, self.audited, self.tree = missed, 0, None

    def add(self, judged: JudgedRun, states: Sequence[State], *, traced: TracedResult | None = None) -> None:
        """Count a run that reached these states; ``traced`` is how it ended, where that is known."""
        self.yields += judged.yields
        self.opaque |= judged.opaque
        self.unordered_locks |= judged.unordered_locks
        self.several_locks |= judged.several_locks
        self.waits.update(judged.waits)
        self.errors.update(judged.errors)
        self.vacuity.note(judged.activity, ended=judged.run is not None)
        if judged.unreached:
            self.unsteerable += 1
            return
        if self.tree is not None:
            self.tree.add(states, judged.run and outcome_key(judged, judged.run))
        if judged.run is None:
            # Abandoned by a sleep set: the same up to the order of independent steps as a run that is complete.
            self.redundant += 1
        else:
            self._add_ended(judged.run, judged, traced)

    def _add_ended(self, run: Run, judged: JudgedRun, traced: TracedResult | None) -> None:
        self.runs += 1
        self.deadlocks += bool(run.deadlocks)
        self.unsteerable += run.unsteerable
        self.schedules.add(run.schedule)
        end = outcome_key(judged, run)
        self.counts[end] += 1
        self.ends[end] = [min([run, *self.ends.get(end, [])], key=_simplicity)]
        if callable(self.options.stop_on_first):
            self.stopped |= self.options.stop_on_first(run)
        elif self.options.stop_on_first:
            self.stopped |= not run.holds
        if not run.holds and (self.broken is None or _simplicity(run) < _simplicity(self.broken[0])):
            self.broken = run, judged, traced

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
        if verdict == "broken" and failure is not None and session.scenario.invariant is not None:
            reason += _serial_order(failure, session.names)
        if (self.deadlocks or trouble is not None) and any(actor.cannot_set for actor in session.controller.actors):
            reason = f"{reason.rstrip('.')}. {_CANNOT_SET}"
        outcomes = self._outcomes()
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
            audited=self.audited,
            missed=self.missed,
            not_explored=self._possible_deadlocks(),
            outcomes=tuple(outcomes.values()),
            deadlocks=self.deadlocks,
            errors=dict(sorted(self.errors.items())),
            waits=dict(sorted(self.waits.items())),
            seconds=time.monotonic() - self.begun,
            failure=failure,
            not_compared=session.oracle.not_compared,
            tree=self._build_tree(strategy, list(outcomes)),
        )

    def _build_tree(self, strategy: SearchStrategy, ends: Sequence[tuple[object, ...]]) -> tuple[TreeLine, ...] | None:
        if self.tree is None or not isinstance(strategy, Search):
            return None
        positions: dict[Hashable, int] = {end: position for position, end in enumerate(ends)}
        return self.tree.build(positions, finished=not strategy.left)

    def _verdict(
        self, strategy: SearchStrategy, failure: Run | None, trouble: Nondeterminism | Stuck | None
    ) -> tuple[Verdict, str]:
        schedules = counted(self.runs, "schedule")
        if trouble is not None:
            return ("stuck" if isinstance(trouble, Stuck) else "nondeterministic"), str(trouble)
        if failure is not None:
            return self._broken(failure)
        if self.missed:
            return "missed", self.missed
        if strategy.left:
            return "incomplete", f"{schedules} ended right; at least {strategy.left} more are left"
        if self.unsteerable and strategy.exhaustive:
            moves = counted(self.unsteerable, "move")
            return "incomplete", f"In {moves} the server alone decided in which order waiters went on"
        if self.vacuity.reason:
            return "vacuous", self.vacuity.reason
        if not strategy.exhaustive:
            return "nothing found", f"nothing found in {schedules}"
        return self._proved(schedules)

    def _proved(self, schedules: str) -> tuple[Verdict, str]:
        deadlocks, proof = self._possible_deadlocks(), self._proof(schedules)
        if deadlocks and self.options.session.no_deadlock:
            return "incomplete", f"{schedules} ended right, but {deadlocks}"
        return "holds", f"{proof}. Not explored: {deadlocks}" if deadlocks else proof

    def _possible_deadlocks(self) -> str:
        """Return what is not explored, in words: within one statement the server alone decides who is first."""
        for name, table in sorted(self.unordered_locks):
            if others := sorted(other for other, also in self.several_locks if also == table and other != name):
                return (
                    f"{name} locks several rows of {table} in one statement, in an order that the server chooses, so "
                    f"that it may deadlock with {others[0]}; lock_rows() locks them by key"
                )
        return ""

    def _broken(self, failure: Run) -> tuple[Verdict, str]:
        if not failure.schedule and self.vacuity.reason:
            return "vacuous", self.vacuity.reason  # the actors failed before their first statement
        more = f". {self.missed}" if self.missed else ""
        return "broken", f"Schedule {failure.schedule}: {failure.reason}{more}"

    def _proof(self, schedules: str) -> str:
        """Return in a sentence what the verdict ``holds`` rests on."""
        fair = "fair " if self.yields else ""
        others = f"; {counted(self.audited, 'other')} at random {'agrees' if self.audited == 1 else 'agree'}"
        return f"Every {fair}interleaving was explored, in {schedules}{others if self.audited else ''}"

    def _outcomes(self) -> dict[tuple[object, ...], Outcome]:
        outcomes = {
            end: Outcome(
                count=self.counts[end], **{each.name: getattr(runs[0], each.name) for each in fields(RunEnding)}
            )
            for end, runs in self.ends.items()
        }
        return dict(sorted(outcomes.items(), key=lambda each: (each[1].holds, -each[1].count, each[1].schedule)))


def outcome_key(judged: JudgedRun, run: Run) -> tuple[object, ...]:
    """Return what is equal for runs with the same outcome."""
    return judged.key, run.holds


def _serial_order(run: Run, names: Sequence[str]) -> str:
    """Return what to say of a wrong run in which no actor interrupts another; nothing of others."""
    order = serial_order(parse_schedule(run.schedule, actors=len(names)))
    if len(order) < 2:
        return ""
    turns = " then ".join(names[actor] for actor in order)
    return f". {turns}, one after the other, ends so: the invariant or the set-up is wrong, or no race is needed"


def _simplicity(run: Run) -> tuple[int, int, str]:
    return run.preemptions, len(run.schedule), run.schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run without the objects of the code under test, which another process could not load."""

    run: Run | None
    """None if it was abandoned, because an equivalent one is run elsewhere."""
    key: tuple[object, ...]
    """Equal for equivalent results."""
    activity: Activity
    unreached: bool
    """Whether it could not be made, because the server never chose as it would have to."""
    yields: int
    """How often an actor had to yield."""
    opaque: frozenset[str]
    """Why statements were taken to depend on everything."""
    unordered_locks: frozenset[tuple[str, str]]
    """Actors that have locked several rows of a table in an order that the server has chosen, with the table."""
    several_locks: frozenset[tuple[str, str]]
    """Those that have locked several in whatever order."""
    waits: tuple[str, ...]
    """The first word of each statement that waited."""
    errors: tuple[str, ...]
    """The SQLSTATE, or the class, of each statement's error."""


def judge_run(session: ExplorationSession, trace: Trace, ended: RunResult | None) -> JudgedRun:
    """Judge the run that was just played; ``ended`` is None if it was abandoned."""
    operations, names = [step.operation for step in trace.steps], session.names
    return JudgedRun(
        run=session.judge(ended, trace) if ended else None,
        key=session.oracle.key(ended) if ended else (),
        activity=activity_of(trace.steps, ended.errors if ended else {}, raises=session.options.raises),
        unreached=trace.unreached,
        yields=trace.yields,
        opaque=frozenset(reason for each in operations if each.statement for reason in each.statement.reasons),
        unordered_locks=frozenset(
            (names[step.actor], table) for step in trace.steps for table in step.operation.unordered_locks
        ),
        several_locks=frozenset(
            (names[step.actor], table) for step in trace.steps for table in step.operation.several_locks
        ),
        waits=tuple(step.operation.template.split()[0].upper() for step in trace.steps if step.waited_for),
        errors=tuple(error_name(each.error) for each in operations if each.error is not None),
    )


# Vacuous races: code that never ran holds in every schedule.


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the actors did in one run, to tell whether anything was raced. It can be pickled."""

    active: frozenset[int]
    """Actors that sent a statement."""
    changed: bool
    """Whether one of them wrote or locked anything."""
    raised: Mapping[str, tuple[str, str]]
    """The class of each actor's error, and the error in words; without conflicts and expected errors."""
    failed: Mapping[str, str]
    """Every actor's error in words, whatever it is."""


def activity_of(steps: Sequence[StepRecord], errors: Mapping[str, BaseException], *, raises: Errors) -> Activity:
    """Return what the actors did in these steps; ``raises`` are errors that are expected."""
    return Activity(
        active=frozenset(step.actor for step in steps),
        changed=any(map(_may_change, steps)),
        raised={
            name: (f"{type(error).__module__}.{type(error).__qualname__}", describe_error(error))
            for name, error in errors.items()
            # A conflict or a violated constraint in every schedule is a result of the race; another error is more
            # likely a mistake in the scenario.
            if not (isinstance(error, raises) or is_conflict(error) or (sqlstate_of(error) or "").startswith("23"))
        },
        failed={name: describe_error(error) for name, error in errors.items()},
    )


# Celery's word for running in a task is one for the process, so an eager task of another actor counts as well.
_HINTS = {"Never call result.get() within a task": "; with eager tasks of Celery, leave out .get() in the actors"}
_MOST_ERRORS = 4
"""Errors that a sentence names."""


class Vacuity:
    """Notes what every actor did in all runs."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._active: set[int] = set()
        self._changed = False
        self._ended = 0
        self._raised: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._first: dict[tuple[str, str], str] = {}
        """The words of each actor's first error of a class: those of later ones may name another row."""
        self._failed: Counter[str] = Counter()
        self._succeeded = False

    def note(self, activity: Activity, *, ended: bool) -> None:
        """Note what was done in a run, and whether the run came to its end."""
        self._active |= activity.active
        self._changed = self._changed or activity.changed
        self._ended += ended
        for name, (kind, text) in activity.raised.items():
            self._raised[name][kind] += 1
            self._first.setdefault((name, kind), text)
        self._failed.update(activity.failed.values())
        self._succeeded = self._succeeded or (ended and len(activity.failed) < len(self._names))

    @property
    def reason(self) -> str:
        """Why the race is vacuous, in a sentence; empty if it is not."""
        if len(self._names) == 1:
            return f"nothing was raced: {self._names[0]} is the only actor"
        schedules = counted(self._ended, "schedule")
        for index, name in enumerate(self._names):
            raised = self._raised[name]
            if raised and raised.total() == self._ended:
                errors = Counter({self._first[name, kind]: count for kind, count in raised.items()})
                hint = next((hint for part, hint in _HINTS.items() if part in " ".join(errors)), "")
                return f"nothing was raced: {name} raised {_listed(errors)} in {_all(schedules)}{hint}"
            if index not in self._active:
                return f"nothing was raced: {name} sent no statement in {_all(schedules)}"
        if not self._changed:
            return "nothing was raced: no actor wrote or locked anything"
        if self._ended and not self._succeeded:
            return f"nothing was raced: no actor succeeded: they raised {_listed(self._failed)} in {_all(schedules)}"
        return ""


def _listed(errors: Counter[str]) -> str:
    """Return the most common errors, with counts if there are several."""
    if len(errors) == 1:
        return next(iter(errors))
    return "; ".join(f"{text} ({count} times)" for text, count in errors.most_common(_MOST_ERRORS))


def _all(schedules: str) -> str:
    return "the only schedule" if schedules.startswith("1 ") else f"all {schedules}"


def _may_change(step: StepRecord) -> bool:
    statement = step.operation.statement
    return statement is None or statement.may_change
