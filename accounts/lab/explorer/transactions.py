"""The open transaction of a session, as far as the dependence of its next steps needs it."""

from __future__ import annotations

from accounts.lab.explorer.catalog import Catalog
from accounts.lab.explorer.footprints import LOCAL, OPAQUE, Footprint, Key, Lock, Mode
from accounts.lab.explorer.operations import Operation
from accounts.lab.explorer.sql import Statement, understood

__all__ = ["Transaction"]

_ONE_SNAPSHOT = ("repeatable read", "serializable")
"""Levels at which the whole transaction sees what was committed before its first statement."""


class Transaction:
    """Knows what the session's transaction has locked and written; call `footprint` after each of its steps."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._forget()

    def _forget(self) -> None:
        self._locks: frozenset[Lock] = frozenset()
        self._writes: frozenset[Key] = frozenset()
        self._opaque = False
        self._level: str | None = None
        self._seen = False

    def statement(self, operation: Operation) -> Statement:
        """Return what the step's text says."""
        return understood(operation, self._catalog)

    def waiting(self, operation: Operation) -> Footprint:
        """Return what a step touches that has begun and now waits."""
        return self._own(self.statement(operation), operation)

    def footprint(self, operation: Operation) -> Footprint:
        """Return what the ended step touched, with what its transaction's end made visible and gave up."""
        statement = self.statement(operation)
        touched = self._own(statement, operation)
        self._note(statement, operation)
        ended = operation.ends_idle or statement.kind == "ROLLBACK TO" or operation.error is not None
        if ended:
            touched = touched | self._end(statement, operation)
        if operation.ends_idle:
            self._forget()
        return touched

    def _own(self, statement: Statement, operation: Operation) -> Footprint:
        if statement.kind == "UNKNOWN":
            return OPAQUE
        if statement.kind == "LOCAL":
            return LOCAL
        level = self._level or operation.isolation
        first = not self._seen and statement.kind not in {"COMMIT", "ROLLBACK", "ROLLBACK TO"}
        late = self._late_locks() if statement.kind == "COMMIT" else frozenset()
        return Footprint(
            reads=statement.reads,
            locks=statement.locks | late,
            snapshot=level in _ONE_SNAPSHOT and first,
            serializable=level == "serializable",
        )

    def _late_locks(self) -> frozenset[Lock]:
        """Return what deferred foreign keys lock at COMMIT; the statements listed it already."""
        return frozenset(lock for lock in self._locks if lock[1] is Mode.KEY_SHARE)

    def _note(self, statement: Statement, operation: Operation) -> None:
        self._locks |= statement.locks
        self._writes |= statement.writes
        self._opaque = self._opaque or statement.kind == "UNKNOWN"
        self._level = self._level or (operation.isolation if operation.in_transaction is False else None)
        if statement.isolation:
            self._level = statement.isolation
        self._seen = self._seen or statement.kind not in {"LOCAL", "COMMIT", "ROLLBACK"}

    def _end(self, statement: Statement, operation: Operation) -> Footprint:
        if self._opaque:
            return OPAQUE
        committed = operation.error is None and statement.kind not in {"ROLLBACK", "ROLLBACK TO"}
        return Footprint(publishes=self._writes if committed else frozenset(), releases=self._locks)
