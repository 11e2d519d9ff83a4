"""Which transactions of one run overlap, to know which SERIALIZABLE ones may be refused, and who has come too late.

PostgreSQL dooms a transaction N, to be refused (40001) at its next statement, only as the pivot of two read-write
conflicts F -> N -> Z whose Z was the first to commit: N read what Z wrote, and F read what N wrote (D. Ports,
K. Grittner, "Serializable Snapshot Isolation in PostgreSQL", VLDB 2012; ``OnConflict_CheckForSerializationFailure`` and
``PreCommit_CheckForSerializationFailure`` in the server's predicate.c). Which of two steps was first says only which of
them notes a conflict; it matters where one of them may complete such a structure. These are called dangerous here:

- a step of N after the COMMIT of Z, if N has written, or writes by it; so is N's end;
- the COMMIT of Z, if N has written: who of the others has ended by then counts no more as F.

Their order counts with every other step of a SERIALIZABLE transaction. Of other steps the order matters in two cases. A
COMMIT, and a step of an N that has written, where N may be in danger from then on. And a read and a write of the same
table, if the server locks pages for what was read and the write adds entries to an index, or if it locks all of the
table: a later write there is a conflict, although a read after the write would not be one. Such reads and writes are
written as of a row without a key; those of single rows are a read by the primary key alone, of so few rows that the
server does not lock their page instead, and an UPDATE of columns without an index, on the same page (a heap-only
tuple).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.footprints import Change, Footprint, FootprintKey, any_same_row

__all__ = ["Commit", "Overlap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a transaction that has committed did."""

    read: frozenset[FootprintKey]
    """As in `SerializableAccess`."""
    written: frozenset[FootprintKey]
    """As in `SerializableAccess`: rows that it may have changed, and tables to whose indexes it has added entries."""
    changed: frozenset[FootprintKey]
    """Those that it has changed for certain."""
    serializable: bool


class Overlap:
    """Notes the commits of a run, and who has written; ``session`` is any key of the session."""

    def __init__(self) -> None:
        self._commits: list[Commit] = []
        self._writers: dict[object, frozenset[FootprintKey]] = {}
        """What open SERIALIZABLE transactions have read which have written, or may have."""
        self._opaque = False

    @property
    def now(self) -> int:
        """How many transactions have committed: a point of time, for the arguments called ``since``."""
        return len(self._commits)

    def note_writer(self, session: object, read: frozenset[FootprintKey]) -> None:
        """Note that a SERIALIZABLE transaction may have written, and what it has read."""
        self._writers[session] = read

    def note_end(self, session: object) -> None:
        """Note that the session's transaction has ended, or has failed."""
        self._writers.pop(session, None)

    def note_commit(self, commit: Commit) -> None:
        """Note what a transaction has read, and what it now publishes."""
        self._commits.append(commit)

    def next_changes(self, rows: Iterable[FootprintKey]) -> frozenset[Change]:
        """Return the changes of the rows of a transaction that would commit now."""
        return frozenset((row, self._changes(row, until=self.now) + 1) for row in rows)

    def _changes(self, row: FootprintKey, *, until: int) -> int:
        return sum(row in each.changed for each in self._commits[:until])

    def note_opaque(self) -> None:
        """Note that a step was not understood, so that anything may have been read and published."""
        self._opaque = True

    def may_doom(self, read: frozenset[FootprintKey], *, since: int, until: int | None = None) -> bool:
        """Whether a SERIALIZABLE transaction that has read this has a conflict out to one that committed."""
        overlapping = self._commits[since:until]
        return self._opaque or any(each.serializable and any_same_row(each.written, read) for each in overlapping)

    def has_pivot(self, session: object, written: frozenset[FootprintKey], *, since: int) -> bool:
        """Whether some writer that has overlapped the session's transaction since then may have read what it wrote."""
        # Those that have committed meanwhile count as well: if the COMMIT came before theirs, its order would matter to
        # more steps than it seems to here.
        ended = [each.read for each in self._commits[since:] if each.serializable and each.written]
        still_open = [read for other, read in self._writers.items() if other is not session]
        return self._opaque or any(any_same_row(written, read) for read in (*ended, *still_open))

    def first_change(self, row: FootprintKey, *, since: int, serializable: bool) -> tuple[int, Change] | None:
        """Return when the row was first changed, and that change; None if it may have been before.

        ``serializable``: only a SERIALIZABLE transaction counts.
        """
        for number, commit in enumerate(self._commits[since:], since):
            if row in commit.changed and (commit.serializable or not serializable):
                return number, (row, self._changes(row, until=number + 1))
            if row in commit.written or (row[0], None) in commit.written:
                return None
        return None

    @staticmethod
    def refuses_by_chance(ending: Footprint, woken: Iterable[Footprint]) -> bool:
        """Whether the server alone decides if a waiter that a transaction's end wakes is refused.

        The server releases row locks a moment before it notes that a transaction was rolled back, or has written
        nothing. A quick waiter may still count it as one of the transactions that make the waiter a pivot.
        """
        ends_without_writing = ending.accesses and ending.releases and not ending.publishes
        return bool(ends_without_writing) and any(waiter.dangerous for waiter in woken)
