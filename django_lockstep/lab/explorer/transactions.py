"""The open transaction of a session, as far as the dependence of its next steps needs it."""

from __future__ import annotations

from dataclasses import replace

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.catalog import Catalog
from django_lockstep.lab.explorer.effects import UNKNOWN, Statement
from django_lockstep.lab.explorer.footprints import (
    ADVISORY,
    LOCAL,
    OPAQUE,
    BlindInsert,
    Footprint,
    FootprintKey,
    LockedKey,
    Mode,
    collide,
    dependent,
)
from django_lockstep.lab.explorer.operations import Operation
from django_lockstep.lab.explorer.overlap import Overlap
from django_lockstep.lab.explorer.sql import parse_cached

__all__ = ["Transaction"]

_KEY_EXISTS = frozenset({"23505", "23P01"})
"""SQLSTATEs of statements whose key exists already."""

_ONE_SNAPSHOT = ("repeatable read", "serializable")
"""Levels at which the whole transaction sees the snapshot of its first statement."""


def _has_found_nothing(statement: Statement, operation: Operation) -> bool:
    """Whether it is an UPDATE without a matching row, which has only read: no trigger for rows, no foreign key."""
    is_update = statement.kind == "UPDATE" and bool(statement.row_locks)
    # Whoever has changed that has then written one of its rows, and what conflicts with its lock, with that write too.
    only_own = statement.reads <= {key for key, _ in statement.row_locks}
    return is_update and only_own and operation.rows == 0 and operation.error is None and statement.locks_only_rows


def _commits(statement: Statement, operation: Operation) -> bool:
    """Whether the step ends its transaction with a COMMIT, if it succeeds."""
    return statement.kind == "COMMIT" or (operation.autocommit and not operation.in_transaction)


def _is_value(lock: LockedKey) -> bool:
    key, mode = lock
    return mode is Mode.UNIQUE or key[0] == ADVISORY


class Transaction:
    """What the session's transaction has locked and written; call `footprint` after each of its steps."""

    def __init__(self, catalog: Catalog, overlap: Overlap) -> None:
        self._catalog = catalog
        self._overlap = overlap
        self._session_changed = False
        """Whether a statement has changed what names mean in this session."""
        self._reset()

    def _reset(self) -> None:
        self._locks: frozenset[LockedKey] = frozenset()
        self._deferred = LOCAL
        self._writes: frozenset[FootprintKey] = frozenset()
        self._read: frozenset[str] = frozenset()
        self._held: frozenset[FootprintKey] = frozenset()
        self._row_locks: dict[FootprintKey, Mode] = {}
        """Rows that are locked until the transaction ends, with the strength."""
        self._opaque = False
        self._level: str | None = None
        self._seen = False
        self._read_only = False
        self._nested = False
        self._failed = False

    def statement(self, operation: Operation) -> Statement:
        """Return the step's statement; `UNKNOWN` after a change of the session."""
        statement = parse_cached(operation, self._catalog)
        # These name no table, so that they mean the same under any search_path and role.
        names = statement.kind not in {"COMMIT", "ROLLBACK", "ROLLBACK TO", "LOCAL"}
        return UNKNOWN if self._session_changed and names else statement

    def begin(self, operation: Operation) -> None:
        """Note what a step is about to read; a step that waits has read it, too."""
        statement = self.statement(operation)
        # The server checks a foreign key with a SELECT ... FOR KEY SHARE of its own, which reads the parent too.
        parents = {key[0] for key, mode in statement.locks if mode is Mode.KEY_SHARE}
        self._read |= (statement.tables_read or frozenset()) | parents
        self._catalog.note_read(statement.tables_read)
        if statement.kind == "UNKNOWN":
            self._overlap.note_opaque()
        elif self._is_serializable(operation):
            self._overlap.note_reads(self, self._read)

    def _is_serializable(self, operation: Operation) -> bool:
        return (self._level or operation.isolation) == "serializable"

    def waiting(self, operation: Operation) -> Footprint:
        """Return the footprint of a step that has begun and now waits."""
        statement = self._with_keys(operation)
        touched = self._own(statement, operation) | Footprint(locks=statement.key_conflicts)
        # Before the others it would not have waited, but have published at once: its order with readers matters, and
        # the search asks for that order by the footprint that it sees here. The same is true of one that fails.
        if _commits(statement, operation) and not touched.opaque:
            touched = touched | Footprint(publishes=self._writes | statement.writes)
        return touched

    def meets(self, operation: Operation, touched: Footprint) -> bool:
        """Whether the step that is next, or waits, names a key that these do, or may release one.

        Those are unique keys and advisory locks, which are known by values that each run may make anew.
        """
        wanted, held = (frozenset(filter(_is_value, each)) for each in (self.waiting(operation).locks, self._locks))
        return bool(wanted | held) and dependent(Footprint(locks=wanted, releases=held), touched)

    @property
    def holds_locks(self) -> bool:
        """Whether the open transaction seems to hold a lock."""
        return bool(self._locks)

    def holds_against(self, wanted: frozenset[LockedKey]) -> bool:
        """Whether the open transaction seems to hold a lock that conflicts with these."""
        return bool(wanted) and collide(self._locks, wanted)

    def footprint(self, operation: Operation, *, waited: bool = False) -> Footprint:
        """Return the footprint of a step that ended, with what the end of its transaction published and released.

        ``waited``: it did not end at once.
        """
        statement = self._with_keys(operation)
        if not waited and _has_found_nothing(statement, operation):
            # So is a write that compares a version and comes too late: it locks nothing and publishes nothing. After a
            # wait the row stays locked, even if it no longer matches (EvalPlanQual in the server's execMain.c).
            statement = replace(statement, locks=frozenset(), row_locks=frozenset(), writes=frozenset())
        touched = LOCAL if self._failed else self._own(statement, operation)
        # The statement found the key of another transaction, which must have been committed before.
        if operation.error is not None and sqlstate_of(operation.error) in _KEY_EXISTS:
            touched = touched | Footprint(locks=statement.key_conflicts)
            # A sequence has given a number that was there already: who gets which number matters.
            if statement.keys is not None and not statement.keys.has_index(operation.constraint):
                self._catalog.note_read({statement.keys.table})
        # A blind INSERT commutes with most steps, which saves nearly all orders of it.
        if touched.serializable and (insert := self._blind_insert(statement, operation)):
            touched = replace(touched, serializable=False, blind=frozenset({insert}))
        if operation.refused and not waited:
            # The end of its transaction releases only what was taken before.
            touched = replace(touched, tried=touched.locks, locks=frozenset())
            statement = replace(statement, locks=frozenset())
        self._note(statement, operation)
        ended = operation.ends_idle or statement.kind == "ROLLBACK TO" or operation.error is not None
        if ended and not self._failed:
            touched = touched | self._end(statement, operation)
        # Without savepoints a failed statement has ended the transaction; the later ROLLBACK releases nothing.
        self._failed = self._failed or (operation.error is not None and not self._nested)
        if operation.ends_idle:
            self._reset()
        return touched

    def _blind_insert(self, statement: Statement, operation: Operation) -> BlindInsert | None:
        """Return the step's blind INSERT, if it is one; see `django_lockstep.lab.explorer.overlap`."""
        only_inserts = statement.kind == "INSERT" and not (statement.reads or operation.error or operation.ends_idle)
        if not (only_inserts and self._writes) or self._nested or self._opaque:
            return None  # rows updated before ROLLBACK TO SAVEPOINT are no longer held
        target = frozenset(table for table, _ in statement.writes)
        insert = BlindInsert(target=target, watched=self._read, held=self._held)
        return insert if self._overlap.allows(insert, session=self) else None

    def _with_keys(self, operation: Operation) -> Statement:
        """Return the step's statement, of an INSERT with the unique keys that it adds instead of any key."""
        statement = self.statement(operation)
        keys = statement.keys
        found = None if keys is None or operation.many else keys.locks(operation.params)
        if keys is None or found is None:
            return statement
        # Rows that others read are found in the order in which they were inserted, and have numbers in that order.
        self._catalog.note_filled(keys.table)
        if keys.table in self._catalog.ordered:
            return statement
        return replace(statement, locks=statement.locks - {keys.every_key} | found)

    def _own(self, statement: Statement, operation: Operation) -> Footprint:
        if statement.kind == "LOCAL":
            return LOCAL
        if statement.kind == "UNKNOWN" or (statement.kind == "COMMIT" and self._opaque):
            return OPAQUE
        # SET TRANSACTION and the first statement have fixed the level; what the session's default is now no longer
        # matters.
        level = self._level or operation.isolation
        first = not self._seen and statement.kind not in {"COMMIT", "ROLLBACK", "ROLLBACK TO"}
        deferred = self._deferred if statement.kind == "COMMIT" else LOCAL
        only_reads = statement.kind == "SELECT" and not statement.locks and self._has_only_read(operation)
        return Footprint(
            reads=statement.reads | deferred.reads,
            locks=frozenset(filter(self._is_new, statement.locks | deferred.locks)),
            snapshot=level in _ONE_SNAPSHOT and first,
            serializable=self._is_serializable(operation) and not only_reads,
            serializable_read=self._is_serializable(operation) and only_reads,
        )

    def _is_new(self, lock: LockedKey) -> bool:
        """Whether the transaction may not hold the lock yet: nobody can notice that it takes it once more."""
        key, mode = lock
        # What is not understood may have ended the transaction, and begun another one.
        return self._opaque or mode in (Mode.INSERT, Mode.UNIQUE) or mode > self._row_locks.get(key, -1)

    def _has_only_read(self, operation: Operation) -> bool:
        """Whether the transaction may write, but has not; a read-only one may get a safe snapshot instead."""
        touched = self._locks or self._writes or self._opaque
        return not (touched or self._read_only or operation.read_only)

    def _deferred_checks(self, statement: Statement) -> Footprint:
        """Return what deferred constraints read and lock at COMMIT, which the statement lists as well."""
        # Django declares foreign keys DEFERRABLE INITIALLY DEFERRED: the server checks them, and waits for the parents'
        # rows, at COMMIT.
        if not (statement.locks or statement.deferred):
            return LOCAL
        keys = {lock for lock in statement.locks if lock[1] is Mode.KEY_SHARE}
        # Whether rows are left that refer to a removed one is also a matter of what is visible.
        looked_for = {key for key, _ in keys} & statement.reads if statement.kind in {"UPDATE", "DELETE"} else set()
        return Footprint(reads=frozenset(looked_for), locks=statement.deferred | keys)

    def _note(self, statement: Statement, operation: Operation) -> None:
        self._locks |= statement.locks
        self._deferred = self._deferred | self._deferred_checks(statement)
        self._session_changed = self._session_changed or statement.changes_session
        self._writes |= statement.writes
        # Only if every named row was changed is it certain that this transaction holds them.
        if statement.kind == "UPDATE" and operation.rows == len(statement.writes):
            self._held |= {key for key in statement.writes if key[1] is not None}
        self._opaque = self._opaque or statement.kind == "UNKNOWN"
        if operation.rows == len(statement.row_locks):
            self._note_row_locks(statement)
        # The level is fixed by the statement that begins the transaction.
        self._level = self._level or (operation.isolation if operation.in_transaction is False else None)
        if statement.isolation:
            self._level = statement.isolation
        self._read_only = self._read_only or statement.read_only
        self._nested = self._nested or operation.template.upper().startswith("SAVEPOINT")
        self._seen = self._seen or statement.kind not in {"LOCAL", "COMMIT", "ROLLBACK"}

    def _note_row_locks(self, statement: Statement) -> None:
        if self._nested:
            return  # ROLLBACK TO SAVEPOINT may release them
        for key, mode in statement.row_locks:
            if key[1] is not None:
                self._row_locks[key] = max(mode, self._row_locks.get(key, mode))

    def _end(self, statement: Statement, operation: Operation) -> Footprint:
        if self._opaque:
            return OPAQUE
        committed = operation.error is None and statement.kind not in {"ROLLBACK", "ROLLBACK TO"}
        if committed and self._is_serializable(operation):
            # After the commit other transactions may be doomed by what this one has written.
            self._overlap.note_commit(self, self._writes)
        # One that has failed would have published before the others; see `waiting`.
        publishes = committed or _commits(statement, operation)
        # ROLLBACK TO SAVEPOINT releases only what was locked since the savepoint, which is not told apart here. A
        # dependence too many costs a schedule, one too few a verdict.
        return Footprint(publishes=self._writes if publishes else frozenset(), releases=self._locks)
