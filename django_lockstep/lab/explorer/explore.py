"""The way in: explore a scenario, or replay one of its schedules."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.errors import Nondeterminism, Overtaken, ScheduleError, Stuck
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run, Verdict
from django_lockstep.lab.explorer.schedules import Follow, parse_schedule
from django_lockstep.lab.explorer.search import Search
from django_lockstep.lab.explorer.stage import PATIENCE, Stage, stage
from django_lockstep.lab.explorer.trace import Trace
from django_lockstep.lab.scenario import Scenario

__all__ = ["explore", "replay"]

_TURNS = 50
"""How often a schedule is tried until those who waited for one row go on in the order they came.

On a busy machine every third try may go wrong, hardly ever more than every other one.
"""
_ATTEMPTS = 5
"""How often a schedule is tried that came out otherwise than before where several waited; more would hide chance."""

Victim = Literal["last", "first"]


def explore(
    scenario: Scenario,
    *,
    reduction: Literal["dpor", "none"] = "dpor",
    preemptions: int | None = None,
    max_schedules: int | None = None,
    timeout: float | None = None,
    stop_on_first: bool = False,
    victim: Victim = "last",
    patience: float = PATIENCE,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Exploration:
    """Run the actors through every meaningfully different interleaving of their SQL statements.

    ``reduction="none"`` takes every interleaving, also those that differ in the order of independent steps only.
    ``preemptions`` bounds how often an actor that could go on is interrupted (then without reduction).
    ``max_schedules`` and ``timeout`` (seconds) bound how long the search goes on; ``stop_on_first`` ends it with the
    first wrong run. ``victim`` says who loses a deadlock: the ``last`` to wait, which closes it, or the ``first``,
    whose time-out fires first in production. ``patience`` is how many seconds one step may take without waiting for
    another actor.

    The scenario runs on committed data, and tables that it wrote are put back: what others commit into them meanwhile
    is lost. So it runs on test databases and scratch databases only, unless ``database_is_mine`` says that nobody needs
    the rows. Raises `NotExplorable` on another database, inside a transaction, on other servers than PostgreSQL, for
    tables too large to put back, and where another explorer is at work; what set-up or invariant raise passes.
    """
    if reduction not in ("dpor", "none") or victim not in ("last", "first"):
        raise ValueError(f"reduction is 'dpor' or 'none', victim 'last' or 'first', not {reduction!r} and {victim!r}")
    tally = _Tally(limit=max_schedules, timeout=timeout, stop_on_first=stop_on_first)
    search = Search(reduce=reduction == "dpor", preemptions=preemptions)
    with stage(
        scenario, database=database, patience=patience, victim=victim, database_is_mine=database_is_mine
    ) as place:
        trouble = _explored(place, search, tally)
        return tally.exploration(place, search, trouble)


def replay(
    scenario: Scenario,
    schedule: str,
    *,
    victim: Victim = "last",
    patience: float = PATIENCE,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Run:
    """Run one schedule, such as ``AABBAB``, and return what happened with the values read.

    After the schedule's end each actor goes on as long as it can. Raises `ScheduleError` where the schedule names
    somebody who waits or is done, and as `explore` does; `Stuck` where a step does not end.
    """
    moves = parse_schedule(schedule, actors=len(scenario.actors))
    with stage(
        scenario, database=database, patience=patience, victim=victim, database_is_mine=database_is_mine
    ) as place:
        place.keep_values()
        return place.judged(*_followed(place, moves))


def _followed(place: Stage, moves: Sequence[int], *, expected: Trace | None = None) -> tuple[Any, Trace]:
    return _steered(place, lambda in_turn: place.play(Follow(moves), expected=expected, in_turn=in_turn))


def _explored(place: Stage, search: Search, tally: _Tally) -> Nondeterminism | Stuck | None:
    """Run schedules until none is left or the tally has enough; return what made it impossible to go on."""
    first: Trace | None = None
    before: Trace | None = None
    try:
        while tally.wants_more() and search.begin():
            made, before = _played(place, search, before)
            first = first or before
            tally.note(before)
            if before.complete:
                tally.add(place.judged(made, before))
            else:
                tally.redundant += 1
            search.finish()
        if first is not None:  # once more, so that even a single schedule is replayed
            _followed(place, first.actors, expected=first)
    except ScheduleError as error:
        return Nondeterminism(str(error))
    except Nondeterminism as trouble:
        return trouble
    except Stuck as trouble:
        return Stuck(f"{trouble}{place.controller.give_up()}")
    return None


def _played(place: Stage, search: Search, before: Trace | None) -> tuple[Any, Trace]:
    """Run the search's next schedule."""

    def again(in_turn: bool) -> tuple[Any, Trace]:
        search.begin()
        return place.play(search, expected=before, record=search.record, in_turn=in_turn)

    return _steered(place, again)


def _steered(place: Stage, play: Callable[[bool], tuple[Any, Trace]]) -> tuple[Any, Trace]:
    """Play a schedule, again where the server let those who waited for one row go on in another order than they came.

    ``play`` is told whether they have to go on in turn, which the last try does not ask for.
    """
    others = 0
    for turn in range(1, _TURNS + 1):
        try:
            return play(turn < _TURNS)
        except (Nondeterminism, ScheduleError) as error:
            others += not isinstance(error, Overtaken)
            if not place.controller.contended or others == _ATTEMPTS:
                raise
            trouble = error
            place.controller.abandon()
    raise trouble


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Counts what came of the runs."""

    limit: int | None
    timeout: float | None
    stop_on_first: bool
    begun: float = field(default_factory=time.monotonic)
    runs: int = 0
    redundant: int = 0
    deadlocks: int = 0
    unsteerable: int = 0
    rests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    ends: dict[tuple[object, ...], list[Run]] = field(default_factory=dict)
    counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    broken: Run | None = None

    def wants_more(self) -> bool:
        """Whether no limit is reached."""
        return not (
            (self.limit is not None and self.runs >= self.limit)
            or (self.timeout is not None and time.monotonic() - self.begun >= self.timeout)
            or (self.stop_on_first and self.broken is not None)
        )

    def note(self, trace: Trace) -> None:
        """Count the waits and errors of statements, and the rests of actors that would only have been refused again."""
        self.rests += trace.rests
        for begun in trace.steps:
            if begun.waited_for:
                self.waits[begun.operation.template.split()[0].upper()] += 1
            if begun.operation.error is not None:
                error = begun.operation.error
                self.errors[sqlstate_of(error) or type(error).__name__] += 1

    def add(self, run: Run) -> None:
        """Count an ended run."""
        self.runs += 1
        self.deadlocks += bool(run.deadlocks)
        self.unsteerable += run.unsteerable
        end = (tuple(run.errors.items()), tuple(run.results.items()), run.state, run.holds)
        self.counts[end] += 1
        self.ends[end] = [min([run, *self.ends.get(end, [])], key=_simplicity)]
        if not run.holds:
            self.broken = run if self.broken is None else min(self.broken, run, key=_simplicity)

    def exploration(self, place: Stage, search: Search, trouble: Nondeterminism | Stuck | None) -> Exploration:
        """Return the verdict, with the simplest wrong run replayed."""
        failure = self.broken
        if failure is not None and trouble is None:
            failure, trouble = _confirmed(place, failure)
        verdict, reason = self._verdict(search, failure, trouble)
        return Exploration(
            verdict=verdict,
            reason=reason,
            actors=place.names,
            schedules=self.runs,
            redundant=self.redundant,
            unsteerable=self.unsteerable,
            rests=self.rests,
            left=search.left,
            outcomes=tuple(self._outcomes()),
            deadlocks=self.deadlocks,
            errors=dict(sorted(self.errors.items())),
            waits=dict(sorted(self.waits.items())),
            seconds=time.monotonic() - self.begun,
            failure=failure,
        )

    def _verdict(
        self, search: Search, failure: Run | None, trouble: Nondeterminism | Stuck | None
    ) -> tuple[Verdict, str]:
        if trouble is not None:
            return ("stuck" if isinstance(trouble, Stuck) else "nondeterministic"), str(trouble)
        if failure is not None:
            return "broken", f"Schedule {failure.schedule}: {failure.reason}"
        if search.left:
            return "incomplete", f"{self.runs} schedules ended right; at least {search.left} branches were not taken"
        if self.unsteerable:
            return "incomplete", f"{self.unsteerable} times the server alone decided in which order waiters went on"
        fair = "fair " if self.rests else ""
        return "holds", f"Every {fair}interleaving was explored, in {self.runs} schedules"

    def _outcomes(self) -> list[Outcome]:
        outcomes = [
            Outcome(
                errors=runs[0].errors,
                results=runs[0].results,
                state=runs[0].state,
                holds=runs[0].holds,
                count=self.counts[end],
                schedule=runs[0].schedule,
            )
            for end, runs in self.ends.items()
        ]
        return sorted(outcomes, key=lambda outcome: (outcome.holds, -outcome.count, outcome.schedule))


def _simplicity(run: Run) -> tuple[int, int, str]:
    return run.preemptions, len(run.schedule), run.schedule


def _confirmed(place: Stage, failure: Run) -> tuple[Run, Nondeterminism | Stuck | None]:
    """Run the wrong schedule again, with the values read; it has to come to the same end."""
    place.keep_values()
    moves = parse_schedule(failure.schedule, actors=len(place.names))
    for _ in range(_ATTEMPTS):
        try:
            again = place.judged(*_followed(place, moves))
        except ScheduleError as error:
            return failure, Nondeterminism(f"Schedule {failure.schedule} could not be run again: {error}")
        except (Nondeterminism, Stuck) as error:
            return failure, error
        if (again.state, again.errors, again.schedule) == (failure.state, failure.errors, failure.schedule):
            return again, None
        trouble = Nondeterminism(
            f"Schedule {failure.schedule} ended with {failure.state} {failure.errors} the first time, and with "
            f"{again.state} {again.errors} the second"
        )
    return failure, trouble
