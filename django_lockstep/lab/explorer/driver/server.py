"""The explorer's own session on a database: which sessions wait for which, and what for."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from psycopg import OperationalError

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.hooks import one_value
from django_lockstep.lab.explorer.effects.catalog import quote_literal, quote_name
from django_lockstep.lab.explorer.errors import ExplorerError, NotExplorable
from django_lockstep.lab.explorer.tables.control_session import ControlSession, catalog_of
from django_lockstep.lab.explorer.tables.databases import claim, release
from django_lockstep.lab.explorer.tables.saved_tables import SavedTables

# The second function: a SERIALIZABLE READ ONLY DEFERRABLE transaction waits for a safe snapshot, which is not a lock.
_BLOCKED = """
SELECT pid, pg_blocking_pids(pid) || pg_safe_snapshot_blocking_pids(pid) FROM unnest(%s::int[]) AS pid
"""
# A waiter for a row waits for the transaction that locked it, and pg_locks has no relation for that. Which row it is
# can be seen from the tuple lock that the waiter holds meanwhile.
_WAITED_FOR = """
SELECT w.pid, w.locktype, w.mode, coalesce(t.relation, w.relation)::regclass::text, t.page, t.tuple
FROM pg_locks w LEFT JOIN pg_locks t ON t.pid = w.pid AND t.locktype = 'tuple' AND t.granted
WHERE NOT w.granted AND w.pid = %s
"""


_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
# A transaction that has locked a row has a number, and a lock on it; a prepared one belongs to no process.
_HOLDERS = """
SELECT DISTINCT l.pid, p.gid FROM pg_locks l LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.datname, p.database) = current_database()
  AND (l.locktype = 'transactionid' OR l.locktype = 'relation' AND l.mode ~ '^(Share|Exclusive|Access.*Excl).*Lock$'
       AND l.mode <> 'ShareUpdateExclusiveLock')
"""


class Server(ControlSession):
    """One database, as the explorer sees it beside the actors; only one may be open on a database."""

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self.alias = alias
        try:
            # Before anything is read: another explorer would put tables back in the meantime.
            claim(self.driver.cursor())
            self.catalog = catalog_of(self)
            self.tables = SavedTables(self, self.catalog, steady=True)
            self._prepared = self._prepared_ids()
            self.sessions = SessionTracker(self.driver.cursor(), pooled=self.pooled)
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        """Let another explorer in, and end the sessions."""
        with suppress(OperationalError):  # the server may be gone, and the session with its lock
            self.tables.close()
            release(self.driver.cursor())
        super().close()

    def put_back(self) -> None:
        """Put every saved table back. Raises `NotExplorable` for prepared transactions of the run, and ends these."""
        if left := sorted(self._prepared_ids() - self._prepared):
            # They hold their locks until they are ended, and only the explorer knows of them.
            for gid in left:
                self.driver.execute(f"ROLLBACK PREPARED {quote_literal(gid)}".encode())
            raise NotExplorable(
                f"The race left prepared transactions behind ({', '.join(left)}), which are now rolled back: whoever "
                "waits for one waits for no session, so that PREPARE TRANSACTION cannot be explored"
            )
        try:
            self.tables.put_back()
        except ExplorerError as error:
            if error.__cause__ is None or sqlstate_of(error.__cause__) != "55P03":
                raise
            raise ExplorerError(f"{error}. {self.holders()}") from error

    def _prepared_ids(self) -> set[str]:
        """Return the names of the database's prepared transactions."""
        return {gid for (gid,) in self.query(_PREPARED)} if self.prepares else set()

    def holders(self) -> str:
        """Say who holds locks of rows, or locks a table against writes, beside the explorer."""
        holders = [
            f"prepared transaction {gid}" if pid is None else self.describe_session(pid)
            for pid, gid in self.query(_HOLDERS)
        ]
        return f"Locks are held by {'; '.join(holders) or 'nobody any more'}"

    def blocked(self, pids: Collection[int]) -> dict[int, list[int]]:
        """Return which of these server processes wait, and for which others."""
        return {pid: blockers for pid, blockers in self.query(_BLOCKED, list(pids)) if blockers}

    def committed(self, query: str) -> str | None:
        """Return the one value of a query; None if it does not answer at once, because a table is locked."""
        return one_value(self.driver, f"SET LOCAL lock_timeout = '50ms'; {query}")

    def terminate(self, pid: int) -> None:
        """End the server process."""
        self.query("SELECT pg_terminate_backend(%s)", pid)

    def describe_session(self, pid: int) -> str:
        """Describe a session that is not an actor's."""
        rows = self.query("SELECT application_name, state, left(query, 80) FROM pg_stat_activity WHERE pid = %s", pid)
        return f"session {pid} ({', '.join(str(value) for value in rows[0])})" if rows else f"session {pid}"

    def describe_lock(self, pid: int) -> str:
        """Return in a few words for which lock, and for which row of which table, the process waits."""
        for _, locktype, mode, relation, page, item in self.query(_WAITED_FOR, pid):
            if relation is None or page is None:
                return f"{relation or locktype} {mode}"
            if (table := self.catalog.get(relation.strip('"'))) is not None and table.pk is not None:
                query = f"SELECT {quote_name(table.pk)} FROM {relation} WHERE ctid = %s::tid"
                for (key,) in self.query(query, f"({page},{item})"):
                    return f"{relation} {table.pk}={key}"
            return str(relation)
        return "a lock"


_OPEN = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND usesysid IS NOT NULL AND leader_pid IS NULL
  AND coalesce(backend_type, 'client backend') = 'client backend'
  AND (client_addr = inet_client_addr()) IS NOT FALSE
"""
"""Client sessions from this host, as far as the address tells: sessions through a socket have none. No parallel
workers."""
_COUNTED = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"


class SessionTracker:
    """Tells sessions that Django has opened from others, on one database: of the driver, asynchronous, of processes.

    Checked once in an exploration by one process, and after each run of a worker. A session that is open is in
    ``pg_stat_activity``. One that has ended is counted in ``pg_stat_database``, to which a session reports before it
    leaves ``pg_stat_activity``, so that one of the two, asked in this order, knows it.
    """

    def __init__(self, cursor: Any, *, pooled: bool) -> None:
        self._cursor = cursor
        self._pooled = pooled
        self.mark_known()

    def mark_known(self) -> None:
        """Take all current sessions as known."""
        self._known, self._begun = self._look()
        self._opened = 0

    def note_opened(self, pid: int) -> None:
        """Note a session that Django has opened, in any thread."""
        self._known.add(pid)
        self._opened += 1

    def untracked(self) -> tuple[int, int]:
        """Return how many unknown sessions are open, and how many have ended; the latter is not certain.

        A session that was too busy to report its start is counted later than it was opened.
        """
        if self._pooled:
            return 0, 0  # a pool opens sessions by itself
        sessions, count = self._look()
        return len(sessions - self._known), max(0, count - self._begun - self._opened)

    def _look(self) -> tuple[set[int], int]:
        sessions = {pid for (pid,) in self._cursor.execute(_OPEN).fetchall()}
        return sessions, self._cursor.execute(_COUNTED).fetchone()[0]
