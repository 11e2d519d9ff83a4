"""SERIALIZABLE: what the steps of such transactions mean to each other, beside their locks.

The server refuses a transaction N (40001) as the pivot of two read-write conflicts, F -> N -> Z, whose Z was the first
to commit: N has read what Z wrote, and F what N wrote (D. Ports, K. Grittner, "Serializable Snapshot Isolation in
PostgreSQL", VLDB 2012). A conflict on a single row is noted in both orders. A row without a key stands for more of its
table than that: for what the server locks by pages or as a whole, and for what adds entries to indexes, which meet the
locks of earlier reads alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.effects.footprints import (
    ANY,
    Footprint,
    FootprintKey,
    LockedKey,
    Mode,
    same_row,
    touch,
)
from django_lockstep.lab.explorer.effects.statements import Statement

_Rows = frozenset[FootprintKey]


@dataclass(slots=True)
class Commits:
    """The COMMITs of a run at SERIALIZABLE."""

    written: list[_Rows] = field(default_factory=list)
    """What each transaction has written, in the order of the COMMITs."""
    may_be_any: bool = False
    """Whether a step was not understood, which may have committed anything."""


class PredicateLocks:
    """What one transaction has read and written, as SERIALIZABLE notes it.

    ``most_row_locks`` is how many rows of a table the server locks singly, before it locks pages, or all.
    """

    def __init__(self, commits: Commits, *, most_row_locks: int) -> None:
        self._commits = commits
        self._most_row_locks = most_row_locks
        self._read: _Rows = frozenset()
        """Before the server locks pages instead of rows."""
        self._written: _Rows = frozenset()
        self._since = 0
        """How many COMMITs there were when its snapshot was taken."""

    def begin(self, statement: Statement, *, is_first: bool) -> None:
        """Note what a step is about to read."""
        if is_first:
            self._since = len(self._commits.written)
        self._read |= _rows_read(statement)
        self._commits.may_be_any |= statement.kind == "UNKNOWN"

    def events(
        self,
        statement: Statement,
        *,
        checked: Iterable[LockedKey],
        has_written: bool,
        commits: bool,
        ends: bool,
        exposed: bool,
        found_changed: _Rows = frozenset(),
    ) -> Footprint:
        """Return what a step does at SERIALIZABLE; ``checked`` are the parents' locks of deferred constraints.

        Without a write (``has_written``) the transaction is no pivot. One that ``ends`` counts no more as F if it is
        rolled back. ``exposed``: it is not understood; or it is READ ONLY, and asks whether others have ended. Of rows
        that it has ``found_changed`` it was refused the lock, and has no part in a conflict.
        """
        writes = _with_entries(statement)
        at_risk: Iterable[FootprintKey] = {ANY} if ends else self._locked(self._read) if has_written else ()
        touched = (
            touch("ssi step", {ANY})
            | touch("ssi read", self._locked(_rows_read(statement).union(_parents(checked))))
            | touch("ssi write", writes)
            | touch("ssi has read", at_risk)
            | touch("ssi commit", self._written | writes if commits else ())
        )
        in_danger = exposed or (has_written and self._is_in_danger(self._read - found_changed))
        return touched | touch("ssi danger", {ANY} if in_danger else ())

    def note(self, statement: Statement) -> None:
        """Note what a step has written."""
        self._written |= _with_entries(statement)

    def commit(self) -> None:
        """Note that the transaction has been committed."""
        self._commits.written.append(self._written)

    def _is_in_danger(self, read: _Rows) -> bool:
        """Whether something was committed of what it has read, since its snapshot was taken."""
        rows, later = self._locked(read), itertools.chain.from_iterable(self._commits.written[self._since :])
        return self._commits.may_be_any or any(same_row(row, mine) for row in later for mine in rows)

    def _locked(self, rows: _Rows) -> _Rows:
        """Return the rows as the server locks them: a page, or more, in place of more than so many rows of it."""
        counts = Counter(table for table, _ in self._read)
        return frozenset((table, key if counts[table] <= self._most_row_locks else None) for table, key in rows)


def _rows_read(statement: Statement) -> _Rows:
    """Return what the server comes across when it looks for the statement's rows, and for those they refer to."""
    return frozenset((table, None if table in statement.scanned else key) for table, key in statement.reads).union(
        _parents(statement.locks)
    )


def _parents(locks: Iterable[LockedKey]) -> Iterator[FootprintKey]:
    # The server checks a foreign key with a SELECT ... FOR KEY SHARE of its own, which reads the parent too.
    return (key for key, mode in locks if mode is Mode.KEY_SHARE)


def _with_entries(statement: Statement) -> _Rows:
    """Return what the statement writes, of a table without a key if it adds entries to its indexes."""
    return frozenset((table, None if table in statement.entered else key) for table, key in statement.writes)
