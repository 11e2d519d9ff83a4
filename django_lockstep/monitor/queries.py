"""All SQL of the report: it reads views and catalogs, and rows by their ctid; it holds no lock for long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

ReportRow = dict[str, Any]
"""A row of a result, by column."""

_FRESH = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY"
"""Reads at SERIALIZABLE could make another session's transaction fail."""

# The lock_timeout starts when a lock is found taken, so that 1 ms is enough, and hardly waits.
# Within a transaction pg_stat_activity is cached at the first access, unless the snapshot is cleared.
LIMITS = """
SELECT current_database() AS database, clock_timestamp() AS taken_at,
       set_config('lock_timeout', '1ms', true), set_config('statement_timeout', '5s', true),
       pg_stat_clear_snapshot()
"""

# pg_locks is read once, so that all parts are consistent. OIDs of other databases' tables mean nothing here.
_LOCKS = """
locks AS MATERIALIZED (
    SELECT pid, locktype, mode, granted, waitstart, page, tuple,
           CASE WHEN database IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                THEN relation END AS relation,
           database, classid::bigint AS classid, objid::bigint AS objid, objsubid,
           concat_ws('/', locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid,
                     objsubid) AS lock
    FROM pg_locks
)"""

# - A waiter for a row waits for the holder's transaction to end. Meanwhile the first in the queue holds a lock of type
#   tuple, which names the row; the others wait for that lock. A session that arrives just after the row's lock was
#   passed on waits for the transaction only: its table is known if the waiter has locked rows of one table only.
# - A parallel worker waits on behalf of its leader, and pg_blocking_pids returns the leader.
# - pg_blocking_pids stops the server's lock table for a moment, so it is called for waiters only. It is called after
#   reading pg_locks: a session that got the lock in between has no blockers.
# - Other databases matter if the lock is on a shared object (database 0), or if a blocker waits there.
WAITING = f"""
WITH RECURSIVE {_LOCKS},
waiting AS MATERIALIZED (
    SELECT DISTINCT ON (session) *, pg_blocking_pids(pid) AS blockers
    FROM (SELECT locks.*, coalesce(leader_pid, pid) AS session, datname
          FROM locks JOIN pg_stat_activity USING (pid) WHERE NOT granted) AS asking
    ORDER BY session, waitstart
),
shown AS (
    SELECT * FROM waiting WHERE blockers <> '{{}}' AND (datname = current_database() OR database = 0)
    UNION
    SELECT waiting.* FROM waiting JOIN shown ON waiting.session = ANY (shown.blockers)
)
SELECT session, blockers, locktype, lock, classid, objid, objsubid,
       CASE locktype WHEN 'transactionid' THEN place.mode ELSE shown.mode END AS mode,
       coalesce(extract(epoch FROM clock_timestamp() - waitstart), 0)::float8 AS seconds,
       coalesce(shown.relation, place.relation, written.relation) AS relation,
       coalesce(shown.page, place.page) AS page, coalesce(shown.tuple, place.tuple) AS tuple
FROM shown
LEFT JOIN LATERAL (
    SELECT relation, page, tuple, mode FROM locks
    WHERE pid = shown.pid AND locktype = 'tuple' AND granted LIMIT 1
) AS place ON shown.locktype = 'transactionid'
LEFT JOIN LATERAL (
    SELECT max(relation) AS relation FROM locks JOIN pg_class ON pg_class.oid = relation AND relkind = 'r'
    WHERE pid = shown.pid AND locktype = 'relation' AND mode IN ('RowShareLock', 'RowExclusiveLock') AND granted
    HAVING count(DISTINCT relation) = 1
) AS written ON shown.locktype = 'transactionid'
WHERE blockers <> '{{}}'
ORDER BY waitstart, session
"""

# Other roles see the process and the names, but neither state nor statement, unless they may read all statistics.
SESSIONS = """
SELECT pid, nullif(application_name, '') AS application, usename AS user, host(client_addr) AS client,
       backend_start AS started, backend_type AS backend, state, state_change AS since,
       extract(epoch FROM clock_timestamp() - state_change)::float8 AS seconds,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS transaction_seconds,
       CASE WHEN state IS NOT NULL THEN query END AS statement,
       state IS NULL AND query = '<insufficient privilege>' AS hidden
FROM pg_stat_activity
WHERE pid = ANY (%s::int[])
"""

ADVISORY = f"""
WITH {_LOCKS}
SELECT pid, lock, mode, granted, classid, objid, objsubid
FROM locks
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY classid, objid, objsubid, waitstart, pid
"""

# An index is reported as its table. INCLUDEd columns are in the primary key's index, but not part of the key.
RELATIONS = """
SELECT relation.oid, relname, nspname, pg_table_is_visible(pg_class.oid) AS visible,
       quote_ident(nspname) || '.' || quote_ident(relname) AS sql_name,
       ARRAY(SELECT quote_ident(attname)
             FROM pg_index, unnest(indkey::int2[]) WITH ORDINALITY AS part (number, place), pg_attribute
             WHERE indrelid = pg_class.oid AND indisprimary AND place <= indnkeyatts
               AND attrelid = indrelid AND attnum = number
             ORDER BY place) AS key_columns
FROM unnest(%s::oid[]) AS relation (oid)
LEFT JOIN pg_index AS own ON own.indexrelid = relation.oid
JOIN pg_class ON pg_class.oid = coalesce(own.indrelid, relation.oid)
JOIN pg_namespace ON pg_namespace.oid = relnamespace
"""


@contextmanager
def read_only_cursor(using: str) -> Iterator[Any]:
    """Yield a cursor in a transaction, or in a savepoint, which is rolled back at the end."""
    outermost = connections[using].get_autocommit()
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if outermost:
            # Only in a transaction of our own: inside another one the level is fixed already.
            cursor.execute(_FRESH)
        yield cursor
        # Rolled back, so that SET LOCAL and the locks on tables and catalogs end at once.
        transaction.set_rollback(True, using=using)


def fetch(cursor: Any, sql: str, *params: object) -> list[ReportRow]:
    """Run one of the queries above and return its rows."""
    cursor.execute(sql, params)
    columns = [column.name for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def rows_at(places: Iterable[tuple[int, int]], *, table: str, columns: Sequence[str]) -> str:
    """Return the query for ctid and columns of the rows at these places (page, number).

    ``table`` and ``columns`` must be quoted. Run it without parameters, so that a percent sign in a name is not taken
    for a placeholder. ONLY, because every table that inherits from this one has the same ctids.
    """
    tids = ", ".join(f"'({page},{number})'" for page, number in places)
    return f"SELECT ctid::text, {', '.join(columns)} FROM ONLY {table} WHERE ctid = ANY (ARRAY[{tids}]::tid[])"
