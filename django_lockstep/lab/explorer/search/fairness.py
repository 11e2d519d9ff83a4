"""Fairness: actors that must yield because they would be refused, or get the same answer, again.

A lock that another transaction holds is refused until that ends. Code that gives up after some attempts is left alone.
What has been refused without end must be a loop that tries until it gets the lock: after two refusals it does not ask
again before an unlock, among three and more actors after one: there the next lock refuses it a second time. Two actors
that hold what the other one needs may still refuse each other in turn, as long as each one gives up its lock in
between; so one that has been refused a lock very often waits for a move that releases it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django_lockstep.lab.explorer.effects.footprints import LOCAL, Footprint, dependent
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.errors import RestartSearch

_TIMES = 3
"""How often a loop that polls sends the same query before it must yield."""
_REFUSALS = 2
"""How often a loop that tries again without end is refused before it must wait for an unlock, in a race of two."""
_MOST_REFUSALS = 50
"""How often an actor is refused one lock in all before it has to wait for its release."""
_IS_POLLING = 25
"""How often a query is repeated while no other actor moves, or refused while no lock is released, by what must be such
a loop: other code repeats some too, and gives up before."""

Question = tuple[str, tuple[str, ...]]


class FairScheduler:
    """Keeps loops from having endless schedules: an actor that is refused twice or polls yields to the others.

    After M. Musuvathi, S. Qadeer, "Fair stateless model checking", PLDI 2008. ``polling`` holds the statements of
    loops that poll or try again without end, over all runs.
    """

    def __init__(self, polling: set[str] | None = None, *, actors: int = 2) -> None:
        self._polling = set() if polling is None else polling
        self._most = _REFUSALS if actors == 2 else 1
        self._refused: dict[tuple[int, Question], tuple[Footprint, int]] = {}
        """The locks that an actor was refused, and how often since one of them was released."""
        self._asked: dict[int, Counter[Question]] = {}
        self._yielding: set[int] = set()
        self._refusals: Counter[tuple[int, Footprint]] = Counter()
        self._parked: dict[int, Footprint] = {}
        """The locks that actors were refused too often."""

    def enabled(self, ready: Mapping[int, Operation]) -> set[int]:
        """Return which of the actors, each with its next step, may move; all of them if all would have to yield."""
        able = ready.keys() - self._parked.keys() or set(ready)
        resting = self._yielding | {i for i in able if self._would_be_refused(i, ready[i])}
        return (able - resting) or set(able)

    def note(self, actor: int, operation: Operation, *, tried: Footprint = LOCAL, released: Footprint = LOCAL) -> bool:
        """Note what the actor did, and return whether it must yield until another one does what it waits for.

        ``tried``: that its statement tries to take locks; ``released``: that its move has released some, or anything.
        Raises `RestartSearch` when a loop is found to poll, or to try again without end.
        """
        # The move changed nothing for the others: refused a lock, or rolled back where no lock was held.
        rolled_back = operation.statement is not None and operation.statement.kind == "ROLLBACK"
        in_vain = not released and (operation.refused or rolled_back)
        self._park(actor, tried=tried if operation.refused else LOCAL, released=released)
        # Another actor has moved: one that yielded to it may now get another answer. Not if that one was only refused a
        # lock itself: two that need the lock of a third one would wake each other for ever.
        if not in_vain:
            self._yielding &= {actor}
            self._asked = {actor: self._asked.get(actor, Counter())}
        for (index, question), (refused, _) in [*self._refused.items()]:
            if index != actor and (dependent(released, refused) if refused else not in_vain):
                del self._refused[index, question]
        if operation.refused:
            self._asked.pop(actor, None)
            # NOWAIT and lock_timeout: it is refused as long as the lock is held.
            key = actor, _question(operation)
            tried, times = self._refused.get(key, (tried, 0))
            self._refused[key] = tried, times + 1
            self._find_loop(operation.template, times + 1)
            return self._would_be_refused(actor, operation)
        again = self._polls(actor, operation)
        if again:
            self._yielding.add(actor)
        return again

    def _park(self, actor: int, *, tried: Footprint, released: Footprint) -> None:
        for index, refused in [*self._parked.items()]:
            if dependent(released, refused):
                del self._parked[index]
                self._refusals[index, refused] = 0
        if tried:
            self._refusals[actor, tried] += 1
            if self._refusals[actor, tried] >= _MOST_REFUSALS:
                self._parked[actor] = tried

    def _would_be_refused(self, actor: int, operation: Operation) -> bool:
        _, times = self._refused.get((actor, _question(operation)), (LOCAL, 0))
        return times >= self._most and operation.template in self._polling

    def _find_loop(self, template: str, times: int) -> None:
        if times >= _IS_POLLING and template not in self._polling:
            self._polling.add(template)
            raise RestartSearch

    def _polls(self, actor: int, operation: Operation) -> bool:
        counts, statement = self._asked.setdefault(actor, Counter()), operation.statement
        if statement is None or statement.kind in {"LOCAL", "COMMIT", "ROLLBACK", "ROLLBACK TO"}:
            return False
        if operation.error is not None or statement.kind == "UNKNOWN" or (statement.writes and operation.rows != 0):
            counts.clear()
            return False
        # No other actor has moved, and this one has changed nothing: the answer is the same.
        question = _question(operation)
        counts[question] += 1
        self._find_loop(operation.template, counts[question])
        return counts[question] >= _TIMES and operation.template in self._polling


def _question(operation: Operation) -> Question:
    return operation.template, operation.arguments
