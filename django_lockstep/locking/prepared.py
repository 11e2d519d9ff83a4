"""Statements that the server may prepare, for leases and the compiled account.

Django's own cursors put the parameters into the text, so that every statement is a new one. These go through a cursor
that binds on the server, and are otherwise sent as all others. PostgreSQL with psycopg 3 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, tzinfo
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import register_tzloader
from django.db.backends.utils import CursorDebugWrapper, CursorWrapper
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.postgres import types


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


def fetch(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Send a statement that returns rows, as `send` does, and return them."""
    cursor = send(connection, sql, params)
    with connection.wrap_database_errors:
        return cursor.fetchall()


def send(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] = ()) -> PreparingCursor:
    """Send a statement, with ``%s`` for each parameter; return the cursor.

    psycopg prepares the statement on its first execution if ``OPTIONS["prepare_threshold"]`` of the database is a
    number; Django's default of None keeps it from that, because a connection pooler in front of the server may not
    know prepared statements. Execute wrappers and the query log see it as any other. Raises Django's database errors.
    """
    # What Django's connection.cursor() does before it hands out a cursor, which is bypassed here.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    cursor = _cursor(connection)
    wrapper = _Logged if connection.queries_logged else CursorWrapper
    wrapper(cursor, connection).execute(sql, params)
    return cursor


_cursors: WeakKeyDictionary[BaseDatabaseWrapper, PreparingCursor] = WeakKeyDictionary()
"""One cursor for each of Django's connections and its driver's connection: creating one costs a round trip's time."""


def _cursor(connection: BaseDatabaseWrapper) -> PreparingCursor:
    """Return the cursor that ``connection.create_cursor()`` would, but one whose statements can be prepared."""
    if connection.allow_thread_sharing:
        return PreparingCursor(connection.connection)  # another thread could fetch this thread's rows
    cursor = _cursors.get(connection)
    if cursor is None or cursor.connection is not connection.connection or cursor.closed:
        cursor = _cursors[connection] = PreparingCursor(connection.connection)
    # The time zone can change with the active settings, as in tests, while the cursor is reused.
    if cursor.timezone != connection.timezone:
        cursor.load_times_in(connection.timezone)
    return cursor
