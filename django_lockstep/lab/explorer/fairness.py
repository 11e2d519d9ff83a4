"""Fairness: actors that must yield because they would be refused, or get the same answer, again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.errors import RestartSearch
from django_lockstep.lab.explorer.operations import ASLEEP, Operation

__all__ = ["FairScheduler"]

_TIMES = 3
"""How often a loop that polls sends the same query before it must yield."""
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

    def enabled(self, ready: Iterable[int]) -> set[int]:
        """Return which of the actors at a gate may move; all of them if all would have to yield."""
        return (set(ready) - self._yielding) or set(ready)

    def note(self, actor: int, operation: Operation) -> bool:
        """Note what the actor did, and return whether it must yield until another one moves.

        Raises `RestartSearch` when a loop is found to poll.
        """
        # Another actor has moved: one that yielded to it may now get another answer.
        self._yielding &= {actor}
        self._refused = {other: sql for other, sql in self._refused.items() if other == actor}
        self._asked = {actor: self._asked.get(actor, Counter())}
        again = self._is_refused_again(actor, operation) or self._polls(actor, operation)
        again = again or operation.sql.startswith(ASLEEP)
        if again:
            self._yielding.add(actor)
        return again

    def _is_refused_again(self, actor: int, operation: Operation) -> bool:
        # NOWAIT and lock_timeout: as long as nobody else moves, the lock is not released either.
        if operation.error is None or sqlstate_of(operation.error) != "55P03":
            return False
        again = self._refused.get(actor) == operation.template
        self._refused[actor] = operation.template
        return again

    def _polls(self, actor: int, operation: Operation) -> bool:
        asked, statement = self._asked[actor], operation.statement
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
