"""The explorer's own connection to the server: who is blocked, what the tables held, and putting it back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import OperationalError

from accounts.lab.explorer.catalog import Catalog
from accounts.lab.explorer.errors import ExplorerError, NotExplorable

__all__ = ["Server"]

MOST_ROWS = 20_000
"""A table with more rows is not copied and put back for every schedule."""
_RUNS_BETWEEN_VACUUMS = 300
_PATIENCE = "5s"
"""How long a session that is no actor may keep tables from being put back."""

_BLOCKED = """
SELECT pid, pg_blocking_pids(pid) || pg_safe_snapshot_blocking_pids(pid) FROM unnest(%s::int[]) AS pid
"""
_WAITED_FOR = """
SELECT w.pid, w.locktype, w.mode, coalesce(t.relation, w.relation)::regclass::text, t.page, t.tuple
FROM pg_locks w LEFT JOIN pg_locks t ON t.pid = w.pid AND t.locktype = 'tuple' AND t.granted
WHERE NOT w.granted AND w.pid = %s
"""
_SEQUENCES = """
SELECT s.oid::regclass::text FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
WHERE s.relkind = 'S' AND d.refobjid = %s::regclass
"""
_COLUMNS = """
SELECT attname, attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%%',
       attgenerated = '', atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype, 'time'::regtype,
                                       'timetz'::regtype, 'uuid'::regtype)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class Server:
    """One database, seen from outside of the race."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._wrapper: BaseDatabaseWrapper = connections[alias].copy()
        self._saved: dict[str, Any] = {}
        """What the copied tables held, without what varies between runs."""
        self._columns: dict[str, list[tuple[str, bool, bool, bool]]] = {}
        self._restore_sql = ""
        self._resets = 0
        try:
            self._wrapper.ensure_connection()
            self.catalog = Catalog.load(self._cursor())
        except BaseException:
            self.close()
            raise
        self._replica = "SET LOCAL session_replication_role = replica; " if self._may_skip_triggers() else ""

    def _cursor(self) -> Any:
        # The driver's own cursor: twice as fast as Django's, which nobody needs here.
        return self._wrapper.connection.cursor()

    def _query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._cursor().execute(sql, params).fetchall()
        return rows

    def _may_skip_triggers(self) -> bool:
        return bool(self._query("SELECT current_setting('is_superuser')::bool")[0][0])

    def close(self) -> None:
        """Close the connection; temporary copies go with it."""
        self._wrapper.close()

    def blocked(self, pids: Collection[int]) -> dict[int, list[int]]:
        """Return who of these server processes waits, and for which others."""
        return {pid: blockers for pid, blockers in self._query(_BLOCKED, list(pids)) if blockers}

    def cancel(self, pid: int) -> None:
        """Cancel what the server process is doing."""
        self._query("SELECT pg_cancel_backend(%s)", pid)

    def session(self, pid: int) -> str:
        """Describe a session that is no actor."""
        rows = self._query("SELECT application_name, state, left(query, 80) FROM pg_stat_activity WHERE pid = %s", pid)
        return f"session {pid} ({', '.join(str(value) for value in rows[0])})" if rows else f"session {pid}"

    def waited_for(self, pid: int) -> str:
        """Say in short on which lock, and on which row of which table, the process waits."""
        for _, locktype, mode, relation, page, item in self._query(_WAITED_FOR, pid):
            if relation is None:
                return f"{locktype} {mode}"
            return f"{relation}{self._row(relation, page, item)}" if page is not None else f"{relation} {mode}"
        return "a lock"

    def _row(self, relation: str, page: int, item: int) -> str:
        table = self.catalog.get(relation.strip('"'))
        if table is None or table.pk is None:
            return ""
        rows = self._query(
            f"SELECT {_quoted(table.pk)} FROM {relation} WHERE ctid = %s::tid",
            f"({page},{item})",
        )
        return f" {table.pk}={rows[0][0]}" if rows else ""

    # Saving and putting back

    def save(self, tables: Iterable[str]) -> None:
        """Copy tables that are about to be written for the first time."""
        for name in sorted(set(tables) - self._saved.keys()):
            self._save(name)

    def _save(self, name: str) -> None:
        table, copy = _quoted(name), _quoted(f"saved {name}"[:63])
        (count,) = self._query(f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {MOST_ROWS + 1}) AS rows")[0]
        if count > MOST_ROWS:
            raise NotExplorable(f"Table {name} has more than {MOST_ROWS} rows, too many to put back for every schedule")
        self._cursor().execute(f"CREATE TEMP TABLE {copy} AS TABLE {table}")
        self._columns[name] = self._query(_COLUMNS, table)
        columns = ", ".join(_quoted(column) for column, _, stored, _ in self._columns[name] if stored)
        self._restore_sql += f"DELETE FROM {table}; "
        if count:
            self._restore_sql += (
                f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {copy}; "
            )
        for (sequence,) in self._query(_SEQUENCES, table):
            ((last, called),) = self._query(f"SELECT last_value, is_called FROM {sequence}")
            self._restore_sql += f"SELECT setval('{sequence}', {last}, {str(called).lower()}); "
        self._saved[name] = self._query(self._content_of(name))[0][1]

    def reset(self) -> None:
        """Put every saved table back, in one round trip."""
        if not self._saved:
            return
        settings = f"{self._replica}SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '{_PATIENCE}'; "
        try:
            self._cursor().execute(f"BEGIN; {settings}{self._restore_sql}COMMIT".encode())
        except OperationalError as error:
            self._wrapper.connection.rollback()
            raise ExplorerError(f"The tables {', '.join(self._saved)} could not be put back: {error}") from error
        self._resets += 1
        if self._resets % _RUNS_BETWEEN_VACUUMS == 0:
            for name in self._saved:
                self._cursor().execute(f"VACUUM {_quoted(name)}")

    def content(self) -> str:
        """Return what the changed tables hold, as text that compares.

        Without generated keys, times and UUIDs, which differ between runs that come to the same.
        """
        if not self._saved:
            return "{}"
        parts = [self._content_of(name) for name in sorted(self._saved)]
        rows: dict[str, list[Any]] = dict(self._query(" UNION ALL ".join(parts)))
        changed = {name: held for name, held in rows.items() if held != self._saved[name]}
        return json.dumps(changed, sort_keys=True, default=str)

    def _content_of(self, name: str) -> str:
        hidden = [column for column, generated, _, varying in self._columns[name] if generated or varying]
        listed = ", ".join("'" + column.replace("'", "''").replace("%", "%%") + "'" for column in hidden)
        row = f"to_jsonb(t) - ARRAY[{listed}]::text[]"
        literal = name.replace("'", "''").replace("%", "%%")
        table = _quoted(name).replace("%", "%%")
        return f"SELECT '{literal}', coalesce(jsonb_agg({row} ORDER BY {row}), '[]') FROM {table} AS t"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
