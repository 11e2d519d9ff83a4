"""The open transaction of a session, as far as the dependence of its next steps needs it."""

from __future__ import annotations

from dataclasses import replace

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.catalog import Catalog
from django_lockstep.lab.explorer.effects import UNKNOWN, Statement
from django_lockstep.lab.explorer.footprints import LOCAL, OPAQUE, BlindInsert, Footprint, Key, Lock, Mode, collide
from django_lockstep.lab.explorer.operations import Operation
from django_lockstep.lab.explorer.overlap import Overlap
from django_lockstep.lab.explorer.sql import parse_cached

__all__ = ["Transaction"]

_MET = frozenset({"23505", "23P01"})
"""What whoever meets a key is refused with that is there already."""

_ONE_SNAPSHOT = ("repeatable read", "serializable")
"""Levels at which the whole transaction sees what was committed before its first statement."""


class Transaction:
    """Knows what the session's transaction has locked and written; call `footprint` after each of its steps."""

    def __init__(self, catalog: Catalog, overlap: Overlap) -> None:
        self._catalog = catalog
        self._overlap = overlap
        self._session_changed = False
        """Whether a statement changed what names mean in this session, until it is closed."""
        self._forget()

    def _forget(self) -> None:
        self._locks: frozenset[Lock] = frozenset()
        self._late = LOCAL
        self._writes: frozenset[Key] = frozenset()
        self._read: frozenset[str] = frozenset()
        self._held: frozenset[Key] = frozenset()
        self._opaque = False
        self._level: str | None = None
        self._seen = False
        self._read_only = False
        self._nested = False
        self._failed = False

    def statement(self, operation: Operation) -> Statement:
        """Return what the step's text says."""
        statement = parse_cached(operation, self._catalog)
        names = statement.kind not in {"COMMIT", "ROLLBACK", "ROLLBACK TO", "LOCAL"}
        return UNKNOWN if self._session_changed and names else statement

    def begin(self, operation: Operation) -> None:
        """Note what a step is about to read, which it has read, too, when it waits."""
        statement = self.statement(operation)
        parents = {key[0] for key, mode in statement.locks if mode is Mode.KEY_SHARE}
        self._read |= {table for table, _ in statement.reads} | parents
        if statement.kind == "UNKNOWN":
            self._overlap.note_opaque()
        elif self._is_serializable(operation):
            self._overlap.note_reads(self, self._read)

    def _is_serializable(self, operation: Operation) -> bool:
        return (self._level or operation.isolation) == "serializable"

    def waiting(self, operation: Operation) -> Footprint:
        """Return what a step touches that has begun and now waits."""
        statement = self.statement(operation)
        return self._own(statement, operation) | Footprint(locks=statement.key_conflicts)

    def holds_against(self, wanted: frozenset[Lock]) -> bool:
        """Whether the open transaction seems to hold a lock that conflicts with these."""
        return bool(wanted) and collide(self._locks, wanted)

    def footprint(self, operation: Operation) -> Footprint:
        """Return what the ended step touched, with what its transaction's end made visible and gave up."""
        statement = self.statement(operation)
        touched = LOCAL if self._failed else self._own(statement, operation)
        if operation.error is not None and sqlstate_of(operation.error) in _MET:
            touched = touched | Footprint(locks=statement.key_conflicts)
        if touched.serializable and (insert := self._blind_insert(statement, operation)):
            touched = replace(touched, serializable=False, blind=frozenset({insert}))
        self._note(statement, operation)
        ended = operation.ends_idle or statement.kind == "ROLLBACK TO" or operation.error is not None
        if ended and not self._failed:
            touched = touched | self._end(statement, operation)
        # Without savepoints a failed statement has ended the transaction; the ROLLBACK to come gives nothing up.
        self._failed = self._failed or (operation.error is not None and not self._nested)
        if operation.ends_idle:
            self._forget()
        return touched

    def _blind_insert(self, statement: Statement, operation: Operation) -> BlindInsert | None:
        """Return what the step inserts blindly, if so; see `django_lockstep.lab.explorer.overlap`."""
        only_inserts = statement.kind == "INSERT" and not (statement.reads or operation.error or operation.ends_idle)
        if not (only_inserts and self._writes) or self._nested or self._opaque:
            return None  # what was updated before ROLLBACK TO SAVEPOINT is held no longer
        target = frozenset(table for table, _ in statement.writes)
        insert = BlindInsert(target=target, watched=self._read, held=self._held)
        return insert if self._overlap.allows(insert, session=self) else None

    def _own(self, statement: Statement, operation: Operation) -> Footprint:
        if statement.kind == "LOCAL":
            return LOCAL
        if statement.kind == "UNKNOWN" or (statement.kind == "COMMIT" and self._opaque):
            return OPAQUE
        level = self._level or operation.isolation
        first = not self._seen and statement.kind not in {"COMMIT", "ROLLBACK", "ROLLBACK TO"}
        late = self._late if statement.kind == "COMMIT" else LOCAL
        only_reads = statement.kind == "SELECT" and not statement.locks and self._has_only_read(operation)
        return Footprint(
            reads=statement.reads | late.reads,
            locks=statement.locks | late.locks,
            snapshot=level in _ONE_SNAPSHOT and first,
            serializable=self._is_serializable(operation) and not only_reads,
            serializable_read=self._is_serializable(operation) and only_reads,
        )

    def _has_only_read(self, operation: Operation) -> bool:
        """Whether it may write, but has not. One that may not is given a safe snapshot if no writer is about."""
        touched = self._locks or self._writes or self._opaque
        return not (touched or self._read_only or operation.read_only)

    def _checked_late(self, statement: Statement) -> Footprint:
        """Return what deferred constraints look for and lock at COMMIT; the statement listed it already."""
        keys = {lock for lock in statement.locks if lock[1] is Mode.KEY_SHARE}
        # Whether rows are left that refer to one that is gone is not only a matter of locks.
        looked_for = {key for key, _ in keys} & statement.reads if statement.kind in {"UPDATE", "DELETE"} else set()
        return Footprint(reads=frozenset(looked_for), locks=statement.deferred | keys)

    def _note(self, statement: Statement, operation: Operation) -> None:
        self._locks |= statement.locks
        self._late = self._late | self._checked_late(statement)
        self._session_changed = self._session_changed or statement.changes_session
        self._writes |= statement.writes
        if statement.kind == "UPDATE" and operation.rows == len(statement.writes):
            self._held |= {key for key in statement.writes if key[1] is not None}
        self._opaque = self._opaque or statement.kind == "UNKNOWN"
        self._level = self._level or (operation.isolation if operation.in_transaction is False else None)
        if statement.isolation:
            self._level = statement.isolation
        self._read_only = self._read_only or statement.read_only
        self._nested = self._nested or operation.template.upper().startswith("SAVEPOINT")
        self._seen = self._seen or statement.kind not in {"LOCAL", "COMMIT", "ROLLBACK"}

    def _end(self, statement: Statement, operation: Operation) -> Footprint:
        if self._opaque:
            return OPAQUE
        committed = operation.error is None and statement.kind not in {"ROLLBACK", "ROLLBACK TO"}
        if committed and self._is_serializable(operation):
            self._overlap.note_commit(self, self._writes)
        return Footprint(publishes=self._writes if committed else frozenset(), releases=self._locks)
