"""Statements that the server may prepare, for leases and the compiled account: by hand, or by the query set API.

Each is one round trip with a `Parameter` in place of each value that changes from call to call; `Compiled.bind` only
adapts the values, as their fields would. Unlike the statements of `django_lockstep.locking.shapes` they go through a
cursor of their own, which binds on the server. PostgreSQL with psycopg 3 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import register_tzloader
from django.db.backends.utils import CursorDebugWrapper, CursorWrapper
from django.db.models.sql import UpdateQuery
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.postgres import types
from psycopg.types.numeric import Int8

from django_lockstep.locking.statements import Column


class Parameter(models.Value):
    """A placeholder in a query for a value that each call gives by name.

    The value is adapted as if it were written into ``output_field``; without one, psycopg takes it unchanged.
    """

    def __init__(self, name: str, output_field: models.Field[Any, Any] | None = None) -> None:
        super().__init__(name, output_field=output_field)
        self.name = name
        self._column = None if output_field is None else Column(output_field)

    def as_sql(self, compiler: object, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        return "%s", [self]

    def adapt(self, value: object, connection: BaseDatabaseWrapper) -> Any:
        """Return the value for the driver."""
        if self._column is None:
            return value
        sent = self._column.to_write(value, connection)
        # psycopg's type for an int is the smallest that holds it, and each type would be another prepared statement.
        return Int8(sent) if type(sent) is int else sent


def parameter(model: type[models.Model], name: str, *, called: str | None = None) -> Parameter:
    """Return the parameter for a value of this field; calls give it by the field's name, or by ``called``."""
    field: Any = model._meta.pk if name == "pk" else model._meta.get_field(name)
    # A foreign key's value is what its column holds.
    return Parameter(called or name, getattr(field, "target_field", field))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement, or a part of one, with its parameters."""

    sql: str
    """The text, with ``%s`` for each place."""
    places: tuple[Any, ...]
    """In order: a `Parameter`, or a constant value."""

    def bind(self, connection: BaseDatabaseWrapper, values: Mapping[str, object]) -> list[Any]:
        """Return the parameters to send. Raises ``KeyError`` for a value that is missing."""
        return [
            place.adapt(values[place.name], connection) if isinstance(place, Parameter) else place
            for place in self.places
        ]

    def __add__(self, part: Compiled | str) -> Compiled:
        if isinstance(part, str):
            return Compiled(self.sql + part, self.places)
        return Compiled(self.sql + part.sql, self.places + part.places)

    def __radd__(self, text: str) -> Compiled:
        return Compiled(text + self.sql, self.places)


def plain(name: str) -> Compiled:
    """Return a placeholder for a value that psycopg takes unchanged."""
    return Compiled("%s", (Parameter(name),))


def compile_sql(sql: str, *names: str) -> Compiled:
    """Return SQL written by hand, with ``%s`` for the `plain` value of each name."""
    return Compiled(sql, tuple(place for name in names for place in plain(name).places))


def compile_select(rows: models.QuerySet[Any], *columns: str) -> Compiled:
    """Return what iterating over the rows would send, for all columns or those named."""
    query = rows.values_list(*columns).query if columns else rows.query
    sql, params = query.get_compiler(rows.db).as_sql()
    return Compiled(sql, tuple(params))


def compile_update(rows: models.QuerySet[Any], values: Mapping[str, object]) -> Compiled:
    """Return what ``rows.update(**values)`` would send."""
    query: Any = rows.query.chain(UpdateQuery)
    query.add_update_values(dict(values))
    sql, params = query.get_compiler(rows.db).as_sql()
    # Constant integers, such as that of F("count") + 1, go into the text: the driver then has one parameter less to
    # adapt in every call.
    first, *texts = sql.split("%s")
    compiled = Compiled(first, ())
    for place, text in zip(params, texts, strict=True):
        is_integer = isinstance(place, int) and not isinstance(place, bool)
        compiled = compiled + (f"{int(place)}" if is_integer else Compiled("%s", (place,))) + text
    return compiled


def is_psycopg(using: str) -> bool:
    """Whether the database is PostgreSQL, reached by psycopg 3."""
    connection: Any = connections[using]
    return bool(connection.vendor == "postgresql" and connection.Database.__name__ == "psycopg")


class PreparingCursor(psycopg.Cursor[Any]):
    """A cursor that binds parameters on the server, so that statements can be prepared."""

    timezone: tzinfo | None = None

    def execute(self, query: Any, params: Any = None, **options: object) -> PreparingCursor:
        """Prepare the statement on its first execution, where the connection allows it."""
        # prepare=True skips psycopg's count of executions before it prepares; prepare_threshold=None still disables it.
        return super().execute(query, params, prepare=True)

    def load_times_in(self, timezone: tzinfo | None) -> None:
        """Load times as Django's own cursors do: aware in this zone, or naive where it is None.

        Values that Python cannot represent, such as ``infinity``, raise the same errors as there.
        """
        register_tzloader(timezone, self)
        if timezone is UTC:
            slow = self.adapters.get_loader(_TIMESTAMPTZ, Loader.format)
            self.adapters.register_loader("timestamptz", type("UtcLoader", (_UtcLoader,), {"slow": slow}))
        self.timezone = timezone


_TIMESTAMPTZ = types["timestamptz"].oid


class _UtcLoader(Loader):
    """Loads the times of sessions in UTC in a tenth of the time; the ``slow`` loader handles everything else.

    psycopg loads ``timestamptz`` in C, but Django's loader, which converts to the time zone of the settings, is based
    on the one in Python. It parses the text with a regular expression and reads the session's time zone and date style
    for every result, which takes longer than the rest of the row.
    """

    slow: type[Loader]

    def load(self, data: Buffer) -> datetime:
        try:
            at = datetime.fromisoformat(str(data, "ascii"))
        except ValueError:  # after the year 9999, before 1, infinite, or in another DateStyle
            return self._slowly(data)
        return at if at.tzinfo is UTC else self._slowly(data)

    def _slowly(self, data: Buffer) -> datetime:
        at: datetime = self.slow(self.oid, self.connection).load(data)
        return at


class _Logged(CursorDebugWrapper):
    """Logs statements with their parameters filled in, as Django does for its own cursors."""

    def debug_sql(
        self, sql: object = None, params: Any = None, use_last_executed_query: bool = False, many: bool = False
    ) -> AbstractContextManager[None]:
        return super().debug_sql(self.db.ops.compose_sql(sql, params), params, many=many)


def fetch(connection: BaseDatabaseWrapper, compiled: Compiled, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Send a statement that returns rows, and return them.

    psycopg prepares the statement on its first execution if ``OPTIONS["prepare_threshold"]`` of the database is a
    number; Django's default of None keeps it from that, because a connection pooler in front of the server may not
    know prepared statements. Execute wrappers and the query log see it as any other. Raises Django's database errors.
    """
    cursor = _executed(connection, compiled, values)
    with connection.wrap_database_errors:
        return cursor.fetchall()


def write(connection: BaseDatabaseWrapper, compiled: Compiled, values: Mapping[str, object]) -> int:
    """Send a statement that returns no rows, as `fetch` does; return how many rows it wrote."""
    return _executed(connection, compiled, values).rowcount


def _executed(connection: BaseDatabaseWrapper, compiled: Compiled, values: Mapping[str, object]) -> PreparingCursor:
    # What Django's connection.cursor() does before it hands out a cursor, which is bypassed here.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    cursor = _cursor(connection)
    wrapper: CursorWrapper = (
        _Logged(cursor, connection) if connection.queries_logged else CursorWrapper(cursor, connection)
    )
    wrapper.execute(compiled.sql, compiled.bind(connection, values))
    return cursor


_cursors: WeakKeyDictionary[BaseDatabaseWrapper, PreparingCursor] = WeakKeyDictionary()
"""One cursor for each of Django's connections and its driver's connection: creating one costs a round trip's time."""


def _cursor(connection: BaseDatabaseWrapper) -> PreparingCursor:
    """Return the cursor that ``connection.create_cursor()`` would, but one whose statements can be prepared.

    Django's own cursor puts the parameters into the text, so that every statement is a new one.
    """
    if connection.allow_thread_sharing:
        return PreparingCursor(connection.connection)  # another thread could fetch this thread's rows
    cursor = _cursors.get(connection)
    if cursor is None or cursor.connection is not connection.connection or cursor.closed:
        cursor = _cursors[connection] = PreparingCursor(connection.connection)
    # The time zone can change with the active settings, as in tests, while the cursor is reused.
    if cursor.timezone != connection.timezone:
        cursor.load_times_in(connection.timezone)
    return cursor
