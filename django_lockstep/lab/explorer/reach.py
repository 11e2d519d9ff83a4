"""What transactions at one snapshot come to between their first statement and their last.

At REPEATABLE READ and SERIALIZABLE a transaction sees what was committed before its first statement, which so depends
on the commits of all rows that the transaction comes to later. Which these are nobody knows by then, and in other
schedules they may be others. So a search takes those that the runs before have shown, and starts over when a run shows
more.

This misses nothing. Let each actor stop before its first step that goes beyond what is known: of that program it is
true, so that the search runs every order of dependent steps. If none of its runs has come to such a step, then that
program is this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from django_lockstep.lab.explorer.conflict_graph import ConflictGraph, Transactions
from django_lockstep.lab.explorer.footprints import EVERYTHING, FootprintKey

__all__ = ["Reach", "ReachFact"]

ReachFact = tuple[int, str, FootprintKey]
"""The first of the actors with one function, "sees" or "writes", and a row."""
_MOST_KEYS = 8
"""Of more rows of a table than this all rows count, because each new one has the search start over."""


class Reach:
    """Notes what transactions have come to; actors with one function count as one, because each may do what one did."""

    def __init__(self) -> None:
        self.originals: Sequence[int] = (0,)
        """For each actor the first one with the same function."""
        self._rows: dict[tuple[int, str], frozenset[FootprintKey]] = {}
        self._graph: tuple[Sequence[int], ConflictGraph] | None = None

    @property
    def facts(self) -> frozenset[ReachFact]:
        """What runs have shown."""
        return frozenset((*who, row) for who, rows in self._rows.items() for row in rows)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def learn(self, fact: ReachFact) -> None:
        """Take over a fact that was learned elsewhere."""
        actor, what, row = fact
        self._rows[actor, what] = self._rows.get((actor, what), frozenset()) | {row}
        self._graph = None

    def forget(self) -> None:
        """Forget what runs have shown."""
        self._rows.clear()
        self._graph = None

    def note_unknown(self, actor: int) -> None:
        """Note that the actor's transactions may see and write anything, so that no more is to be learned."""
        self.note_seen(actor, {EVERYTHING})
        self.note_written(actor, {EVERYTHING})

    def note_seen(self, actor: int, rows: Collection[FootprintKey]) -> None:
        """Note rows of which it matters to the actor's transaction whether their changes are in its snapshot.

        `EVERYTHING` if that matters of every row, also of those that it does not come to.
        """
        self._note((self.originals[actor], "sees"), rows)

    def note_written(self, actor: int, rows: Collection[FootprintKey]) -> None:
        """Note rows that the actor's transaction writes, as in `Access`."""
        self._note((self.originals[actor], "writes"), rows)

    def seen_by(self, actor: int) -> frozenset[FootprintKey]:
        """Return the rows noted by `note_seen`."""
        return self._rows.get((self.originals[actor], "sees"), frozenset())

    def written_by(self, actor: int) -> frozenset[FootprintKey]:
        """Return the rows noted by `note_written`."""
        return self._rows.get((self.originals[actor], "writes"), frozenset())

    @property
    def graph(self) -> ConflictGraph:
        """The actors' transactions as far as they may have conflicts."""
        if self._graph is None or self._graph[0] != self.originals:
            actors = range(len(self.originals))
            graph = ConflictGraph([Transactions(self.seen_by(actor), self.written_by(actor)) for actor in actors])
            self._graph = self.originals, graph
        return self._graph[1]

    def _note(self, who: tuple[int, str], rows: Collection[FootprintKey]) -> None:
        known = self._rows.get(who, frozenset())
        unknown = EVERYTHING in self._rows.get((who[0], "writes"), ())
        if unknown or known.issuperset(rows):
            return
        new = {row for row in rows if (row[0], None) not in known}
        counts = Counter(table for table, _ in known | new)
        new |= {(table, None) for table, count in counts.items() if count > _MOST_KEYS}
        self._rows[who] = known | new
        self._graph = None
