"""The directed search: interrupts each actor around its writes, once in each schedule. Pure, as `search` is.

Most anomalies need one interruption only: what an actor has read or checked is changed by the others just before it
writes, or its lock comes too early or too late. Few preemptions and few ordering constraints suffice for most
concurrency bugs (S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte, "A randomized scheduler with probabilistic
guarantees of finding bugs", ASPLOS 2010). What needs two interruptions is not found, so that nothing is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.footprints import dependent
from django_lockstep.lab.explorer.search.branches import Move, State, related
from django_lockstep.lab.explorer.search.schedules import SinglePreemption


@dataclass(frozen=True, slots=True)
class _Plan:
    """A schedule: the actor makes so many steps, then the others run, then the rest."""

    actor: int
    steps: int | None
    """None: as many as it can."""


class DirectedSearch:
    """Runs the actors in serial orders, each of them first once; then interrupts each around its writes.

    Just before each write or lock of an actor, and just after it, the others run one after the other as far as they
    can. Two interruptions between which the actor does nothing that depends on the others are the same schedule.

    ``actors`` are their functions. Of actors with one and the same function only the first is interrupted: the
    schedules of the others are those with the names exchanged, and end alike. With ``tables`` they are interrupted only
    around writes and locks of these, and around what is not understood.
    """

    exhaustive = False
    states: Sequence[State] = ()

    def __init__(self, actors: Sequence[object], *, tables: Collection[str] = ()) -> None:
        self._tables = frozenset(tables)
        self._actors = range(len(actors))
        self._originals = [actors.index(actor) for actor in actors]
        """For each actor the first one with the same function."""
        # Serial runs first: where to interrupt is found in them.
        self._plans = [_Plan(actor, None) for actor in sorted(set(self._originals))]
        self._serial: dict[int, list[Move]] = {}
        """The moves of each actor in the run in which it was first, when the others had changed nothing yet."""
        self._done = 0
        self._moves: list[Move] = []
        self._chooser = SinglePreemption(0, steps=None, actors=len(actors))

    @property
    def left(self) -> int:
        """Schedules that are planned and not yet run."""
        return len(self._plans) - self._done

    def begin(self) -> bool:
        """Start the next schedule, or the current one again; False if there is none."""
        if not self.left:
            return False
        plan = self._plans[self._done]
        self._chooser = SinglePreemption(plan.actor, steps=plan.steps, actors=len(self._actors))
        self._moves = []
        return True

    def choose(self, enabled: Collection[int]) -> int:
        """Return the actor that moves."""
        return self._chooser.choose(enabled)

    def record(self, move: Move) -> None:
        """Record what the chosen actor's step did."""
        self._moves.append(move)

    def give_up(self) -> None:
        """Do nothing: a schedule too few changes no verdict here."""

    def finish(self) -> None:
        """End the schedule; after the last serial one, plan the others."""
        plan = self._plans[self._done]
        self._done += 1
        if plan.steps is None:
            self._serial[plan.actor] = [move for move in self._moves if move.actor == plan.actor]
            if self._done == len(self._plans):
                # In this order the ready-made races break earliest.
                cuts = ((actor, steps) for actor in self._serial for steps in sorted(self._cuts(actor)))
                self._plans += [_Plan(actor, steps) for actor, steps in cuts]
        else:
            same = range(plan.steps, self._same_until(plan.steps) + 1)
            left = [one for one in self._plans[self._done :] if one.actor != plan.actor or one.steps not in same]
            self._plans[self._done :] = left

    def start_over(self) -> None:
        """Do nothing: a schedule too few or too many changes no verdict here."""

    def _cuts(self, actor: int) -> set[int]:
        """Return after how many steps to interrupt the actor: just before and just after each of its writes."""
        moves = self._serial[actor]
        originals = {self._originals[other] for other in self._actors if other != actor}
        others = {move.footprint for other in originals for move in self._serial[other]}
        concerning = [any(dependent(move.footprint, other) for other in others) for move in moves]
        # A transaction that only reads may still see the others' changes in parts.
        writes = [number for number, move in enumerate(moves) if move.writes] or range(len(moves))
        if self._tables:
            writes = [number for number in writes if self._is_concerned(moves[number])]
        cuts = {_postponed(number + after, concerning) for number in writes for after in (0, 1)}
        # At its beginning or its end the actor is not interrupted: these are the serial orders.
        return cuts - {0, len(moves)}

    def _same_until(self, steps: int) -> int:
        """Return up to how many steps an interruption would be this schedule again, which has one after ``steps``.

        Nothing that the actor did from there on matters to what the others had done: these only wait for what it holds.
        """
        actor, done = self._moves[0].actor, 0
        meanwhile: list[Move] = []
        for move in self._moves:
            if move.actor == actor:
                if any(related(move, other) for other in meanwhile):
                    break
                done += 1
            elif done <= steps:
                meanwhile.append(move)
            else:
                break
        return max(done, steps)

    def _is_concerned(self, move: Move) -> bool:
        # Not by the footprint: a write under a lock that is held already takes none, and publishes nothing yet.
        return move.footprint.opaque or not self._tables.isdisjoint(move.tables)


def _postponed(number: int, concerning: Sequence[bool]) -> int:
    """Return the last place that is equivalent to this one: the steps between them do not concern the others."""
    while number < len(concerning) and not concerning[number]:
        number += 1
    return number
