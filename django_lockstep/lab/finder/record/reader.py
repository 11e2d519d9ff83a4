"""Reads what a connection has just executed: the statement, fingerprints of its values, and the rows that came back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_lockstep.lab.finder.record.catalog import ServerTable, TableCatalog
from django_lockstep.lab.finder.record.fingerprints import Fingerprints, comparable
from django_lockstep.lab.finder.record.recording import RecordedStatement, RowRead, Table

__all__ = ["StatementReader", "first", "is_of_interest"]

_OF_INTEREST = re.compile(r"[\s(]*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|LOCK)\b", re.IGNORECASE)


def is_of_interest(sql: str) -> bool:
    """Whether the statement reads, writes or locks; not that it is one of a transaction, or of the schema."""
    return _OF_INTEREST.match(sql) is not None


class StatementReader:
    """Reads statements for an execute wrapper; ``on_tables`` is called with the tables of a database that is new."""

    def __init__(self, fingerprints: Fingerprints, on_tables: Callable[[list[Table]], None]) -> None:
        self._fingerprints = fingerprints
        self._on_tables = on_tables
        self._catalogs: dict[str, TableCatalog] = {}

    def read(
        self, sql: str, params: Any, context: Any, *, keys: dict[str, int | str], many: bool, **where: Any
    ) -> RecordedStatement:
        """Return the statement; add the primary keys that it returned to ``keys``, by fingerprint.

        ``context`` is that of the wrapper, after the execution; ``where`` are further fields of the statement.
        """
        connection, cursor = context["connection"], context["cursor"]
        text, values = positional(sql, first(params) if many else params)
        rows = RowReader(self._catalog(connection), self._fingerprints)
        return RecordedStatement(
            sql=text,
            params=tuple(map(self._fingerprints.of, values)),
            types=tuple(map(type_name, values)),
            rows=cursor.rowcount if cursor.rowcount >= 0 else None,
            read=rows.read(getattr(cursor.cursor, "pgresult", None), connection.connection, keys),
            alias=connection.alias,
            **where,
        )

    def _catalog(self, connection: Any) -> TableCatalog:
        # Not by alias: a mirror's alias reaches the same tables.
        name = str(connection.settings_dict["NAME"])
        if name not in self._catalogs:
            self._catalogs[name] = TableCatalog(self._on_tables)
        return self._catalogs[name]


# Parameters by position, with a name for the type of each.

_NAMED = re.compile(r"%\((\w+)\)s")
# From when code asks for the time until the statement is sent.
_MOMENT = timedelta(minutes=1)


def first(sets: Any) -> Any:
    """Return the first of many sets of parameters."""
    return next(iter(sets), ()) if isinstance(sets, Iterable) else ()


def positional(sql: str, params: Any) -> tuple[str, list[Any]]:
    """Return the SQL with placeholders by position, and their values."""
    if isinstance(params, Mapping):
        names = _NAMED.findall(sql)
        return _NAMED.sub("%s", sql), [params.get(name) for name in names]
    return sql, list(params or ())


def type_name(value: object) -> str:
    """Return the type of a parameter; ``now`` for the current time, which a test may have frozen."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "int"  # the driver has classes of its own for integers
    if isinstance(value, datetime):
        return "now" if _is_now(value) else "datetime"
    return type(value).__name__


def _is_now(value: datetime) -> bool:
    now = timezone.now()
    if timezone.is_naive(value) and timezone.is_aware(now):
        now = timezone.make_naive(now)
    return timezone.is_naive(value) == timezone.is_naive(now) and abs(value - now) < _MOMENT


# The rows that a result holds, led back to their tables: joins, select_related and raw SQL alike.

_MOST_ROWS = 200
"""Of a statement; units that read more do so in loops, in which the first rows tell as much."""
_INTEGERS = frozenset({20, 21, 23})


@dataclass(slots=True)
class _Group:
    """Columns of a result that came from one row of a table."""

    table: ServerTable
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, the place in the result and the type's OID."""


class RowReader:
    """Reads rows, and notes the order of their keys."""

    def __init__(self, catalog: TableCatalog, fingerprints: Fingerprints) -> None:
        self._catalog = catalog
        self._fingerprints = fingerprints

    def read(self, result: Any, driver: Any, keys: dict[str, int | str]) -> tuple[RowRead, ...]:
        """Return the rows; add the values of their keys to ``keys``, by fingerprint."""
        self._catalog.ensure_loaded(driver)
        if result is None or not result.nfields:
            return ()
        groups = self._groups(result, driver)
        count = min(result.ntuples, _MOST_ROWS)
        return tuple(
            row for number in range(count) for group in groups for row in self._row(result, number, group, keys)
        )

    def _groups(self, result: Any, driver: Any) -> list[_Group]:
        groups: list[_Group] = []
        last: dict[str, _Group] = {}
        for place in range(result.nfields):
            oid = result.ftable(place)
            table = self._catalog.get(oid, driver) if oid else None
            # Binary values would have to be decoded by type; where a project asks for them, they are left out.
            if table is None or result.fformat(place) or not comparable(result.ftype(place)):
                continue
            column = table.columns.get(result.ftablecol(place), "")
            group = last.get(table.table.name)
            # The column a second time: the table is joined to itself.
            if group is None or column in group.columns:
                group = last[table.table.name] = _Group(table)
                groups.append(group)
            group.columns[column] = (place, result.ftype(place))
        return groups

    def _row(self, result: Any, number: int, group: _Group, keys: dict[str, int | str]) -> list[RowRead]:
        texts = {name: result.get_value(number, place) for name, (place, _) in group.columns.items()}
        values = {name: self._fingerprints.of_column(texts[name], group.columns[name][1]) for name in texts}
        columns = group.table.table.key
        if not columns or not all(name in values for name in columns):
            return [RowRead(table=group.table.table.name, values=values)]
        if any(texts[name] is None for name in columns):
            return []  # nothing was found by an outer join
        key = ",".join(values[name] for name in columns)
        if len(columns) == 1:
            text = texts[columns[0]].decode(errors="replace")
            # As a number, so that 10 comes after 9.
            keys[key] = int(text) if group.columns[columns[0]][1] in _INTEGERS else text
        return [RowRead(table=group.table.table.name, key=key, values=values)]
