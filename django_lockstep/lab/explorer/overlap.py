"""What SERIALIZABLE transactions of one run have read and published, to know which of them may be refused.

PostgreSQL dooms a transaction W, to be refused (40001) at its next statement, only as the pivot of two read-write
conflicts F -> W -> T whose T has begun to commit, so that W read what T wrote (D. Ports, K. Grittner, "Serializable
Snapshot Isolation in PostgreSQL", VLDB 2012; ``OnConflict_CheckForSerializationFailure`` and
``PreCommit_CheckForSerializationFailure`` in the server's predicate.c). T has not written a row that W has written: of
two such writers one waits, and fails when the other one commits. So as long as no other transaction publishes anything
in the tables that W read, W is not doomed, whatever reads its writes. Tables, not rows, because the server may remember
a read as a page of an index.

An INSERT after another write, into a table that no other transaction reads, adds no conflict. So its place among the
steps of others does not matter while its transaction cannot be doomed: such an INSERT is called blind here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django_lockstep.lab.explorer.footprints import BlindInsert, Footprint, FootprintKey

__all__ = ["Overlap"]


class Overlap:
    """Notes reads and commits of a run's SERIALIZABLE transactions; ``session`` is any key of the session."""

    def __init__(self) -> None:
        self._read: dict[object, set[str]] = {}
        self._published: dict[object, set[FootprintKey]] = {}
        self._opaque = False

    def note_reads(self, session: object, tables: Iterable[str]) -> None:
        """Note the tables that a step reads."""
        self._read.setdefault(session, set()).update(tables)

    def note_commit(self, session: object, keys: Iterable[FootprintKey]) -> None:
        """Note the rows that a commit publishes."""
        self._published.setdefault(session, set()).update(keys)

    def note_opaque(self) -> None:
        """Note that a step was not understood, so that anything may have been read and published."""
        self._opaque = True

    def allows(self, insert: BlindInsert, *, session: object) -> bool:
        """Whether so far no other session has read the target, or published what may doom the transaction."""
        read = frozenset((table, None) for other, tables in self._read.items() if other != session for table in tables)
        published = frozenset(key for other, keys in self._published.items() if other != session for key in keys)
        return not self._opaque and not insert.may_conflict(Footprint(reads=read, publishes=published))

    def refuses_by_chance(self, ending: Footprint, woken: Mapping[Any, Footprint]) -> bool:
        """Whether the server alone decides if a waiter that a transaction's end wakes is refused.

        The server releases row locks a moment before it notes that a transaction was rolled back, or has written
        nothing. A quick waiter may still count it as one of the transactions that make the waiter a pivot.
        """
        ends_without_writing = ending.serializable and ending.releases and not ending.publishes
        return bool(ends_without_writing) and any(
            waiter.serializable and any(keys for other, keys in self._published.items() if other != session)
            for session, waiter in woken.items()
        )
