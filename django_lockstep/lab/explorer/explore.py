"""The entry points: explore a scenario, or replay one of its schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab.explorer.differences import CAUSES
from django_lockstep.lab.explorer.errors import Nondeterminism, Overtaken, RestartSearch, ScheduleError, Stuck
from django_lockstep.lab.explorer.final_state import describe_state
from django_lockstep.lab.explorer.limits import MAX_STEPS, Limits
from django_lockstep.lab.explorer.oracle import RunResult
from django_lockstep.lab.explorer.results import Exploration, Run
from django_lockstep.lab.explorer.schedules import Follow, parse_schedule
from django_lockstep.lab.explorer.session import STEP_TIMEOUT, ExplorationSession, exploration_session
from django_lockstep.lab.explorer.strategy import Reduction, SearchStrategy, make_strategy
from django_lockstep.lab.explorer.tally import ExplorationTally, TracedResult
from django_lockstep.lab.explorer.trace import Trace
from django_lockstep.lab.explorer.vacuity import Errors, Vacuity
from django_lockstep.lab.scenario import Scenario

__all__ = ["explore", "replay"]

_TURNS = 50
"""How often a schedule is tried until waiters for one row go on in the order in which they arrived.

On a busy machine a third of the tries may fail, hardly ever more than half.
"""
_ATTEMPTS = 5
"""How often a schedule is tried that came out differently while several actors waited; more would hide
nondeterminism."""

Victim = Literal["last", "first"]


def explore(
    scenario: Scenario,
    *,
    directed: bool | Collection[str] = False,
    reduction: Reduction = "dpor",
    preemptions: int | None = None,
    max_schedules: int | None = None,
    max_steps: int = MAX_STEPS,
    timeout: float | None = None,
    stop_on_first: bool = False,
    raises: Errors = (),
    no_deadlock: bool = False,
    ignore: Collection[str] = (),
    warm_up: bool = True,
    virtual_sleep: bool = False,
    victim: Victim = "last",
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Exploration:
    """Run the actors through every meaningfully different interleaving of their SQL statements.

    ``directed`` runs only the schedules in which one actor is interrupted just before or after one of its writes or
    locks, about two for each: enough to find most races in long code, but never to say that there is none. The names of
    tables instead of True limit that to writes and locks of these.
    ``reduction="none"`` runs every interleaving, also those that differ only in the order of independent steps.
    ``preemptions`` limits how often an actor that could go on is interrupted (then without reduction).
    ``max_schedules`` and ``timeout`` (seconds) limit the search, ``max_steps`` one run; ``stop_on_first`` ends the
    search with the first wrong run.

    A race in which an actor sends nothing, or raises the same error in every schedule, is vacuous, unless the error is
    a conflict in the database or one that ``raises`` names (a class or a tuple). With ``no_deadlock`` a run with a
    deadlock counts as wrong. ``ignore`` names columns that are not compared, such as ``auth_user.password``; others
    that differ when the same schedule is run again are found automatically. ``warm_up`` first runs the actors one after
    the other, to fill caches. With ``virtual_sleep``, `time.sleep` in an actor advances its clock and lets the others
    run, instead of waiting.

    ``victim`` is the actor that loses a deadlock: the ``last`` to wait, which closes the cycle, or the ``first``, whose
    time-out expires first in production. ``step_timeout`` is how many seconds one step may take without waiting for
    another actor.

    The scenario runs on committed data, and tables that it wrote are put back: what other sessions commit into them in
    the meantime is lost. So it runs on test databases and scratch databases only, unless ``database_is_mine`` confirms
    that the rows are not needed. Raises `NotExplorable` on another database, inside a transaction, on servers other
    than PostgreSQL, for tables too large to put back, and while another explorer is running. Errors of ``set_up`` and
    of the invariant are raised as they are.
    """
    if victim not in ("last", "first"):
        raise ValueError(f"victim must be 'last' or 'first', not {victim!r}")
    search: dict[str, Any] = {"directed": directed, "reduction": reduction, "preemptions": preemptions}
    functions = list(scenario.actors.values())
    make_strategy(functions, **search)  # refuses options that exclude each other, before anything is run
    begun = time.monotonic()
    terms: dict[str, Any] = {"ignore": ignore, "no_deadlock": no_deadlock, "virtual_sleep": virtual_sleep}
    terms["database_is_mine"] = database_is_mine
    with exploration_session(scenario, database=database, step_timeout=step_timeout, victim=victim, **terms) as session:

        def attempt() -> Exploration:
            deadline = None if timeout is None else begun + timeout
            session.controller.limits = Limits(max_steps=max_steps, deadline=deadline)
            vacuity = Vacuity(session.names, raises=raises)
            tally = ExplorationTally(
                limit=max_schedules, timeout=timeout, stop_on_first=stop_on_first, begun=begun, vacuity=vacuity
            )
            strategy = make_strategy(functions, **search)
            trouble = _run_schedules(session, strategy, tally, warm_up=warm_up)
            failure, trouble = _confirm_broken(session, tally, trouble)
            return tally.exploration(session, strategy, failure=failure, trouble=trouble)

        return session.run_until_stable(attempt)


def replay(
    scenario: Scenario,
    schedule: str,
    *,
    max_steps: int = MAX_STEPS,
    no_deadlock: bool = False,
    ignore: Collection[str] = (),
    warm_up: bool = True,
    virtual_sleep: bool = False,
    victim: Victim = "last",
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Run:
    """Run one schedule, such as ``AABBAB``, and return what happened with the values read.

    After the schedule's end each actor goes on as long as it can. The options are those of `explore`. Raises
    `ScheduleError` if the schedule names an actor that waits or is done, `Stuck` if a step does not end, and as
    `explore` does.
    """
    moves = parse_schedule(schedule, actors=len(scenario.actors))
    terms: dict[str, Any] = {"ignore": ignore, "no_deadlock": no_deadlock, "virtual_sleep": virtual_sleep}
    terms["database_is_mine"] = database_is_mine
    with exploration_session(scenario, database=database, step_timeout=step_timeout, victim=victim, **terms) as session:
        session.controller.limits = Limits(max_steps=max_steps)

        def attempt() -> Run:
            if warm_up:
                session.warm_up()
            first, _ = _follow(session, moves) if scenario.invariant is None else (None, None)
            session.keep_values()
            end, trace = _follow(session, moves)
            if first is not None:  # run twice, to learn which columns differ without any race
                session.oracle.learn(first, end)
            return session.judge(end, trace)

        return session.run_until_stable(attempt)


def _follow(
    session: ExplorationSession, moves: Sequence[int], *, expected: Trace | None = None
) -> tuple[RunResult, Trace]:
    fixture, trace = _retry_overtaken(
        session, lambda in_turn: session.play(Follow(moves), expected=expected, in_turn=in_turn)
    )
    return session.result(fixture, trace), trace


def _run_schedules(
    session: ExplorationSession, strategy: SearchStrategy, tally: ExplorationTally, *, warm_up: bool
) -> Nondeterminism | Stuck | None:
    """Run schedules until none is left or a limit is reached; return the error that ended the search early."""
    try:
        warm = session.warm_up() if warm_up and tally.wants_more() else None
        first = _search(session, strategy, tally, warm)
        session.controller.limits.deadline = None  # a wrong run is confirmed after the time limit, too
        if first is not None:
            # Run the first schedule again, unless the warm-up or another run has repeated it already.
            if tally.runs == 1 or not _same_schedule(warm, first):
                _learn(session, first, _follow(session, first[1].actors, expected=first[1]))
            _require_steered(session, first[1])
    except ScheduleError as error:
        return Nondeterminism(str(error))
    except Nondeterminism as trouble:
        return trouble
    except Stuck as trouble:
        return Stuck(f"{trouble}{session.controller.give_up()}")
    return None


def _search(
    session: ExplorationSession, strategy: SearchStrategy, tally: ExplorationTally, warm: TracedResult | None
) -> TracedResult | None:
    """Run the search's schedules, and return the first result; ``warm`` is that of the warm-up."""
    first: TracedResult | None = None
    before: Trace | None = None
    while tally.wants_more() and strategy.begin():
        fixture, before = _play_next(session, strategy, before)
        if before.out_of_time:
            break
        # Footprints of earlier moves took keys for constant that have changed now.
        if session.rekeyed > before.rekeyed:
            strategy.start_over()
            first = before = None
            continue
        tally.note(before)
        if before.complete:
            end = session.result(fixture, before)
            if first is None:
                first = end, before
                if warm is not None and _same_schedule(warm, first):
                    session.oracle.learn(warm[0], end)
            tally.add(session, end, before)
        else:
            # Abandoned by a sleep set: the same up to the order of independent steps as a run that was complete.
            tally.redundant += 1
        strategy.finish()
    return first


def _same_schedule(warm: TracedResult | None, first: TracedResult) -> bool:
    return warm is not None and warm[1].actors == first[1].actors


def _learn(session: ExplorationSession, one: TracedResult, other: TracedResult) -> None:
    """Raise `RestartSearch` if two results of one schedule differ in columns that were not known to differ."""
    steered = not (one[1].unsteerable or other[1].unsteerable)  # otherwise the server may have decided differently
    if steered and session.oracle.learn(one[0], other[0]):
        raise RestartSearch


def _require_steered(session: ExplorationSession, first: Trace) -> None:
    """Raise `Nondeterminism` if sessions were opened that the explorer does not control."""
    still_open, ended = session.untracked_sessions()
    if ended and not still_open:  # after one more run it is certain, since all sessions of ours are counted by then
        session.mark_sessions_known()
        _follow(session, first.actors, expected=first)
        still_open, ended = session.untracked_sessions()
    if still_open or ended:
        raise Nondeterminism(
            f"{max(still_open, ended)} sessions were opened outside of Django (by the driver itself, asynchronously or "
            "by another process), so that their statements are not scheduled"
        )


def _play_next(session: ExplorationSession, strategy: SearchStrategy, before: Trace | None) -> tuple[Any, Trace]:
    def again(in_turn: bool) -> tuple[Any, Trace]:
        strategy.begin()
        return session.play(strategy, expected=before, record=strategy.record, in_turn=in_turn)

    return _retry_overtaken(session, again)


def _retry_overtaken(session: ExplorationSession, play: Callable[[bool], tuple[Any, Trace]]) -> tuple[Any, Trace]:
    """Play a schedule, and again if the server let waiters for one row go on in another order than they arrived.

    ``play`` takes whether they must go on in that order, which the last try does not require.
    """
    others = 0
    for turn in range(1, _TURNS + 1):
        try:
            return play(turn < _TURNS)
        except (Nondeterminism, ScheduleError) as error:
            others += not isinstance(error, Overtaken)
            # Where actors waited for one row, the server may have chosen another order; only then is it worth another
            # try.
            if not session.controller.contended or others == _ATTEMPTS:
                raise
            trouble = error
            session.controller.abandon()
    raise trouble


def _confirm_broken(
    session: ExplorationSession, tally: ExplorationTally, trouble: Nondeterminism | Stuck | None
) -> tuple[Run | None, Nondeterminism | Stuck | None]:
    """Return the simplest wrong run, replayed with the values read, and what ended the search early."""
    if tally.broken is None:
        return None, trouble
    return (tally.broken[0], trouble) if trouble is not None else _confirm(session, *tally.broken)


def _confirm(
    session: ExplorationSession, failure: Run, before: TracedResult
) -> tuple[Run, Nondeterminism | Stuck | None]:
    """Run the wrong schedule again, keeping the values read; it must end wrong again, with the same errors."""
    session.keep_values()
    moves = parse_schedule(failure.schedule, actors=len(session.names))
    for _ in range(_ATTEMPTS):
        try:
            ended, trace = _follow(session, moves)
        except ScheduleError as error:
            return failure, Nondeterminism(f"Schedule {failure.schedule} could not be repeated: {error}\n{CAUSES}")
        except (Nondeterminism, Stuck) as error:
            return failure, error
        # Values that differ here differ without any race, such as those of a random token.
        _learn(session, before, (ended, trace))
        again = session.judge(ended, trace)
        # With an invariant, only its answer is compared: passwords and the like may differ.
        alike = session.scenario.invariant is not None or session.oracle.key(ended) == session.oracle.key(before[0])
        if alike and not again.holds and (again.errors, again.schedule) == (failure.errors, failure.schedule):
            return again, None
    return failure, Nondeterminism(
        f"Schedule {failure.schedule} ended differently when it was repeated.\nThen: {_in_words(failure)}\n"
        f"Now:  {_in_words(again)}\n{CAUSES}"
    )


def _in_words(run: Run) -> str:
    errors = [f"{name} raised {error}" for name, error in run.errors.items()]
    return "; ".join([*errors, describe_state(run.state), run.reason or "right"])
