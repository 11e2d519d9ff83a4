"""The entry points: explore a scenario, or replay one of its schedules."""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.audit import audit_search
from django_lockstep.lab.explorer.driver.trace import MAX_STEPS, Trace
from django_lockstep.lab.explorer.errors import (
    CAUSES,
    ExplorerError,
    Nondeterminism,
    RestartSearch,
    ScheduleError,
    Stuck,
)
from django_lockstep.lab.explorer.options import STEP_TIMEOUT, Errors, Options, Reduction
from django_lockstep.lab.explorer.results import Exploration, Run
from django_lockstep.lab.explorer.retries import ATTEMPTS, follow, learn_differences, play_next, require_steered
from django_lockstep.lab.explorer.search.directed import AnySearch, DirectedSearch
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.search.schedules import Follow, parse_schedule, serial_order
from django_lockstep.lab.explorer.session import ExplorationSession, exploration_session
from django_lockstep.lab.explorer.tally import ExplorationTally, JudgedRun, TracedResult, judge_run
from django_lockstep.lab.scenario import Scenario

if TYPE_CHECKING:
    from django_lockstep.lab.explorer.processes import Workers


def explore(
    scenario: Scenario,
    *,
    directed: bool | Collection[str] = False,
    reduction: Reduction = "dpor",
    max_schedules: int | None = None,
    max_steps: int = MAX_STEPS,
    timeout: float | None = None,
    stop_on_first: bool | Callable[[Run], bool] = False,
    raises: Errors = (),
    no_deadlock: bool = False,
    ignore: Collection[str] = (),
    warm_up: bool = True,
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
    processes: int = 1,
    cluster: str | None = None,
    load: Callable[[], Scenario] | None = None,
    audit: int | None = None,
) -> Exploration:
    """Run the actors through every meaningfully different interleaving of their SQL statements.

    ``directed`` runs only the schedules in which one actor is interrupted just before or after one of its writes or
    locks (of these tables, if it names some): enough to find most races in long code, but never to say that there is
    none. ``reduction="none"`` also runs schedules that only swap independent steps. ``max_schedules`` and ``timeout``
    (seconds) limit the search, ``max_steps`` one run. ``stop_on_first`` ends the search with the first wrong run; a
    function, with the first run for which it returns True.

    A race in which an actor sends nothing, or raises in every schedule, is vacuous, unless an error is a conflict in
    the database or one that ``raises`` names (a class or a tuple), or in which no actor ever succeeds. With
    ``no_deadlock`` a run with a deadlock counts as wrong. ``ignore`` names columns that are not compared, such as
    ``auth_user.password``; those that differ when a schedule is run again are ignored by themselves. ``warm_up`` fills
    caches by a serial run.

    The actor that closes a cycle of waits loses the deadlock; each one of it closes it in some schedule. One step may
    take ``step_timeout`` seconds without waiting for another actor; ``set_up`` waits as long for a lock. ``processes``
    is how many worker processes explore, each on a scratch database, so that this process must use one, too; not for a
    directed search. Each unpickles the scenario, or calls ``load``, a picklable function that returns it;
    `NotExplorable` if it can do neither, `WorkerDied` if workers end again and again. ``cluster`` is the address of a
    Dask scheduler whose workers explore instead; `NotExplorable` if it does not answer, or if a worker has other code
    or versions. A race that would hold is audited: ``audit`` random walks (default: the setting ``LOCKSTEP_LAB_AUDIT``,
    20) that leave nothing out must end as one of its schedules; if one does not, it is ``missed``, and the search
    begins again without reduction.

    It runs on committed data, and puts back tables that it wrote; what others commit into them meanwhile is lost. So it
    needs a test or scratch database, or ``database_is_mine``. `NotExplorable` is raised on another one, in a
    transaction, without PostgreSQL, for tables too large to put back, and beside another explorer.
    """
    options = Options(
        database=database,
        database_is_mine=database_is_mine,
        step_timeout=step_timeout,
        max_steps=max_steps,
        ignore=ignore,
        raises=raises,
        no_deadlock=no_deadlock,
        warm_up=warm_up,
        directed=directed,
        reduction=reduction,
        max_schedules=max_schedules,
        timeout=timeout,
        stop_on_first=stop_on_first,
        processes=processes,
        cluster=cluster,
        audit=conf.audit() if audit is None else audit,
    )
    begun = time.monotonic()
    workers = _workers(load or functools.partial(copy.copy, scenario), options)
    with exploration_session(scenario, options) as session:
        return session.run_until_stable(lambda: _attempt(session, options, workers=workers, begun=begun))


def replay(
    scenario: Scenario,
    schedule: str,
    *,
    max_steps: int = MAX_STEPS,
    no_deadlock: bool = False,
    ignore: Collection[str] = (),
    warm_up: bool = True,
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
    rows: bool = False,
) -> Run:
    """Run one schedule, such as ``AABBAB``, and return what happened with the values read.

    After the schedule's end each actor goes on as long as it can. With ``rows`` it is run once more, and the result has
    what is committed after each move, and what open transactions see. The options are those of `explore`. Raises
    `ScheduleError` if the schedule names an actor that waits or is done, `Stuck` if a step does not end, and as
    `explore` does.
    """
    moves = parse_schedule(schedule, actors=len(scenario.actors))
    options = Options(
        database=database,
        database_is_mine=database_is_mine,
        step_timeout=step_timeout,
        max_steps=max_steps,
        ignore=ignore,
        no_deadlock=no_deadlock,
        warm_up=warm_up,
    )
    with exploration_session(scenario, options) as session:

        def attempt() -> Run:
            if warm_up:
                session.warm_up()
            first, _ = follow(session, moves) if scenario.invariant is None else (None, None)
            session.keep_values()
            end, trace = follow(session, moves)
            if first is not None:  # run twice, to learn which columns differ without any race
                session.oracle.learn(first, end)
            run = session.judge(end, trace)
            return _with_rows(run, session, trace) if rows else run

        return session.run_until_stable(attempt)


def runs_to_draw(scenario: Scenario, exploration: Exploration, *, most: int = 4, **options: Any) -> Iterator[Run]:
    """Yield the failure and, replayed, one run for each other outcome; at most ``most`` runs.

    ``options`` are those of `replay`. An outcome that cannot be reproduced is left out.
    """
    if exploration.failure is not None:
        yield exploration.failure
    failed = None if exploration.failure is None else exploration.failure.schedule
    others = [outcome for outcome in exploration.outcomes if outcome.schedule != failed]
    for outcome in others[: max(0, most - (exploration.failure is not None))]:
        try:
            yield replay(scenario, outcome.schedule, **options)
        except ExplorerError:
            continue


def _with_rows(run: Run, session: ExplorationSession, trace: Trace) -> Run:
    """Run the schedule once more, and add what is seen and locked after each move; nothing if it goes another way."""
    with session.watching(trace) as watch:
        try:
            _, again = follow(session, trace.actors, expected=trace)
        except (Nondeterminism, ScheduleError):
            session.controller.abandon()
            return run
    return replace(run, seen=watch.seen(), held=tuple(watch.held)) if again.actors == trace.actors else run


def _workers(load: Callable[[], Scenario], options: Options) -> Workers | None:
    """Return what explores with so many workers, or on a cluster; None for one, which this process is itself."""
    if options.processes == 1 and options.cluster is None:
        return None
    # Here, because few explorations need what starts processes, and every one would import it.
    from django_lockstep.lab.explorer.processes import Workers

    return Workers(load, options)


def _attempt(session: ExplorationSession, options: Options, *, workers: Workers | None, begun: float) -> Exploration:
    """Explore from the beginning. Raises `RestartSearch` when something is learned that makes earlier runs invalid."""
    strategy: AnySearch = Search(reduce=options.reduction != "none")
    if options.directed:
        tables = () if options.directed is True else options.directed
        strategy = DirectedSearch(list(session.scenario.actors.values()), tables=tables)
    tally = ExplorationTally(options=options, begun=begun, names=session.names)
    session.controller.deadline = tally.deadline
    trouble = _run_schedules(session, strategy, tally=tally, workers=workers)
    failure, trouble = _confirm_broken(session, tally, trouble)
    exploration = tally.exploration(session, strategy, failure=failure, trouble=trouble)
    # What nothing was left out of needs no audit, and what proves nothing has none.
    if not (exploration.verdict == "holds" and options.audit and options.reduction != "none"):
        return exploration
    if (missed := audit_search(session, tally, walks=options.audit)) is not None:
        # Forget the runs of the search that has missed it; the next one leaves nothing out.
        strategy = Search(reduce=False)
        tally.start_over()
        tally.missed, tally.audited = missed[1], 0
        tally.add(missed[0], Follow(()))
        trouble = _run_schedules(session, strategy, tally=tally, workers=None)
        failure, trouble = _confirm_broken(session, tally, trouble)
    return tally.exploration(session, strategy, failure=failure, trouble=trouble)


def _run_schedules(
    session: ExplorationSession,
    strategy: AnySearch,
    *,
    tally: ExplorationTally,
    workers: Workers | None,
) -> Nondeterminism | Stuck | None:
    """Run schedules until none is left or a limit is reached; return the error that ended the search early."""
    try:
        warm = session.warm_up() if session.options.warm_up and tally.wants_more() else None
        alone = workers.seconds_alone if workers else math.inf
        first = _search(session, strategy, tally=tally, warm=warm, seconds=alone)
        if workers is not None and isinstance(strategy, Search) and tally.wants_more() and strategy.left:
            workers.explore(session, search=strategy, tally=tally)
        session.controller.deadline = None  # a wrong run is confirmed after the time limit, too
        if first is not None:
            # Run the first schedule again, unless the warm-up has repeated it already. A directed search without one
            # follows another one of the same actors; what it finds is confirmed, and it proves nothing else.
            follows = not (session.options.warm_up or strategy.exhaustive)
            if not follows and (tally.runs == 1 or not _same_schedule(warm, first)):
                learn_differences(session, first, follow(session, first[1].actors, expected=first[1]))
            require_steered(session, first[1])
    except ScheduleError as error:
        return Nondeterminism(str(error))
    except Nondeterminism as trouble:
        return trouble
    except Stuck as trouble:
        return Stuck(f"{trouble}{session.controller.give_up()}")
    return None


def _search(
    session: ExplorationSession,
    strategy: AnySearch,
    *,
    tally: ExplorationTally,
    warm: TracedResult | None,
    seconds: float,
) -> TracedResult | None:
    """Run the search's schedules, for about so many seconds, and return the first result; ``warm`` is the warm-up's."""
    first: TracedResult | None = None
    before: Trace | None = None
    begun = time.monotonic()
    while tally.wants_more() and (first is None or time.monotonic() - begun < seconds):
        schedule: Any = strategy.take()  # of a type of its own for each search, which takes it back
        if schedule is None:
            break
        ended, before = play_next(session, schedule, before)
        if before.out_of_time:
            break
        traced = (ended, before) if ended else None
        if first is None and traced is not None:
            first = traced
            if warm is not None and _same_schedule(warm, first):
                session.oracle.learn(warm[0], first[0])
        order = serial_order(before.actors)
        if traced is not None and not strategy.exhaustive and len(order) == len(session.names):
            # Not run again to compare with. Only for a search that proves nothing: the actors have begun their Python
            # code together, up to their first statements.
            session.oracle.note_serial_run(order, traced[0])
        judged = judge_run(session, before, ended)
        # Footprints of earlier moves treated keys as constant that have changed, or rows as unseen that were read.
        if session.learned_facts > before.learned_facts:
            strategy.start_over()
            tally.start_over()
            first = before = None
            continue
        tally.add(judged, schedule)
        strategy.add(schedule)
    return first


def _same_schedule(warm: TracedResult | None, first: TracedResult) -> bool:
    return warm is not None and warm[1].actors == first[1].actors


def _confirm_broken(
    session: ExplorationSession, tally: ExplorationTally, trouble: Nondeterminism | Stuck | None
) -> tuple[Run | None, Nondeterminism | Stuck | None]:
    """Return the simplest wrong run, replayed with the values read, and what ended the search early."""
    if tally.broken is None or trouble is not None:
        return tally.broken and tally.broken[0], trouble
    failure, judged = tally.broken
    try:
        before = judged.traced or follow(session, parse_schedule(failure.schedule, actors=len(session.names)))
        return _confirm(session, failure, judged=judged, before=before)
    except ScheduleError as error:
        return failure, Nondeterminism(f"Schedule {failure.schedule} could not be repeated: {error}\n{CAUSES}")
    except (Nondeterminism, Stuck) as error:
        return failure, error


def _confirm(
    session: ExplorationSession, failure: Run, *, judged: JudgedRun, before: TracedResult
) -> tuple[Run, Nondeterminism | Stuck | None]:
    """Run the wrong schedule again, keeping the values read; it must end wrong again, with the same errors."""
    if session.scenario.invariant is None and session.oracle.learn_from_serial_runs():
        raise RestartSearch
    session.keep_values()
    moves = parse_schedule(failure.schedule, actors=len(session.names))
    for _ in range(ATTEMPTS):
        ended, trace = follow(session, moves)
        # Values that differ here differ without any race, such as those of a random token.
        learn_differences(session, before, (ended, trace))
        again = session.judge(ended, trace)
        # With an invariant, only its answer is compared: passwords and the like may differ.
        alike = session.scenario.invariant is not None or (session.oracle.key(ended), again.holds) == judged.key
        if alike and not again.holds and (again.errors, again.schedule) == (failure.errors, failure.schedule):
            return again, None
    return failure, Nondeterminism(
        f"Schedule {failure.schedule} ended differently when it was repeated.\nThen: {failure.in_words}\n"
        f"Now:  {again.in_words}\n{CAUSES}"
    )
