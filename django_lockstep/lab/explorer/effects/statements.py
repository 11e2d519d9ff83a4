"""What statements read, lock and write: the rows that they name, and what the server does along with a write."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlglot import exp

from django_lockstep.lab.explorer.effects.catalog import EVERY_COLUMN, Catalog, ForeignKey, TableFacts, UniqueIndex
from django_lockstep.lab.explorer.effects.footprints import FootprintKey, LockedKey, Mode
from django_lockstep.lab.explorer.effects.queries import Query, parameter

_OTHER_BASE = re.compile(r"\s*[+-]?0[xob]", re.IGNORECASE)
_NULL = -1
"""Stands for NULL where another operand has the number of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedKeys:
    """The unique keys of the one row that an INSERT adds, by their values: different keys neither wait nor fail.

    A key counts as a number that is equal for equal values. It may be equal for others, too, which costs schedules
    only. So values are compared without case and punctuation, and only where the index compares them as text, numbers
    or UUIDs.
    """

    table: str
    """The table's name."""
    parts: tuple[tuple[UniqueIndex, tuple[int, ...]], ...]
    """For each index the numbers of the parameters that are its columns' values, or `_NULL`."""

    def locks(self, params: Any) -> frozenset[LockedKey] | None:
        """Return the keys with these parameters; None if they are not certain."""
        arguments: Sequence[Any] = params if isinstance(params, list | tuple) else ()
        keys: set[LockedKey] = set()
        for index, numbers in self.parts:
            if any(number >= len(arguments) for number in numbers):
                return None
            values = [None if number == _NULL else arguments[number] for number in numbers]
            # Of these types alone, whose subclasses may be sent as something else; the server reads 0x10 as 16.
            types = {type(value) for value in values} - {type(None)}
            if not types <= {int, str, UUID} or any(_OTHER_BASE.match(str(value)) for value in values):
                return None
            if not (index.nulls_distinct and None in values):
                number = zlib.crc32("|".join(map(_normalized, values)).encode())
                keys.add(((f"{self.table}, index {index.name}", number), Mode.UNIQUE))
        return frozenset(keys)


def inserted_keys(query: Query, table: TableFacts) -> InsertedKeys | None:
    """Return the keys that an INSERT of one row into the table adds; None if they are not certain."""
    # A deferred constraint is checked, and waited for, at COMMIT. A trigger may set any key.
    if table.indexes is None or table.deferred or "INSERT" in table.triggers.guards:
        return None
    if query.on_conflict or not query.inserts_one_row:
        return None
    values = dict(query.inserted)
    parts = []
    for index in table.indexes:
        if not index.exact:
            return None
        if len(index.columns) == 1 and index.columns[0] in table.numbered - values.keys():
            continue  # a number of the sequence is never assigned twice
        numbers = _operands(index, values)
        if numbers is None or table.numbered.intersection(index.columns):
            return None
        parts.append((index, numbers))
    return InsertedKeys(table=table.name, parts=tuple(parts))


def _operands(index: UniqueIndex, values: Mapping[str, Any]) -> tuple[int, ...] | None:
    nodes = [values.get(column) for column in index.columns]
    numbers = [_NULL if isinstance(node, exp.Null) else parameter(node) for node in nodes]
    complete = tuple(number for number in numbers if number is not None)
    return complete if complete and len(complete) == len(numbers) else None


def _normalized(value: Any) -> str:
    """Return text that is equal for values that the server takes for equal, such as ``05`` and 5 as numbers."""
    letters = "".join(filter(str.isalnum, str(value).casefold()))
    return "NULL" if value is None else letters.lstrip("0")


Rows = frozenset[FootprintKey]
Locks = frozenset[LockedKey]
Key = Callable[[Any], int | None]
"""Returns the key that a value of the statement is; None if that is not certain."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a statement does, as far as its text and the catalog tell."""

    kind: str
    """SELECT, INSERT, UPDATE, DELETE, COMMIT, ROLLBACK, ROLLBACK TO, LOCAL or UNKNOWN."""
    reads: frozenset[FootprintKey] = frozenset()
    locks: frozenset[LockedKey] = frozenset()
    row_locks: frozenset[LockedKey] = frozenset()
    """Those of single rows that it holds for certain once it has returned or changed as many rows as these are."""
    writes: frozenset[FootprintKey] = frozenset()
    scanned: frozenset[str] = frozenset()
    """Tables of which it may look at other rows than those that it names."""
    entered: frozenset[str] = frozenset()
    """Tables to whose indexes it adds entries."""
    isolation: str | None = None
    """The isolation level that it chooses for the transaction."""
    read_only: bool = False
    """Whether it forbids the transaction to write."""
    key_conflicts: frozenset[LockedKey] = frozenset()
    """What else it waits for if its key exists already: transactions that change that row."""
    deferred: frozenset[LockedKey] = frozenset()
    """Locks that its checks may take once more at COMMIT."""
    reasons: frozenset[str] = frozenset()
    """Sentences on what in the schema makes the statement unknown."""
    keys: InsertedKeys | None = None
    """The unique keys that it adds, in place of any key of the table; None if they are not certain."""
    unordered: frozenset[str] = frozenset()
    """Tables of whose rows it takes several, in an order that the server chooses."""
    limit: int | None = None
    """The LIMIT of its rows; 0 if it is not known."""
    hidden: bool = False
    """Whether it may write tables that it does not name."""
    lookups: tuple[str, ...] = ()
    """The table of each row that it looks for by its key; of several keys in one condition the server may make one."""
    several_keys: bool = False
    """Whether a condition names several keys."""
    runs_code: bool = False
    """Whether functions of the database's own may run along with it, of which its text does not tell what they do."""
    one_row: bool = False
    """Whether it inserts one row."""
    guarded: bool = False
    """Whether a trigger may skip its rows, which are locked then."""
    changes_session: bool = False
    """Whether it changes what later statements mean: the role, the search path, the default isolation level."""

    @property
    def may_change(self) -> bool:
        """Whether it writes or locks, or may do so because it is not understood."""
        return self.kind == "UNKNOWN" or bool(self.writes or self.locks)

    @property
    def may_write_any(self) -> bool:
        """Whether it may write tables that it does not name."""
        return self.kind == "UNKNOWN" or self.hidden

    @cached_property
    def locks_only_rows(self) -> bool:
        """Whether it locks nothing but `row_locks`, and those rows that these refer to."""
        own = {table for table, _ in self.reads}
        # Locks that a subquery takes are taken in any case.
        return all(mode is Mode.KEY_SHARE and key[0] not in own for key, mode in self.locks - self.row_locks)

    @cached_property
    def only_row(self) -> FootprintKey | None:
        """The one row that it locks, besides those that this refers to; None if there are more, or it is not known."""
        rows = [key for key, _ in self.row_locks]
        return rows[0] if self.locks_only_rows and len(rows) == 1 and rows[0][1] is not None else None

    @cached_property
    def row_awaited(self) -> FootprintKey | None:
        """The row for which it may wait, as `only_row`; of an upsert, whose row may be new, any row of the table."""
        if self.only_row is None and self.kind == "INSERT":
            return next((key for key, mode in self.locks if mode is Mode.UPDATE), None)
        return self.only_row

    @cached_property
    def tables_read(self) -> frozenset[str] | None:
        """The tables of which it reads rows; None if that is not known."""
        return None if self.kind == "UNKNOWN" else frozenset(table for table, _ in self.reads)

    def sees_order(self, rows: int | None) -> bool:
        """Whether the order of those tables' rows matters to it, if it has returned or changed so many."""
        if not self.unordered:
            return False
        return rows is None or rows > 1 or (self.limit is not None and rows >= self.limit)

    @cached_property
    def rows(self) -> str:
        """The rows that it names, as text that is equal from run to run."""
        return str(sorted(map(str, self.reads | self.writes)))


UNKNOWN = Statement(kind="UNKNOWN")


_UNITED = ("reads", "locks", "writes", "scanned", "key_conflicts", "deferred", "unordered")
_ANY = ("hidden", "guarded", "runs_code", "several_keys")


def merge(kind: str, statements: Sequence[Statement]) -> Statement:
    """Return the union of statements that are sent as one; unknown if one of them is."""

    def values(name: str) -> list[Any]:
        return [getattr(statement, name) for statement in statements]

    if "UNKNOWN" in values("kind"):
        return replace(UNKNOWN, reasons=frozenset().union(*values("reasons")))
    united: dict[str, Any] = {name: frozenset().union(*values(name)) for name in _UNITED}
    united |= {name: any(values(name)) for name in _ANY}
    return Statement(
        kind=kind,
        **united,
        limit=min((limit for limit in values("limit") if limit is not None), default=None),
        lookups=tuple(table for lookups in values("lookups") for table in lookups),
    )


def insert(query: Query, table: TableFacts, *, rows: Rows, others: Rows, catalog: Catalog, key: Key) -> Statement:
    whole: FootprintKey = (table.name, None)
    assigned = query.inserted if query.inserts_one_row else ()
    parents = _parent_locks(table, table.foreign_keys, verb="INSERT", assigned=assigned, catalog=catalog, key=key)
    parts = [
        _adding_keys(table, catalog),
        # Its foreign keys lock the parents FOR KEY SHARE.
        Statement(kind="INSERT", reads=others, locks=parents, writes=frozenset({whole})),
    ]
    # ON CONFLICT also waits for and locks the existing row; DO UPDATE changes it.
    if query.on_conflict:
        parts.append(Statement(kind="INSERT", reads=frozenset({whole}), locks=frozenset({(whole, Mode.UPDATE)})))
    if query.on_conflict == "DO UPDATE":
        parts.append(update(query, table, rows=frozenset({whole}), others=others, catalog=catalog, key=key))
    merged = merge("INSERT", parts)
    return replace(merged, keys=inserted_keys(query, table), one_row=query.inserts_one_row)


def update(query: Query, table: TableFacts, *, rows: Rows, others: Rows, catalog: Catalog, key: Key) -> Statement:
    columns = {name or EVERY_COLUMN for name, _ in query.assigned} or {EVERY_COLUMN}
    # The server checks a foreign key only if its columns have changed, or if the same transaction has inserted the row,
    # which has locked the same row of the parent then.
    changed = [
        key for key in table.foreign_keys if EVERY_COLUMN in columns | {*key.columns} or columns & {*key.columns}
    ]
    parents = _parent_locks(table, changed, verb="UPDATE", assigned=query.assigned, catalog=catalog, key=key)
    # SET column = DEFAULT may take a number from a sequence that another statement takes one from as well.
    defaults = (word.name.upper() == "DEFAULT" for word in query.tree.find_all(exp.Var, exp.Column))
    if EVERY_COLUMN in columns or columns & table.unique or any(defaults):
        if columns & {EVERY_COLUMN, table.pk}:
            # From now on a key does not identify a row of this table, so the statement may be about any of them.
            catalog.note("rekeyed", {table.name})
            rows = frozenset({(table.name, None)})
        # The effects of an INSERT, too, and changes of other tables.
        added = replace(_adding_keys(table, catalog), reads=others)
        return merge("UPDATE", [added, _removing_keys(table, rows), Statement(kind="UPDATE", locks=parents)])
    # Other columns than keys: the weaker lock, which foreign keys of other tables do not conflict with.
    own = frozenset((key, Mode.NO_KEY_UPDATE) for key in rows)
    return Statement(
        kind="UPDATE",
        reads=rows | others,
        locks=own | parents,
        row_locks=own,
        writes=rows,
    )


def delete(query: Query, table: TableFacts, *, rows: Rows, others: Rows, catalog: Catalog, key: Key) -> Statement:
    return merge("DELETE", [_removing_keys(table, rows), Statement(kind="DELETE", reads=others)])


def writes_beyond(table: TableFacts) -> Statement:
    """Return what any change of a table's rows reads and locks: for what triggers and cascades do."""
    removed = _removing_keys(table, frozenset({(table.name, None)}))
    parents = frozenset(((name, None), Mode.KEY_SHARE) for name in table.parents)
    # The rows themselves are not looked for.
    return replace(removed, reads=_children(table), locks=removed.locks | parents, deferred=_deferred_locks(table))


def _adding_keys(table: TableFacts, catalog: Catalog) -> Statement:
    """Return what it takes to add a row to the table's indexes: locks of the whole, because its key is not known."""
    whole: FootprintKey = (table.name, None)
    # Numbers of sequences that several tables share are given in the order of the statements.
    sequences = table.sequences & catalog.shared_sequences
    return Statement(
        kind="INSERT",
        locks=frozenset({(whole, Mode.INSERT), (whole, Mode.UNIQUE)}).union(
            ((f"sequence {sequence}", None), Mode.UNIQUE) for sequence in sequences
        ),
        # Counts only for an INSERT that waits, or that fails because the key exists: before, it is not known whether
        # there is such a row. SHARE conflicts with every write of it.
        key_conflicts=frozenset({(whole, Mode.SHARE)}),
        deferred=_deferred_locks(table),
    )


def _removing_keys(table: TableFacts, rows: Rows) -> Statement:
    """Return what it takes to remove or change the keys of these rows."""
    children = _children(table)
    return Statement(
        kind="DELETE",
        reads=rows | children,
        # The strongest lock: it conflicts with FOR KEY SHARE of rows that refer to this one.
        locks=frozenset((key, Mode.UPDATE) for key in rows).union((key, Mode.KEY_SHARE) for key in children),
        writes=rows,
    )


def _children(table: TableFacts) -> Rows:
    """Return the rows in which the server looks for references to a key that is removed or changed."""
    return frozenset((name, None) for name in table.children)


def _parent_locks(
    table: TableFacts,
    foreign_keys: Iterable[ForeignKey],
    *,
    verb: str,
    assigned: Iterable[tuple[str, Any]],
    catalog: Catalog,
    key: Key,
) -> Locks:
    """Return the locks on the rows to which assigned values of columns refer; any row where they do not say which."""
    # A trigger may set another value than the statement says.
    values = {} if verb in table.triggers.guards else dict(assigned)
    locks = set()
    for reference in foreign_keys:
        node = values.get(reference.columns[0]) if reference.to_key and len(reference.columns) == 1 else None
        if isinstance(node, exp.Null):
            continue  # it refers to nothing
        row = None if node is None or reference.parent in catalog.noted("rekeyed") else key(node)
        locks.add(((reference.parent, row), Mode.KEY_SHARE))
    return frozenset(locks)


def _deferred_locks(table: TableFacts) -> frozenset[LockedKey]:
    """Return what deferred checks of unique keys may wait for at COMMIT."""
    whole: FootprintKey = (table.name, None)
    return frozenset({(whole, Mode.INSERT), (whole, Mode.UNIQUE), (whole, Mode.SHARE)} if table.deferred else ())
