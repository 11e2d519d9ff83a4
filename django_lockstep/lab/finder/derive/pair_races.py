"""Candidates that take two transactions which do different things: write skew, and locks in opposite orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from django_lockstep.lab.finder.derive.history import History, Hit, Row, UnitStep
from django_lockstep.lab.finder.record.recording import Unit
from django_lockstep.lab.wording import gettext_noop

RANK_SKEW, RANK_SKEW_ACROSS, RANK_ORDER = 40, 55, 50
_SKEW = gettext_noop(
    "Rows of {name} are read{read} without a lock, and one of them is changed{write}: two transactions can each change "
    "another row, and together break what both have checked."
)
_SKEW_ACROSS = gettext_noop(
    "Rows are read{read} without a lock, then {name} is changed{write}, while {partner} does the reverse."
)
_ORDER = gettext_noop(
    "Rows of {name} are locked{read} and then{write} in an order that another transaction may reverse: a deadlock."
)


@dataclass(frozen=True, slots=True)
class _Skew:
    """A look at rows, and a write after it."""

    history: History
    read: UnitStep
    seen: frozenset[tuple[str, str]]
    write: UnitStep

    def changes(self, skew: _Skew) -> bool:
        """Whether the write changes what that look depends on."""
        template = self.write.template
        if template.verb == "UPDATE":
            return any((template.table, column) in skew.seen for column in template.assignments)
        # Another row does not change the one that was looked at.
        may_matter = skew.read.sees_many or template.verb == "DELETE"
        return may_matter and template.table in {table for table, _ in skew.seen}


def write_skews(histories: Sequence[History]) -> Iterator[Hit]:
    """Yield what a unit can do to itself, and then to others."""
    skews = [skew for history in histories for skew in _skews(history)]
    for skew in skews:
        # A unit that inserts what it has looked for is of another kind, check-then-insert.
        if skew.read.sees_many and skew.write.template.verb != "INSERT" and skew.changes(skew):
            yield _skew_hit(skew, RANK_SKEW, _SKEW, ())
    # One of each unit: in a large suite hundreds of tests have the same request sent.
    by_table: dict[str, dict[tuple[str, str], _Skew]] = defaultdict(dict)
    for skew in skews:
        by_table[skew.write.template.table].setdefault((skew.history.unit.name, skew.read.statement.sql), skew)
    for skew in (skew for skew in skews if skew.read.sees_many):
        if partners := tuple(_partners(skew, by_table)):
            yield _skew_hit(skew, RANK_SKEW_ACROSS, _SKEW_ACROSS, partners)


def _partners(skew: _Skew, by_table: dict[str, dict[tuple[str, str], _Skew]]) -> Iterator[Unit]:
    table = skew.write.template.table
    units: dict[str, Unit] = {}
    for read_table in {table for table, _ in skew.seen} - {table}:
        for (name, _), partner in by_table.get(read_table, {}).items():
            if name != skew.history.unit.name and skew.changes(partner) and partner.changes(skew):
                units.setdefault(name, partner.history.unit)
    yield from units.values()


def _skews(history: History) -> Iterator[_Skew]:
    # Of a look and a write that are sent again and again, the first ones that nothing guards.
    shown: set[tuple[Any, ...]] = set()
    for write in history.writes("UPDATE", "DELETE", "INSERT"):
        # What the unit has made itself, no other transaction has read.
        if write.template.verb != "INSERT" and history.changed_rows(write) & history.inserted_rows:
            continue
        for read in history.looks_before(write):
            pair = read.statement.sql, write.statement.sql, write.statement.site, read.sees_many
            if pair in shown:
                continue
            # A row of the same table that is read and then written is for `row_races`.
            is_look = read.sees_many or any(row.table != write.template.table for row in read.statement.read)
            if is_look and (seen := _unguarded(history, read, write)):
                shown.add(pair)
                yield _Skew(history, read, seen, write)


def _unguarded(history: History, read: UnitStep, write: UnitStep) -> frozenset[tuple[str, str]]:
    """Return the tables and columns that the look depends on, and that nothing keeps as they are."""
    if history.has_snapshot(read, write, "serializable"):
        return frozenset()
    # Of a look without conditions, all rows: such as DELETE takes.
    seen = read.template.tested | read.template.summed or frozenset((table, "") for table in read.template.tables)
    if not read.sees_many:  # what it says is in the row, not in that the row is there
        seen = frozenset((row.table, column) for row in read.statement.read for column in row.values)
    tables = {table for table, _ in seen if not _is_unique(history, table, seen, write)}
    groups = {table: ({(table, "")}, _rows(history, read, table), *history.parents(read, table)) for table in tables}
    kept = {table for table in tables if history.is_guarded(read, write, *groups[table])}
    # Keys do not change: what was found by them alone will be found again.
    keys = {(table, column) for table in tables for column in history.table(table).key}
    return frozenset((table, column) for table, column in seen - keys if table in tables - kept)


def _is_unique(history: History, table: str, seen: frozenset[tuple[str, str]], write: UnitStep) -> bool:
    """Whether a unique index refuses what the look was to prevent."""
    if write.template.table != table:
        return False
    columns, written = {column for name, column in seen if name == table}, write.template.assignments.keys()
    indexes = history.table(table).unique
    return any(written & set(index.columns) and columns >= {*index.columns, *index.predicate} for index in indexes)


def _rows(history: History, read: UnitStep, table: str) -> set[Row]:
    return {(table, history.key_of(read, row)) for row in read.statement.read if row.table == table}


def _skew_hit(skew: _Skew, rank: int, sentence: str, partners: tuple[Unit, ...]) -> Hit:
    columns = frozenset(skew.write.template.assignments) & {column for _, column in skew.seen}
    return skew.history.hit(
        "write-skew", sentence, rank=rank, partners=partners, read=skew.read, write=skew.write, columns=columns
    )


@dataclass(frozen=True, slots=True)
class LockPair:
    """Two locks that one transaction took one after the other."""

    history: History
    first: UnitStep
    second: UnitStep
    rows: tuple[Row, Row]
    ascending: bool | None
    """Whether the keys ascend, in one table; None in two tables, or if that is not known."""

    @property
    def tables(self) -> tuple[str, str]:
        return self.rows[0][0], self.rows[1][0]


def lock_orders(histories: Sequence[History]) -> Iterator[Hit]:
    """Yield pairs of locks that some unit takes the other way round, or may as far as the tests show."""
    pairs = [pair for history in histories for pair in lock_pairs(history)]
    by_tables: dict[tuple[str, str], list[LockPair]] = defaultdict(list)
    for pair in pairs:
        by_tables[pair.tables].append(pair)
    for pair in pairs:
        first, second = pair.tables
        same = by_tables[first, second]
        reverse = [pair for pair in by_tables[second, first] if first != second]
        reverse = reverse or [peer for peer in same if peer.ascending is not pair.ascending]
        # Both ways by what the caller gives, unless two units have shown that it is always the same one.
        is_sorted = pair.ascending is not None and len({id(peer.history) for peer in same}) > 1
        if reverse or (first == second and not is_sorted):
            partners = tuple(peer.history.unit for peer in reverse)
            yield pair.history.hit(
                "lock-order",
                _ORDER,
                rank=RANK_ORDER,
                partners=partners,
                read=pair.first,
                write=pair.second,
                table=second,
            )


def lock_pairs(history: History) -> Iterator[LockPair]:
    """Yield the pairs of rows that the unit locked one after the other, each by a statement of its own.

    Of several rows that a statement locks, the first one of each table stands for all, beside rows of other tables.
    """
    order = {key: place for place, key in enumerate(history.unit.key_order)}
    taken: list[tuple[UnitStep, Row, bool]] = []
    held: set[tuple[int | None, Row]] = set()
    for step in history.steps:
        rows = sorted(history.locked_rows(step) - history.inserted_rows)
        transaction = step.statement.transaction
        # With autocommit a lock ends with its statement; one that is held already waits for nobody.
        new = [row for row in rows if transaction is not None and (transaction, row) not in held]
        held |= {(transaction, row) for row in new}
        by_table = {row[0]: row for row in reversed(new)}
        taken += [(step, row, len(rows) == len(new) == 1) for row in by_table.values()]
    for (first, row, is_one), (second, later, is_one_too) in combinations(taken, 2):
        # In which order one statement locks several rows is its own affair.
        is_order = first is not second and (row[0] != later[0] or (is_one and is_one_too))
        if is_order and first.statement.transaction == second.statement.transaction:
            ascending = order[row[1]] < order[later[1]] if row[1] in order and later[1] in order else None
            yield LockPair(history, first, second, (row, later), ascending if row[0] == later[0] else None)
