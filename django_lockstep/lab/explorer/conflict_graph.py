"""Who may have a read-write conflict with whom at SERIALIZABLE, to know which steps decide together who is refused.

The server refuses a transaction for a path F -> N -> Z of two conflicts; see `django_lockstep.lab.explorer.overlap`. A
step that reads or writes adds conflicts of its own transaction, and looks at the paths of which these are a part: so
the order of two such steps matters only if one adds a conflict with the other's transaction, or dooms an N that is the
F of another path. A COMMIT looks at the paths that lead to its transaction, and a failure takes those of its own away.
What each actor's transactions read and write is known from `Reach`, so that the graph is the same in all schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django_lockstep.lab.explorer.footprints import EVERYTHING, End, FootprintKey, Place, any_same_row

__all__ = ["ConflictGraph", "Transactions"]

Rows = frozenset[FootprintKey]


@dataclass(frozen=True, slots=True)
class Transactions:
    """What the SERIALIZABLE transactions of an actor come to, as in `Reach`."""

    seen: Rows
    written: Rows

    def may_conflict(self, read: Rows, written: Rows) -> bool:
        """Whether there may be a conflict, in either direction, with one that reads and writes these rows."""
        unknown = EVERYTHING in self.written or EVERYTHING in written
        return unknown or any_same_row(read, self.written) or any_same_row(written, self.seen)


class ConflictGraph:
    """The actors, linked where there may be a conflict between their transactions."""

    def __init__(self, actors: Sequence[Transactions]) -> None:
        self._actors = actors
        self._linked = [self._near(number, one.seen, one.written) for number, one in enumerate(actors)]
        self._places: dict[tuple[object, ...], Place] = {}

    def place(self, actor: int, read: Rows, written: Rows, *, end: End | None) -> Place:
        """Return the place of a step that reads and writes these rows."""
        key = (actor, read, written, end)
        if key not in self._places:
            near = self._near(actor, read, written)
            linked = self._linked[actor]
            self._places[key] = Place(
                actor=actor,
                near=near,
                linked=linked,
                linked_twice=self._linked_to(linked),
                # One that it dooms is between its own transaction and one that has committed, and a third one is saved.
                saves=self._linked_to(other for other in near - {actor} if len(self._linked[other]) > 3),
                end=end,
            )
        return self._places[key]

    def _near(self, actor: int, read: Rows, written: Rows) -> frozenset[int]:
        others = (number for number, other in enumerate(self._actors) if other.may_conflict(read, written))
        return frozenset({actor, *others})

    def _linked_to(self, actors: Iterable[int]) -> frozenset[int]:
        return frozenset().union(*(self._linked[actor] for actor in actors))
