"""Plays one schedule, and plays it again where the server let the actors go on in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.errors import Nondeterminism, Overtaken, RestartSearch, ScheduleError
from django_lockstep.lab.explorer.oracle import RunResult
from django_lockstep.lab.explorer.search.branches import Schedule
from django_lockstep.lab.explorer.search.schedules import Follow
from django_lockstep.lab.explorer.session import ExplorationSession

_TURNS = 200
"""How often a schedule is tried until waiters for one row go on as it says.

Half of the tries fail where the server may let any of two go on; on a busy machine, for a while, nearly all.
"""
ATTEMPTS = 5
"""How often a schedule is tried that came out differently while several actors waited; more would hide
nondeterminism."""


def follow(
    session: ExplorationSession, moves: Sequence[int], *, expected: Trace | None = None
) -> tuple[RunResult, Trace]:
    fixture, trace = play(session, Follow(moves), expected=expected)
    return session.result(fixture, trace), trace


def learn_differences(
    session: ExplorationSession, result: tuple[RunResult, Trace], again: tuple[RunResult, Trace]
) -> None:
    """Raise `RestartSearch` if two results of one schedule differ in columns that were not known to differ."""
    steered = not (result[1].unsteerable or again[1].unsteerable)  # otherwise the server may have decided differently
    if steered and session.oracle.learn(result[0], again[0]):
        raise RestartSearch


def play_next(session: ExplorationSession, schedule: Schedule, before: Trace | None) -> tuple[RunResult | None, Trace]:
    """Play the schedule; without a result if it was abandoned, or if the server never chooses as it would have to."""
    try:
        fixture, trace = play(session, schedule, expected=before)
    except Overtaken:
        schedule.unreached = True
        return None, Trace(complete=False, learned_facts=session.learned_facts)
    return session.result(fixture, trace) if trace.complete else None, trace


def require_steered(session: ExplorationSession, first: Trace) -> None:
    """Raise `Nondeterminism` if sessions were opened that the explorer does not control."""
    still_open, ended = _untracked(session)
    if ended and not still_open:  # after one more run it is certain, since all sessions of ours are counted by then
        for server in session.servers:
            server.sessions.mark_known()
        follow(session, first.actors, expected=first)
        still_open, ended = _untracked(session)
    if still_open or ended:
        raise Nondeterminism(
            f"{max(still_open, ended)} sessions were opened outside of Django (by the driver itself, asynchronously or "
            "by another process), so that their statements are not scheduled"
        )


def play(session: ExplorationSession, schedule: Schedule, *, expected: Trace | None = None) -> tuple[Any, Trace]:
    """Play a schedule, and again if the server let waiters for one row go on in another order than they arrived.

    The last try does not require that order.
    """
    others = 0
    in_vain: Overtaken | None = None
    for turn in range(1, _TURNS + 1):
        schedule.begin()
        try:
            return session.play(schedule, expected=expected, in_turn=turn < _TURNS)
        except Overtaken as error:
            in_vain = error
        except (Nondeterminism, ScheduleError):
            others += 1
            # Where actors waited for one row, the server may have chosen another order; only then is it worth another
            # try.
            if not session.controller.monitor.state.contended or others == ATTEMPTS:
                raise
        session.controller.abandon()
    raise in_vain or Overtaken("The server never let waiters go on as the schedule says")


def _untracked(session: ExplorationSession) -> tuple[int, int]:
    """Return how many sessions outside of Django are open, and how many seem to have been."""
    counts = [server.sessions.untracked() for server in session.servers]
    return sum(now for now, _ in counts), sum(gone for _, gone in counts)
