"""The open transaction of a session, as far as the dependence of its next steps needs it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.counted import facts_beyond
from django_lockstep.lab.explorer.effects.footprints import (
    ANY,
    LOCAL,
    OPAQUE,
    Event,
    Footprint,
    FootprintKey,
    LockedKey,
    Mode,
    lock,
    touch,
)
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.serializable import Commits, PredicateLocks
from django_lockstep.lab.explorer.effects.sql import parse_cached
from django_lockstep.lab.explorer.effects.statements import UNKNOWN, Statement
from django_lockstep.lab.explorer.errors import NotExplorable

_KEY_EXISTS = frozenset({"23505", "23P01"})
"""SQLSTATEs of statements whose key exists already."""
_OF_ROWS = (Mode.SHARE, Mode.NO_KEY_UPDATE, Mode.UPDATE)
"""Locks of rows that are there and that others may wait for."""
_OUTSIDE = frozenset({"LOCAL", "COMMIT", "ROLLBACK", "ROLLBACK TO"})
"""Kinds of statements that name no table and take no snapshot."""
_NOT_CHECKED = _OUTSIDE | {"UNKNOWN"}
_ONE_SNAPSHOT = ("repeatable read", "serializable")
"""Levels at which the whole transaction sees the snapshot of its first statement."""


def _has_found_nothing(statement: Statement, operation: Operation) -> bool:
    """Whether it is an UPDATE without a matching row, which has only read: no trigger for rows, no foreign key."""
    is_update = statement.kind == "UPDATE" and bool(statement.row_locks)
    # A matching row can only appear through a write, and every such write conflicts with this lock.
    only_own = statement.reads <= {key for key, _ in statement.row_locks}
    return is_update and only_own and operation.rows == 0 and operation.error is None and statement.locks_only_rows


def _commits(statement: Statement, operation: Operation) -> bool:
    """Whether the step ends its transaction with a COMMIT, if it succeeds."""
    return statement.kind == "COMMIT" or (operation.autocommit and not operation.in_transaction)


def _without_effect(statement: Statement) -> Statement:
    """Return the statement as one that has locked and written no row."""
    return replace(statement, locks=frozenset(), row_locks=frozenset(), writes=frozenset())


class Transaction:
    """What the session's transaction has locked and written; call `footprint` after each of its steps."""

    def __init__(self, catalog: Catalog, commits: Commits) -> None:
        self._catalog = catalog
        self._commits = commits
        self._session_changed = False
        """Whether a statement has changed what names mean in this session."""
        self._unchecked: list[Operation] = []
        """Statements that have failed, before it is known what they did."""
        self._reset()

    def _reset(self) -> None:
        self._locks: frozenset[LockedKey] = frozenset()
        self._deferred_reads: frozenset[FootprintKey] = frozenset()
        self._deferred_locks: frozenset[LockedKey] = frozenset()
        self._locked_rows: frozenset[FootprintKey] = frozenset()
        self._writes: frozenset[FootprintKey] = frozenset()
        self._predicate_locks = PredicateLocks(self._commits, most_row_locks=self._catalog.most_row_locks)
        self._row_locks: dict[FootprintKey, Mode] = {}
        """Rows that are locked until the transaction ends, with the strength."""
        self._opaque = False
        self._level: str | None = None
        self._seen = self._read_only = self._nested = self._failed = False

    def statement(self, operation: Operation) -> Statement:
        """Return the step's statement; `UNKNOWN` after a change of the session."""
        statement = parse_cached(operation, self._catalog)
        # These name no table, so that they mean the same under any search_path and role.
        return UNKNOWN if self._session_changed and statement.kind not in _OUTSIDE else statement

    def begin(self, operation: Operation) -> None:
        """Note what a step is about to read; a step that waits has read it, too."""
        statement = self.statement(operation)
        runs_code = statement.may_write_any or statement.runs_code
        operation.may_catch = self._catalog.functions.catch and runs_code
        self._predicate_locks.begin(statement, is_first=self._is_first(statement))
        self._catalog.note("read", statement.tables_read)

    def _is_first(self, statement: Statement) -> bool:
        return not self._seen and statement.kind not in _OUTSIDE

    def at_one_snapshot(self, operation: Operation) -> bool:
        """Whether the transaction, which the step may begin, sees what was committed before its first statement."""
        # SET TRANSACTION and the first statement have fixed the level; what the session's default is now no longer
        # matters.
        return (self._level or operation.isolation) in _ONE_SNAPSHOT

    def _is_serializable(self, operation: Operation) -> bool:
        return (self._level or operation.isolation) == "serializable"

    def waiting(self, operation: Operation) -> Footprint:
        """Return the footprint of a step that has begun and now waits."""
        statement = self._with_keys(operation)
        touched = self._own(statement, operation) | lock("lock", statement.key_conflicts)
        # Before the others it would not have waited, but have published at once: its order with readers matters, and
        # the search asks for that order by the footprint that it sees here. The same is true of one that fails.
        if _commits(statement, operation):
            touched |= touch("publish", self._writes | statement.writes)
        return touched

    def footprint(self, operation: Operation, *, waited: bool = False) -> Footprint:
        """Return the footprint of a step that ended, with what the end of its transaction published and released.

        ``waited``: it did not end at once.
        """
        self._check(operation)
        statement = self._with_keys(operation)
        self._note_order(statement, operation)
        if _has_found_nothing(statement, operation):
            # So is a write that compares a version and comes too late: it locks nothing and publishes nothing.
            # After a wait the row stays locked, even if it no longer matches (EvalPlanQual in the server's execMain.c).
            # An UPDATE that commits by itself would have published its change before the others.
            # A trigger that skips the row has it locked, too, so that the transaction has a number.
            skipped = statement.guarded and (operation.counts is None or operation.counts.has_id)
            if not (waited or skipped):
                statement = _without_effect(statement)
            elif not _commits(statement, operation):
                statement = replace(statement, writes=frozenset())
        touched, statement = (LOCAL, statement) if self._failed else self._done(statement, operation, waited=waited)
        self._note(statement, operation)
        ended = operation.ends_idle or statement.kind == "ROLLBACK TO" or operation.error is not None
        if ended and not self._failed:
            touched |= self._end(statement, operation)
        # Without savepoints a failed statement has ended the transaction; the later ROLLBACK releases nothing.
        self._failed = self._failed or (operation.error is not None and not self._nested)
        if operation.ends_idle:
            self._reset()
        return touched

    def _check(self, operation: Operation) -> None:
        """Learn what the server counted beyond the statements: the search begins again with it.

        Raises `NotExplorable` for a write of a table that could not be saved before.
        """
        counts, ended = operation.counts, operation.ends_idle
        is_checked = self.statement(operation).kind not in _NOT_CHECKED and not operation.was_not_run
        if is_checked and (counts or operation.error):
            self._unchecked.append(operation)
        # After a failure it is known what all have done together that could not be asked before.
        for sent, counted in ((sent, counts) for sent in self._unchecked if counts is not None):
            statement = self.statement(sent)
            for what, name in facts_beyond(statement, counted, catalog=self._catalog):
                if what == "writes" and not statement.hidden and name not in {table for table, _ in statement.writes}:
                    raise NotExplorable(
                        f"A statement writes table {name} by no trigger and no reference: its rows are not saved"
                    )
                # Entries in indexes matter to predicate locks alone.
                if what != "entries" or self._is_serializable(sent):
                    self._learn(sent, what, name)
        if counts is None and is_checked and (operation.uncounted or (ended and operation.error is not None)):
            self._learn(operation, "anything", "what could not be counted")
        if counts is not None or ended:
            self._unchecked.clear()

    def _note_order(self, statement: Statement, operation: Operation) -> None:
        """Note whose rows the step has taken in the server's order, and placed anew."""
        self._catalog.note("changed", (table for table, _ in statement.writes if statement.kind != "DELETE"))
        locked = {key for key, mode in statement.locks if mode in _OF_ROWS and operation.rows != 0}
        if statement.sees_order(operation.rows):
            self._catalog.note("taken", statement.unordered)
            operation.unordered_locks = statement.unordered & {table for table, _ in locked}
        if locked:
            self._locked_rows |= locked
            counts = Counter(table for table, _ in self._locked_rows)
            several = {table for table, count in counts.items() if count > 1}
            operation.several_locks = operation.unordered_locks | several

    def _learn(self, sent: Operation, what: str, name: str) -> None:
        # What FETCH reads was fixed by the statement that declared the cursor.
        for template in {sent.template, sent.template.removeprefix("FETCH ")}:
            self._catalog.learn(what, name, template)

    def _done(self, statement: Statement, operation: Operation, *, waited: bool) -> tuple[Footprint, Statement]:
        """Return what the step touched, and the statement without what it has not done."""
        touched = self._own(statement, operation)
        # The statement found the key of another transaction, which must have been committed before.
        if operation.error is not None and sqlstate_of(operation.error) in _KEY_EXISTS:
            touched |= lock("lock", statement.key_conflicts)
            # A sequence has given a number that was there already: who gets which number matters.
            if statement.keys and operation.constraint not in {index.name for index, _ in statement.keys.parts}:
                self._catalog.note("read", {statement.keys.table})
        if operation.refused and not waited:
            # The end of its transaction releases only what was taken before.
            tried = (event._replace(action="try") if event.action == "lock" else event for event in touched)
            return frozenset(tried), replace(statement, locks=frozenset())
        alone = not (self._has_written or self._nested or _commits(statement, operation))
        if operation.found_row_changed and alone and statement.only_row is not None:
            # Refused the one row that it wanted because of what was committed before: at one snapshot it is so in every
            # order, and it has no part in any conflict.
            touched = self._own(statement, operation, found_changed=frozenset({statement.only_row}))
            return touched - lock("lock", statement.row_locks), _without_effect(statement)
        return touched, statement

    def _with_keys(self, operation: Operation) -> Statement:
        """Return the step's statement, of an INSERT with the unique keys that it adds instead of any key."""
        statement = self.statement(operation)
        keys = statement.keys
        unique_locks = None if keys is None or operation.many else keys.locks(operation.params)
        if keys is None or unique_locks is None:
            return statement
        # Rows that others read are found in the order in which they were inserted, and have numbers in that order.
        self._catalog.note("filled", {keys.table})
        if keys.table in self._catalog.noted("ordered") | self._catalog.noted("unordered"):
            return statement
        any_key = (keys.table, None), Mode.UNIQUE
        return replace(statement, locks=statement.locks - {any_key} | unique_locks)

    def _own(
        self, statement: Statement, operation: Operation, *, found_changed: frozenset[FootprintKey] = frozenset()
    ) -> Footprint:
        if statement.kind == "LOCAL":
            return LOCAL
        if statement.kind == "UNKNOWN" or (statement.kind == "COMMIT" and self._opaque):
            return OPAQUE
        reads, locks, checked = statement.reads, statement.locks, frozenset[LockedKey]()
        if statement.kind == "COMMIT":
            checked = self._deferred_locks
            reads, locks = reads | self._deferred_reads, locks | checked
        # The order in which it places rows, of tables in which that is seen.
        placed = {table for table, _ in statement.writes if statement.kind != "DELETE"}
        order = (((table, None), Mode.ORDER) for table in placed & self._catalog.noted("unordered"))
        touched = touch("read", reads) | lock("lock", [*filter(self._is_new, locks), *order])
        if self._is_first(statement) and self.at_one_snapshot(operation):
            touched |= {Event("take snapshot", ANY)}
        if not self._is_serializable(operation):
            return touched
        # As a whole, even if it found nothing or failed: elsewhere among the others it might not.
        whole, commits = self.statement(operation), _commits(statement, operation)
        return touched | self._predicate_locks.events(
            whole,
            checked=checked,
            has_written=self._has_written or whole.may_change,
            commits=commits,
            ends=commits or statement.kind == "ROLLBACK" or operation.error is not None,
            exposed=self._opaque or self._read_only or operation.read_only,
            found_changed=found_changed,
        )

    @property
    def _has_written(self) -> bool:
        return bool(self._locks or self._writes or self._opaque)

    def _is_new(self, lock: LockedKey) -> bool:
        """Whether the transaction may not hold the lock yet: nobody can notice that it takes it once more."""
        key, mode = lock
        # What is not understood may have ended the transaction, and begun another one.
        return self._opaque or mode in (Mode.INSERT, Mode.UNIQUE) or mode > self._row_locks.get(key, -1)

    def _note_deferred(self, statement: Statement) -> None:
        """Note what deferred constraints read and lock at COMMIT, which the statement lists as well."""
        # Django declares foreign keys DEFERRABLE INITIALLY DEFERRED: the server checks them, and waits for the parents'
        # rows, at COMMIT.
        keys = {key: (key, mode) for key, mode in statement.locks if mode is Mode.KEY_SHARE}
        self._deferred_locks |= statement.deferred.union(keys.values())
        # Whether rows are left that refer to a removed one is also a matter of what is visible.
        if statement.kind in {"UPDATE", "DELETE"}:
            self._deferred_reads |= keys.keys() & statement.reads

    def _note(self, statement: Statement, operation: Operation) -> None:
        self._locks |= statement.locks
        self._writes |= statement.writes
        self._predicate_locks.note(statement)
        self._note_deferred(statement)
        self._session_changed = self._session_changed or statement.changes_session
        self._opaque = self._opaque or statement.kind == "UNKNOWN"
        # ROLLBACK TO SAVEPOINT may release what was locked since.
        if operation.rows == len(statement.row_locks) and not self._nested:
            for key, mode in statement.row_locks:
                if key[1] is not None:
                    self._row_locks[key] = max(mode, self._row_locks.get(key, mode))
        # The level is fixed by the statement that begins the transaction.
        self._level = self._level or (operation.isolation if operation.in_transaction is False else None)
        if statement.isolation:
            self._level = statement.isolation
        self._read_only = self._read_only or statement.read_only
        self._nested = self._nested or operation.template.upper().startswith("SAVEPOINT")
        self._seen = self._seen or statement.kind not in _OUTSIDE

    def _end(self, statement: Statement, operation: Operation) -> Footprint:
        if self._opaque:
            return OPAQUE
        committed = operation.error is None and statement.kind not in {"ROLLBACK", "ROLLBACK TO"}
        # One that has failed would have published before the others; see `waiting`.
        publishes = self._writes if committed or _commits(statement, operation) else frozenset()
        if committed and publishes and self._is_serializable(operation):
            self._predicate_locks.commit()
        # ROLLBACK TO SAVEPOINT releases only what was locked since the savepoint, which is not told apart here. A
        # dependence too many costs a schedule, one too few a verdict.
        return touch("publish", publishes) | lock("release", self._locks)
