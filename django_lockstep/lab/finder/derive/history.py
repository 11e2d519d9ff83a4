"""One unit's statements as the kinds of candidates look at them: rows read, locked, made, and what guards a read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from django_lockstep.lab.explorer.effects.statement_text import StatementText, Value, read_statement
from django_lockstep.lab.finder.record.recording import RecordedStatement, RowRead, Table, Unit

Row = tuple[str, str]
"""A table, and the fingerprint of a key."""
_SNAPSHOT = frozenset({"repeatable read", "serializable"})


@dataclass(frozen=True, eq=False)
class UnitStep:
    """A statement of a unit: its place there, and what its text says."""

    place: int
    statement: RecordedStatement
    template: StatementText

    def values(self, value: Value) -> tuple[str, ...]:
        """Return the fingerprints that the value stands for; empty where that is not known."""
        if value.literal:
            return (value.literal,)
        params = self.statement.params
        fingerprints = [params[number] for number in value.params if number < len(params)]
        # Of a list, those of its elements.
        elements = (text[1:-1].split("|") if text.startswith("[") else [text] for text in fingerprints)
        return tuple(chain.from_iterable(elements))

    def value_for(self, key: str, value: Value) -> Value:
        """Return the value that the row of this key gets."""
        params = self.statement.params
        chosen = (result for of_key, result in value.cases if params[of_key] == key)
        return Value(params=(number,)) if (number := next(chosen, None)) is not None else value

    @cached_property
    def sees_many(self) -> bool:
        """Whether it looks at more than a single row; what is read of one and then written is of `row_races`."""
        looks_at_all = self.template.looks in {"aggregate", "exists"}
        return self.template.is_select and (looks_at_all or (self.statement.rows or 0) > 1)

    @property
    def unlocks(self) -> bool:
        """Whether it releases an advisory lock."""
        match = self.template.advisory
        return match is not None and match["verb"].lower() == "unlock"

    def equals(self, table: str) -> dict[str, frozenset[str]]:
        """Return what the conditions compare the table's columns with."""
        comparisons = [comparison for comparison in self.template.equalities if comparison.table == table]
        return {comparison.column: frozenset(self.values(comparison.value)) for comparison in comparisons}


@dataclass(frozen=True, slots=True)
class _Lock:
    place: int
    transaction: int | None
    rows: frozenset[Row] = frozenset()
    table: str = ""
    """The whole table, where it is locked."""
    is_advisory: bool = False
    of_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hit:
    """A candidate as one unit shows it."""

    kind: str
    table: str
    columns: frozenset[str] = frozenset()
    unit: Unit
    read: UnitStep
    write: UnitStep
    rank: int
    sentence: str
    """With ``{name}`` for the names of the table or the columns, ``{be}`` for is or are, ``{read}`` and ``{write}``
    for the sites, ``{partner}`` for the other unit."""
    partners: tuple[Unit, ...] = ()


class History:
    """A unit with its statements parsed."""

    def __init__(self, unit: Unit, tables: Mapping[str, Table]) -> None:
        self.unit = unit
        self.tables = tables
        self._changed: dict[int, frozenset[Row]] = {}
        self.steps = [
            UnitStep(place, statement, read_statement(statement.sql)) for place, statement in enumerate(unit.statements)
        ]

    def hit(self, kind: str, sentence: str, *, write: UnitStep, column: str = "", **fields: Any) -> Hit:
        """Return a candidate of this unit, on the table of the write unless ``fields`` name another one."""
        place = {"table": write.template.table, "columns": frozenset(filter(None, [column]))}
        return Hit(kind=kind, sentence=sentence, unit=self.unit, write=write, **{**place, **fields})

    def table(self, name: str) -> Table:
        return self.tables.get(name) or Table(name=name)

    def writes(self, *verbs: str) -> Iterator[UnitStep]:
        """Yield the statements of these verbs that changed something other than a session."""
        return (
            step
            for step in self.steps
            if step.template.verb in verbs
            and step.statement.rows != 0
            # By its columns: projects have session models of their own.
            and not self.table(step.template.table).types.keys() >= {"session_key", "session_data"}
        )

    def looks_before(self, write: UnitStep) -> Iterator[UnitStep]:
        """Yield the SELECTs before a write, on its database.

        Of one that a transaction sends again, and that finds as much, the first, which least guards.
        """
        before = (step for step in self._looks if step.place < write.place)
        return (step for step in before if step.statement.alias == write.statement.alias)

    @cached_property
    def _looks(self) -> Collection[UnitStep]:
        first: dict[tuple[Any, ...], UnitStep] = {}
        for step in self.steps:
            if step.template.is_select:
                sent = step.statement
                first.setdefault((sent.sql, sent.params, sent.rows, sent.transaction, sent.alias), step)
        return first.values()

    def key_of(self, step: UnitStep, row: RowRead) -> str:
        """Return the row's key, also where only the condition names it."""
        if row.key:
            return row.key
        named = self.named_keys(step, row.table)
        # Of several keys that were asked for, it is not known which one this row has.
        return next(iter(named)) if len(named) == 1 else ""

    def named_keys(self, step: UnitStep, table: str) -> frozenset[str]:
        """Return the keys of the table's rows that the condition names; none where a key has several columns."""
        key = self.table(table).key
        return step.equals(table).get(key[0], frozenset()) if len(key) == 1 else frozenset()

    def changed_rows(self, step: UnitStep) -> frozenset[Row]:
        """Return the rows that an UPDATE or DELETE names, by their keys or by values that were read before."""
        if step.place not in self._changed:
            self._changed[step.place] = self._find_changed(step)
        return self._changed[step.place]

    def _find_changed(self, step: UnitStep) -> frozenset[Row]:
        table = step.template.table
        if keys := self.named_keys(step, table):
            return frozenset((table, key) for key in keys)
        # Without a key in the condition: the rows read before that have the values asked for, as far as they are known.
        equals = step.equals(table)
        return frozenset(
            (table, key)
            for earlier in self.steps[: step.place]
            for row in earlier.statement.read
            if row.table == table
            and (columns := equals.keys() & row.values.keys())
            and all(row.values[column] in equals[column] for column in columns)
            and (key := self.key_of(earlier, row))
        )

    @cached_property
    def inserted_rows(self) -> frozenset[Row]:
        """The rows that the unit inserted: nobody else can know them yet."""
        return frozenset(
            (row.table, row.key)
            for step in self.writes("INSERT")
            for row in step.statement.read
            # An upsert may return a row that was there.
            if not step.template.upsert
        )

    @cached_property
    def locks(self) -> list[_Lock]:
        """The locks that its statements took, in their order."""
        return [lock for step in self.steps for lock in self._locks_of(step)]

    def _locks_of(self, step: UnitStep) -> Iterator[_Lock]:
        template, transaction = step.template, step.statement.transaction
        if (match := template.advisory) and match["verb"].lower() == "lock":
            yield _Lock(step.place, transaction, is_advisory=True, of_session=not match["of_transaction"])
        if template.verb == "LOCK":
            yield from (_Lock(step.place, transaction, table=table) for table in template.locked)
        elif rows := self.locked_rows(step):
            yield _Lock(step.place, transaction, rows)

    def locked_rows(self, step: UnitStep) -> frozenset[Row]:
        """Return the rows that the statement locked, as far as they are known."""
        template = step.template
        if template.verb in {"UPDATE", "DELETE"} and step.statement.rows != 0:
            return self.changed_rows(step)
        # ON CONFLICT DO UPDATE locks the row that is there.
        if template.verb == "INSERT" and template.upsert:
            return frozenset((row.table, row.key) for row in step.statement.read if row.key)
        # A locking SELECT need not return the key that its condition names.
        returned = {(row.table, self.key_of(step, row)) for row in step.statement.read if row.table in template.locked}
        named = {(table, key) for table in template.locked for key in self.named_keys(step, table)}
        return frozenset(row for row in returned | named if row[1])

    def references(self, step: UnitStep, table: str) -> frozenset[Row]:
        """Return the rows of other tables that the conditions, or the inserted values, refer to."""
        return frozenset().union(*self.parents(step, table))

    def parents(self, step: UnitStep, table: str) -> list[frozenset[Row]]:
        """Return the same by column: all rows that match the conditions refer to rows of each of these sets."""
        values = step.equals(table)
        if step.template.verb == "INSERT":
            values = {name: frozenset(step.values(value)) for name, value in step.template.assignments.items()}
        keys = self.table(table).foreign_keys
        return [frozenset((key.parent, value) for value in values.get(key.columns[0], ())) for key in keys]

    def row_references(self, row: RowRead) -> list[frozenset[Row]]:
        """Return each row that a row refers to."""
        keys = self.table(row.table).foreign_keys
        return [frozenset({(key.parent, row.values[key.columns[0]])}) for key in keys if key.columns[0] in row.values]

    def is_guarded(self, read: UnitStep, write: UnitStep, *groups: Collection[Row]) -> bool:
        """Whether all rows of a group are locked from before the read until the write is committed.

        A group has the rows that another transaction has to lock as well. Any advisory lock is taken to be meant so.
        """
        # The read may itself be the statement that locks.
        held = [lock for lock in self.locks if lock.place <= read.place and self._is_held(lock, write)]
        rows = {row for lock in held for row in lock.rows}
        tables = {lock.table for lock in held}
        is_covered = (group and all(row in rows or row[0] in tables for row in group) for group in groups)
        return any(lock.is_advisory for lock in held) or any(is_covered)

    def _is_held(self, lock: _Lock, write: UnitStep) -> bool:
        """Whether the lock is still held when the write is committed."""
        if not lock.of_session:
            return _same_transaction(lock.transaction, write)
        # The first release behind it may be its own, however the key is written.
        step = next((step for step in self.steps[lock.place :] if step.unlocks), None)
        return step is None or (step.place > write.place and not _same_transaction(step.statement.transaction, write))

    @staticmethod
    def has_snapshot(read: UnitStep, write: UnitStep, *levels: str) -> bool:
        """Whether both are in one transaction of such a level, or any that refuses to write over a newer version."""
        same = _same_transaction(read.statement.transaction, write)
        return same and write.statement.isolation in (levels or _SNAPSHOT)


def _same_transaction(transaction: int | None, write: UnitStep) -> bool:
    return transaction is not None and transaction == write.statement.transaction
