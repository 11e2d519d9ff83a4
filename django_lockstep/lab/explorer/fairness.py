"""Fairness: actors that must yield because they would be refused, or get the same answer, again.

A move that changed nothing wakes nobody that yields, except one that sleeps. Two actors that refuse each other locks
that they do hold still wake each other, as long as the third one, which has what both need, is left to other
schedules. So an actor that has been refused a lock very often waits for a move that releases it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.errors import RestartSearch
from django_lockstep.lab.explorer.footprints import LockedKey, collide
from django_lockstep.lab.explorer.operations import ASLEEP, Operation

__all__ = ["FairScheduler"]

_TIMES = 3
"""How often a loop that polls sends the same query before it must yield."""
_MOST_REFUSALS = 50
"""How often an actor is refused one lock before it has to wait for its release: code that gives up does so before."""
_IS_POLLING = 25
"""How often a query is repeated, while no other actor moves, by what must be such a loop: other code repeats some
too."""

Question = tuple[str, tuple[str, ...]]


class FairScheduler:
    """Keeps loops from having endless schedules: an actor that is refused twice, polls or sleeps yields to the others.

    After M. Musuvathi, S. Qadeer, "Fair stateless model checking", PLDI 2008. ``polling`` holds the statements of
    loops that poll, over all runs.
    """

    def __init__(self, polling: set[str] | None = None) -> None:
        self._polling = set() if polling is None else polling
        self._refused: dict[int, str] = {}
        self._asked: dict[int, Counter[Question]] = {}
        self._yielding: set[int] = set()
        self._asleep: set[int] = set()
        self._refusals: Counter[tuple[int, frozenset[LockedKey]]] = Counter()
        self._parked: dict[int, frozenset[LockedKey]] = {}
        """The locks that actors were refused too often."""

    def enabled(self, ready: Iterable[int]) -> set[int]:
        """Return which of the actors at a gate may move; all of them if all would have to yield."""
        able = set(ready) - self._parked.keys() or set(ready)
        return (able - self._yielding - self._asleep) or able

    def note(
        self,
        actor: int,
        operation: Operation,
        *,
        wanted: frozenset[LockedKey] = frozenset(),
        released: frozenset[LockedKey] = frozenset(),
    ) -> bool:
        """Note what the actor did, and return whether it must yield until another one moves, other than in vain.

        ``wanted`` are the locks that its statement takes, ``released`` those that its move has released. Raises
        `RestartSearch` when a loop is found to poll.
        """
        self._park(actor, wanted=wanted if _is_refused(operation) else frozenset(), released=released)
        self._asleep &= {actor}
        # Another actor has moved: one that yielded to it may now get another answer. Not if that one was only refused a
        # lock itself: two that need the lock of a third one would wake each other for ever.
        if not _is_in_vain(operation, released):
            self._yielding &= {actor}
            self._refused = {other: sql for other, sql in self._refused.items() if other == actor}
            self._asked = {actor: self._asked.get(actor, Counter())}
        if operation.sql.startswith(ASLEEP):
            self._asleep.add(actor)
            return True
        again = self._is_refused_again(actor, operation) or self._polls(actor, operation)
        if again:
            self._yielding.add(actor)
        return again

    def _park(self, actor: int, *, wanted: frozenset[LockedKey], released: frozenset[LockedKey]) -> None:
        for other, refused in [*self._parked.items()]:
            if collide(released, refused):
                del self._parked[other]
                self._refusals[other, refused] = 0
        if wanted:
            self._refusals[actor, wanted] += 1
            if self._refusals[actor, wanted] >= _MOST_REFUSALS:
                self._parked[actor] = wanted

    def _is_refused_again(self, actor: int, operation: Operation) -> bool:
        # NOWAIT and lock_timeout: as long as nobody else moves, the lock is not released either.
        if not _is_refused(operation):
            return False
        again = self._refused.get(actor) == operation.template
        self._refused[actor] = operation.template
        return again

    def _polls(self, actor: int, operation: Operation) -> bool:
        asked, statement = self._asked.setdefault(actor, Counter()), operation.statement
        if statement is None or statement.kind in {"LOCAL", "COMMIT", "ROLLBACK", "ROLLBACK TO"}:
            return False
        if operation.error is not None or statement.kind == "UNKNOWN" or (statement.writes and operation.rows != 0):
            asked.clear()
            return False
        # No other actor has moved, and this one has changed nothing: the answer is the same.
        question = (operation.template, operation.arguments)
        asked[question] += 1
        if asked[question] >= _IS_POLLING and operation.template not in self._polling:
            self._polling.add(operation.template)
            raise RestartSearch
        return asked[question] >= _TIMES and operation.template in self._polling


def _is_refused(operation: Operation) -> bool:
    return operation.error is not None and sqlstate_of(operation.error) == "55P03"


def _is_in_vain(operation: Operation, released: frozenset[LockedKey]) -> bool:
    """Whether the move changed nothing for the others: refused a lock, or rolled back where no lock was held."""
    rolled_back = operation.statement is not None and operation.statement.kind == "ROLLBACK"
    return not released and (_is_refused(operation) or rolled_back)
