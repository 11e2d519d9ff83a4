"""The directed search: interrupts each actor around its writes, once in each schedule. Pure, as `search` is.

Most anomalies need one interruption only: what an actor has read or checked is changed by the others just before it
writes, or its lock comes too early or too late. Few preemptions and few ordering constraints suffice for most
concurrency bugs (S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte, "A randomized scheduler with probabilistic
guarantees of finding bugs", ASPLOS 2010). What needs two interruptions is not found, so that nothing is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django_lockstep.lab.explorer.effects.footprints import EVERYTHING, dependent
from django_lockstep.lab.explorer.search.branches import Move, related
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.search.schedules import SinglePreemption


class DirectedSearch:
    """Runs the actors in serial orders, each of them first once; then interrupts each around its writes.

    Just before each write or lock of an actor, and just after it, the others run one after the other as far as they
    can. Two interruptions between which the actor does nothing that depends on the others are the same schedule.

    ``actors`` are their functions. Of actors with one and the same function only the first is interrupted: the
    schedules of the others are those with the names exchanged, and end alike. With ``tables`` they are interrupted only
    around writes and locks of these, and around what is not understood.
    """

    exhaustive = False
    """Whether a search with nothing left has covered every interleaving, up to the order of independent steps."""

    def __init__(self, actors: Sequence[object], *, tables: Collection[str] = ()) -> None:
        self._tables = frozenset(tables)
        self._actors = range(len(actors))
        self._originals = [actors.index(actor) for actor in actors]
        """For each actor the first one with the same function."""
        # Serial runs first: where to interrupt is found in them.
        self._plans = [self._plan(actor, None) for actor in sorted(set(self._originals))]
        self._serial: dict[int, list[Move]] = {}
        """The moves of each actor in the run in which it was first, when the others had changed nothing yet."""

    def _plan(self, actor: int, steps: int | None) -> SinglePreemption:
        return SinglePreemption(actor, steps=steps, actors=len(self._actors))

    @property
    def left(self) -> int:
        """Schedules that are planned and not yet run."""
        return len(self._plans)

    def take(self) -> SinglePreemption | None:
        """Return the next schedule, or the current one again if it was not added; None if there is none."""
        return self._plans[0] if self._plans else None

    def add(self, schedule: SinglePreemption) -> None:
        """End the schedule; after the last serial one, plan the others."""
        self._plans.remove(schedule)
        actor = schedule.actor
        if schedule.steps is None:
            self._serial[actor] = [move for move in schedule.moves if move.actor == actor]
            if not self._plans:
                # In this order the ready-made races break earliest.
                self._plans = [self._plan(first, cut) for first in self._serial for cut in sorted(self._cuts(first))]
        else:
            same = range(schedule.steps, _same_until(schedule.moves, schedule.steps) + 1)
            self._plans = [plan for plan in self._plans if plan.actor != actor or plan.steps not in same]

    def start_over(self) -> None:
        """Do nothing: a schedule too few or too many changes no verdict here."""

    def _cuts(self, actor: int) -> set[int]:
        """Return after how many steps to interrupt the actor: just before and just after each of its writes."""
        moves = self._serial[actor]
        originals = {self._originals[index] for index in self._actors if index != actor}
        others = {move.footprint for index in originals for move in self._serial[index]}
        concerning = [any(dependent(move.footprint, footprint) for footprint in others) for move in moves]
        # A transaction that only reads may still see the others' changes in parts.
        writes = [number for number, move in enumerate(moves) if move.writes] or range(len(moves))
        if self._tables:
            # Not by the footprint: a write under a lock that is held already takes none, and publishes nothing yet.
            writes = [
                number
                for number in writes
                if EVERYTHING in moves[number].footprint or not self._tables.isdisjoint(moves[number].tables)
            ]
        cuts = {_postponed(number + after, concerning) for number in writes for after in (0, 1)}
        # At its beginning or its end the actor is not interrupted: these are the serial orders.
        return cuts - {0, len(moves)}


AnySearch = Search | DirectedSearch
"""Says which schedules to run: `take` one after another, and `add` each that was run."""


def _postponed(number: int, concerning: Sequence[bool]) -> int:
    """Return the last place that is equivalent to this one: the steps between them do not concern the others."""
    while number < len(concerning) and not concerning[number]:
        number += 1
    return number


def _same_until(moves: Sequence[Move], steps: int) -> int:
    """Return up to how many steps an interruption would be this schedule again, which has one after ``steps``.

    Nothing that the actor did from there on matters to what the others had done: these only wait for what it holds.
    """
    actor, done = moves[0].actor, 0
    meanwhile: list[Move] = []
    for move in moves:
        if move.actor == actor:
            if any(related(move, earlier) for earlier in meanwhile):
                break
            done += 1
        elif done <= steps:
            meanwhile.append(move)
        else:
            break
    return max(done, steps)
