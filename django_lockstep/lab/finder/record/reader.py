"""Reads what a connection has just executed: the statement, fingerprints of its values, and the rows that came back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.utils import timezone
from psycopg import generators, waiting
from psycopg.pq import Escaping, ExecStatus, TransactionStatus

from django_lockstep.lab.explorer.effects.catalog import (
    FOREIGN_KEYS,
    TABLE_NAME,
    UNIQUE_INDEXES,
    ForeignKey,
    UniqueIndex,
)
from django_lockstep.lab.finder.record.fingerprints import Fingerprints, comparable
from django_lockstep.lab.finder.record.recording import RecordedStatement, RowRead, Table

_OF_INTEREST = re.compile(r"[\s(]*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|LOCK)\b", re.IGNORECASE)


def is_of_interest(sql: str) -> bool:
    """Whether the statement reads, writes or locks; not that it is one of a transaction, or of the schema."""
    return _OF_INTEREST.match(sql) is not None


def instances(values: Iterable[object]) -> Iterator[models.Model]:
    """Yield the instances of models among the values, and in their lists and tuples, that have a row."""
    for value in values:
        for element in value if isinstance(value, list | tuple) else (value,):
            # By the type: isinstance() would have a lazy object evaluated.
            if issubclass(type(element), models.Model) and not element._state.adding and element.pk is not None:
                yield element


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
        # Of several sets of parameters, the first.
        text, values = positional(sql, next(iter(params), ()) if many and isinstance(params, Iterable) else params)
        return RecordedStatement(
            sql=text,
            params=tuple(map(self._fingerprints.of, values)),
            types=tuple(map(type_name, values)),
            rows=cursor.rowcount if cursor.rowcount >= 0 else None,
            read=self._rows(getattr(cursor.cursor, "pgresult", None), connection, keys),
            alias=connection.alias,
            **where,
        )

    def read_instance(self, instance: models.Model, *, keys: dict[str, int | str]) -> tuple[RowRead, ...]:
        """Return the instance's row as it is now, and those of the models that it inherits; add their keys to ``keys``.

        None are returned where no statement can be sent now.
        """
        connection: Any = connections[instance._state.db or DEFAULT_DB_ALIAS]
        driver, pk = connection.connection, instance.pk
        if not hasattr(driver, "pgconn") or not isinstance(pk, int | str | UUID):
            return ()
        quote = connection.ops.quote_name
        owners = dict.fromkeys(column.model._meta for column in instance._meta.concrete_fields)
        key = Escaping(driver.pgconn).escape_literal(str(pk).encode()).decode()
        queries = (f"SELECT * FROM {quote(meta.db_table)} WHERE {quote(meta.pk.column)} = {key}" for meta in owners)
        return tuple(row for result in _ask(driver, *queries) for row in self._rows(result, connection, keys))

    def loaded_fields(self, instance: models.Model) -> list[str]:
        """Return the fields whose values are those of the row; the others were set, or are deferred."""
        values = {name: text for row in self.read_instance(instance, keys={}) for name, text in row.values.items()}
        connection = connections[instance._state.db or DEFAULT_DB_ALIAS]
        names = []
        for column in instance._meta.concrete_fields if values else ():
            with suppress(Exception):  # of a field of the project's own, or for an expression
                value = column.get_db_prep_save(instance.__dict__[column.attname], connection)
                if self._fingerprints.of(value) == values[str(column.column)]:
                    names.append(column.attname)
        return names

    def _rows(self, result: Any, connection: Any, keys: dict[str, int | str]) -> tuple[RowRead, ...]:
        """Return the rows of a result, led back to their tables: of joins, select_related and raw SQL alike."""
        driver = connection.connection
        # Not by alias: a mirror's alias reaches the same tables.
        catalog = self._catalogs.setdefault(str(connection.settings_dict["NAME"]), TableCatalog(self._on_tables))
        catalog.get(0, driver)  # a unit may write without reading anything
        if result is None or not result.nfields:
            return ()
        groups = _groups(result, catalog, driver)
        count = min(result.ntuples, _MOST_ROWS)
        return tuple(
            row for number in range(count) for group in groups for row in self._row(result, number, group, keys)
        )

    def _row(self, result: Any, number: int, group: _Group, keys: dict[str, int | str]) -> list[RowRead]:
        texts = {name: result.get_value(number, place) for name, (place, _) in group.columns.items()}
        values = {name: self._fingerprints.of_column(texts[name], group.columns[name][1]) for name in texts}
        columns = group.table.key
        if not columns or not all(name in values for name in columns):
            return [RowRead(table=group.table.name, values=values)]
        if any(texts[name] is None for name in columns):
            return []  # nothing was found by an outer join
        key = ",".join(values[name] for name in columns)
        if len(columns) == 1:
            text = texts[columns[0]].decode(errors="replace")
            # As a number, so that 10 comes after 9.
            keys[key] = int(text) if group.columns[columns[0]][1] in _INTEGERS else text
        return [RowRead(table=group.table.name, key=key, values=values)]


# Parameters by position, with a name for the type of each.

_NAMED = re.compile(r"%\((\w+)\)s")
# From when code asks for the time until the statement is sent.
_MOMENT = timedelta(minutes=1)


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
    if not isinstance(value, datetime):
        return type(value).__name__
    now = timezone.now()
    if timezone.is_naive(value) and timezone.is_aware(now):
        now = timezone.make_naive(now)
    is_now = timezone.is_naive(value) == timezone.is_naive(now) and abs(value - now) < _MOMENT
    return "now" if is_now else "datetime"


_MOST_ROWS = 200
"""Of a statement; units that read more do so in loops, in which the first rows tell as much."""
_INTEGERS = frozenset({20, 21, 23})


@dataclass(slots=True)
class _Group:
    """Columns of a result that came from one row of a table."""

    table: Table
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, the place in the result and the type's OID."""


def _groups(result: Any, catalog: TableCatalog, driver: Any) -> list[_Group]:
    groups: list[_Group] = []
    last: dict[str, _Group] = {}
    for place in range(result.nfields):
        server_table = catalog.get(result.ftable(place), driver)
        # Binary values would have to be decoded by type; where a project asks for them, they are left out.
        if server_table is None or result.fformat(place) or not comparable(result.ftype(place)):
            continue
        table, columns = server_table
        column = columns.get(result.ftablecol(place), "")
        group = last.get(table.name)
        # The column a second time: the table is joined to itself.
        if group is None or column in group.columns:
            group = last[table.name] = _Group(table)
            groups.append(group)
        group.columns[column] = (place, result.ftype(place))
    return groups


_TABLES = f"""
SELECT coalesce(jsonb_agg(jsonb_build_object(
    'oid', c.oid::bigint,
    'name', {TABLE_NAME.format("c.oid::regclass")},
    'columns', (SELECT jsonb_object_agg(a.attnum, jsonb_build_array(a.attname, a.atttypid::regtype::text))
                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'key', ARRAY(SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (n, place)
                 JOIN pg_attribute a ON a.attnum = k.n
                 WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid ORDER BY k.place),
    'unique', {UNIQUE_INDEXES},
    'foreign', {FOREIGN_KEYS}
)), '[]')::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""


ServerTable = tuple[Table, Mapping[int, str]]
"""A table with the names of its columns, by the numbers that the driver knows them by."""


class TableCatalog:
    """The tables of one database, read when an unknown one is met: tests create tables."""

    def __init__(self, on_loaded: Callable[[list[Table]], None]) -> None:
        """Call ``on_loaded`` with all tables whenever they were read."""
        self._by_oid: dict[int, ServerTable | None] = {}
        self._on_loaded = on_loaded

    def get(self, oid: int, driver: Any) -> ServerTable | None:
        """Return the table; None for one of the server's own, for 0, and where the catalog cannot be read now."""
        if oid not in self._by_oid and not self._load(driver):
            return None
        # Not there although the catalog was read: one of the server's own. Noted, or each row would have it read again.
        return self._by_oid.setdefault(oid, None)

    def _load(self, driver: Any) -> bool:
        results = _ask(driver, _TABLES)
        if not results:
            return False
        listed = json.loads(results[0].get_value(0, 0))
        # A proxy has the table of its model, which is the one to name.
        models = {model._meta.db_table: model for model in apps.get_models() if not model._meta.proxy}
        self._by_oid |= {listing["oid"]: _server_table(listing, models.get(listing["name"])) for listing in listed}
        self._on_loaded([server_table[0] for server_table in self._by_oid.values() if server_table is not None])
        return True


_USABLE = frozenset({TransactionStatus.IDLE, TransactionStatus.INTRANS})


def _ask(driver: Any, *queries: str) -> list[Any]:
    """Return the results of queries, which are sent in one message; none where one of them fails.

    It goes past Django's and the driver's cursors, so that no counter of statements counts it, and is not sent in an
    aborted transaction, or amid a pipeline. In a savepoint, for a failure would abort the test's transaction.
    """
    connection = driver.pgconn
    if connection.pipeline_status or connection.transaction_status not in _USABLE:
        return []
    inside = connection.transaction_status == TransactionStatus.INTRANS
    connection.send_query("; ".join([_SAVEPOINT, *queries, _BACK] if inside else queries).encode())
    results = waiting.wait(generators.execute(connection), connection.socket)
    if inside and connection.transaction_status == TransactionStatus.INERROR:
        connection.exec_(_BACK.encode())
    answers = [result for result in results if result.status == ExecStatus.TUPLES_OK]
    return answers if len(answers) == len(queries) else []


_SAVEPOINT = "SAVEPOINT lockstep_read"
_BACK = "ROLLBACK TO SAVEPOINT lockstep_read; RELEASE SAVEPOINT lockstep_read"


def _server_table(listed: dict[str, Any], model: Any) -> ServerTable:
    columns = {int(number): name for number, (name, _) in (listed["columns"] or {}).items()}
    foreign = [key for key in map(ForeignKey.parse, listed["foreign"]) if len(key.columns) == 1]
    table = Table(
        name=listed["name"],
        model=model._meta.label if model else "",
        key=tuple(listed["key"]),
        types=dict((listed["columns"] or {}).values()),
        unique=tuple(index for index in map(UniqueIndex.parse, listed["unique"]) if index.valid),
        foreign_keys=tuple({key.columns: key for key in (*_unchecked(model), *foreign)}.values()),
    )
    return table, columns


def _unchecked(model: Any) -> Iterator[ForeignKey]:
    """Yield the references of a model, which the server need not know of: ``db_constraint=False``."""
    for column in model._meta.local_concrete_fields if model else ():
        if column.many_to_one or column.one_to_one:
            yield ForeignKey(parent=column.related_model._meta.db_table, columns=(column.column,))
