"""Keeps the physical storage of tables the same from run to run.

A scan without ORDER BY finds and locks rows in physical order, and an update that no longer fits into its page adds
index entries, which SERIALIZABLE notices. So dead rows keep their places during a run, and are removed between runs
before a page is full.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.tables.control_session import ControlSession

_MOST_RUNS = 100
"""Runs after which dead rows are removed in any case."""
_FEW_ROWS = 20
"""Tables that begin a run with more rows than this fill more than a page anyway."""
_PAGE = 8192 - 24
"""Bytes of a page, less its header."""
_RESERVE = 2048
"""Bytes that a run finds free at least; few write as much to one table."""
_USED = """
SELECT CASE WHEN max((ctid::text::point)[0]) > 0 THEN 8192
            ELSE coalesce(max((ctid::text::point)[1]) * (avg(pg_column_size(t.*)) + 28), 0) END FROM ONLY {name} t
"""
"""How many bytes of the first page the rows fill, or its size; header and pointer of a tuple take 28
bytes together."""


class Storage:
    """Controls VACUUM of the tables that runs write, by a snapshot that the explorer's second session holds."""

    def __init__(self, session: ControlSession) -> None:
        self._session = session
        self._cursor = session.driver.cursor()
        self._tables: dict[str, int] = {}
        self._runs = 0

    def close(self) -> None:
        """Let the server reuse the places of dead rows again."""
        if self._tables:
            self._release_snapshot()

    def add(self, tables: Mapping[str, int]) -> None:
        """Add tables (quoted names) of so many rows."""
        self._tables.update(tables)
        self._hold_snapshot()

    def _hold_snapshot(self) -> None:
        """Hold a snapshot, so that the server does not reuse the places of dead rows."""
        driver = self._session.snapshot_holder
        if driver.info.transaction_status == TransactionStatus.IDLE:
            # BEGIN alone takes no snapshot, and READ COMMITTED would drop it after each statement.
            driver.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")

    def _release_snapshot(self) -> None:
        self._session.snapshot_holder.execute("ROLLBACK")

    def usage_query(self) -> str:
        """Return the query for how full the tables are; empty if none is small enough."""
        queries = [_USED.format(name=name) for name, rows in self._tables.items() if rows <= _FEW_ROWS]
        return f"{' UNION ALL '.join(queries)}; " if queries else ""

    def needs_vacuum(self, used: Collection[float]) -> bool:
        """Count a run, and return whether to vacuum the tables after it; ``used`` are the bytes of `usage_query`."""
        self._runs += 1
        return self._runs >= _MOST_RUNS or _PAGE - max(used, default=0.0) < _RESERVE

    def vacuum(self) -> None:
        """Remove dead rows; the snapshot is released for it, because VACUUM keeps the rows that it sees."""
        self._runs = 0
        self._release_snapshot()
        self._cursor.execute(f"VACUUM {', '.join(self._tables)}")
        self._hold_snapshot()
