"""Who has to let somebody else go first, because he would only be refused the same lock again."""

from __future__ import annotations

from collections.abc import Iterable

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.operations import Operation

__all__ = ["Rests"]


class Rests:
    """Keeps loops around NOWAIT from having endless schedules: an actor refused twice rests until another moves.

    After M. Musuvathi, S. Qadeer, "Fair stateless model checking", PLDI 2008.
    """

    def __init__(self) -> None:
        self._refused: dict[int, str] = {}
        self._resting: set[int] = set()

    def able(self, ready: Iterable[int]) -> set[int]:
        """Return who of those at a gate may move; everybody where all of them rest."""
        return (set(ready) - self._resting) or set(ready)

    def note(self, actor: int, operation: Operation) -> bool:
        """Note what the actor did, and return whether he rests from now on."""
        self._resting &= {actor}
        self._refused = {other: sql for other, sql in self._refused.items() if other == actor}
        if operation.error is None or sqlstate_of(operation.error) != "55P03":
            return False
        again = self._refused.get(actor) == operation.template
        self._refused[actor] = operation.template
        if again:
            self._resting.add(actor)
        return again
